"""The meaning of a program's last words: which sound like a failure, and which like a program that goes on."""

from __future__ import annotations

import re

from muster.diagnosis.log import Log

HANDLED = re.compile(
    r"(?i)\b(?:try(?:ing)? (?:it )?again|trying (?:the |an)?(?:next|other)|retry\w*|attempt \d"
    r"|going on|carry(?:ing)? on"
    r"|continu(?:e|ing)|without (?:it|cache)|fall(?:ing)? ?back"
    r"|skipp(?:ed|ing)|ignor(?:ed|ing)|recover(?:ed|ing)|instead|is off|disabled|halving|giving up)\b"
)
PROGRESS = re.compile(r"(?i)\b(?:step|epoch|iter(?:ation)?|batch|loss|acc(?:uracy)?|it/s)\b.{0,3}\W*\d")
FAILURE = re.compile(
    r"(?i)^\W{0,3}[✖✗✘❌⛔💥🛑]|\b(?:error|fail(?:ed|ure|s)?|fatal|abort\w*|cannot|could not|couldn't|can't|giving "
    r"up|refus\w+|invalid|missing|unable"
    r"|exceed\w*|unsupported|not|no such|denied|stopping|exit(?:ing)?|nan|below"
    r"|undefined|out of|too (?:many|few|large|small)|corrupt\w*|truncated|unbound|died|used up"
    r"|left out|problem|nil value|expired|quota|required|unexpected|wrong|no rule|mismatch\w*|differs?"
    r"|exists already|already exists"
    r"|rejected|unknown|unrecogni[sz]ed|conflict\w*|damaged|violat\w+|incompatible|insufficient|unavailable"
    r"|expected\b.{0,80}\b(?:found|got|but|is|has))\b"
    r"| at \S{1,200} line \d{1,6}(?:, <\w{0,20}> (?:line|chunk) \d{1,9})?\.$"
    r"|错误|失败|找不到|无法|エラー|失敗|できません|見つかりません|오류|실패|ошибка|не удалось|не найден"
    r"|\b(?:fehler|fehlgeschlagen|erreur|échec|introuvable|impossible de|fallo|no se pudo|errore|erro)\b"
)
GENERIC = re.compile(
    r"(?i)not recoverable|see previous errors|^error: called from|^Error termination"
    r"|could not read from remote repository"
    r"|Re-run Maven|\[Help \d|End of Error Message|^curl failed to verify|A complete log of this run|^stack traceback:"
    r"|^required by package|^Please make sure you have|^For more information about"
    r"|^Execution of \S{1,200} aborted due to"
    r"|^error: (?:aborting due to|could not compile)"
    r"|^BEGIN failed--compilation aborted|ld returned|exiting now"
    r"|exit(?:ed with)? (?:status|code)|\bfailed (?:\(|with )(?:exit|status|code|rc)\b|return code = \d|see "
    r"(?:above|the log)|^\W*(?:training|job|run|script) failed\W*$|aborting\W*$"
    r"|\bline \d+ failed\b|^(?:giving|gave) up after \d+ (?:tries|attempts|times)\b"
    r"|^(?:try|attempt) \d+ (?:of \d+ )?failed\b"
    r"|^\W*(?:failed|error|exiting|stopped)\W*$|^\W*\d+ (?:failed|errors?)\b|^FAILED \("
)
_COMPILER = re.compile(r"error\[\w{1,10}\]: |[\w./+-]{1,200}:\d{1,6}(?::\d{1,5})?: (?:fatal )?error:? ")
_COMPILER_WORDS = 40
_LONGEST_TITLE = 120
_INDENTED = 8
_FEW_WORDS = 3
_GAVE_UP = re.compile(r"(?i)^(?:giving|gave) up\b")
_CAUSED = "Caused by:"
_TCL = "while executing"


def is_handled(line: str) -> bool:
    """Whether a line says that the program goes on after a failure."""
    return bool(HANDLED.search(line))


def sounds_like_failure(line: str) -> bool:
    return bool(FAILURE.search(line))


def telling_line(log: Log) -> str:
    """Those of the last words that sound like a failure; the very last otherwise."""
    words = log.last_words(12)
    if _TCL in map(str.strip, log.lines[-40:]):
        # Its stack is below the message.
        at = len(log.lines) - 1 - next(i for i, line in enumerate(reversed(log.lines)) if line.strip() == _TCL)
        return log.lines[at - 1].strip() if at else ""
    compiler = [line for line in log.last_words(_COMPILER_WORDS) if _COMPILER.match(line) and not GENERIC.search(line)]
    if compiler:
        # Of several errors the first is the cause; after it come source and advice.
        return compiler[0].strip()
    caused = next((i for i in range(len(log.lines) - 1, -1, -1) if log.lines[i] == _CAUSED), None)
    if caused is not None and (chain := _chain(log, caused)):
        return chain
    sounding = [line for line in words if FAILURE.search(line)]
    specific = [line for line in sounding if not GENERIC.search(line)]
    line = with_its_text(log, (specific or sounding or words or [""])[-1].strip())
    return _with_what_was_said(line, words) if sounding and not specific else _with_indented(log, line)


def _with_what_was_said(line: str, words: list[str]) -> str:
    """A line that only says that something failed, with the last one before it that says more."""
    telling = [word.strip() for word in words if not GENERIC.search(word) and not PROGRESS.search(word)]
    return f"{telling[-1]}; then: {line}" if telling and _GAVE_UP.search(line) else line


def _with_indented(log: Log, line: str) -> str:
    """A few words about a failure, with the indented line of another program's output that explains it."""
    inside = [text for text in log.indented(_INDENTED) if FAILURE.search(text) and not GENERIC.search(text)]
    short = line.endswith("failed") and len(line.split()) <= _FEW_WORDS
    return f"{line}: {inside[0]}" if short and inside else line


def _chain(log: Log, at: int) -> str:
    """Rust's form: an error, and below a title its causes, each indented."""
    above = next((line for line in reversed(log.lines[max(0, at - 3) : at]) if line.strip()), "")
    below = [line.strip() for line in log.lines[at + 1 : at + 12] if line.startswith("  ")]
    return f"{above.strip()} (caused by {re.sub(r'^[0-9]+: ', '', below[-1])})" if above and below else ""


def with_its_text(log: Log, line: str) -> str:
    """A line that only announces the one below it, with the first line of that."""
    if not line.endswith(":") or len(line) > _LONGEST_TITLE:
        return line
    at = next((i for i in range(len(log.lines) - 1, -1, -1) if log.lines[i].strip() == line), len(log.lines))
    below = next((text for text in log.lines[at + 1 : at + 3] if text.strip()), "")
    return f"{line} {below.strip()}" if below.startswith((" ", "\t")) else line
