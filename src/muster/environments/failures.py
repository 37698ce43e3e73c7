"""The reasons why a build of an environment or a pull of an image failed, read from the tools' output. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

_LINES = 25


class Failure(Exception):
    """Why an environment could not be built; `code` is the verdict, `environment` or `disk_full`."""

    def __init__(
        self, code: str, message: str, next: str, lines: Sequence[str] = (), *, is_version: bool = False
    ) -> None:
        super().__init__(f"{message}. {next}")
        self.code = code
        self.message = message
        self.next = next
        self.lines = tuple(lines)
        self.is_version = is_version
        """Another version of the package might do."""


@dataclass(frozen=True)
class _Pattern:
    text: re.Pattern[str]
    message: str
    next: str
    code: str = "environment"
    is_version: bool = False


_NETWORK_NEXT = (
    "Check the network and proxy of the node, and the index that pip is configured with; what was downloaded before "
    "is cached, so a retry goes on from there."
)
_VERSION_NEXT = "Correct the version in the environment."

# In order: a builder that cannot reach its index also reports that it found nothing.
_PATTERNS = (
    _Pattern(
        re.compile(r"No space left on device|Disk quota exceeded|os error 28\b|No usable temporary directory", re.I),
        "the disk is full",
        "Free space there, remove environments with `muster env rm`, or set MUSTER_ENVIRONMENTS_DIR to a larger disk.",
        "disk_full",
    ),
    _Pattern(
        re.compile(r"Hash mismatch|DO NOT MATCH THE HASHES", re.I),
        "an archive is not the one that was recorded",
        "Somebody replaced it in the index. If that is as it should be, submit a new job, which records what is there.",
    ),
    _Pattern(
        re.compile(r"\b(?:status code|HTTP error|error:?) ?(?:401|403|407)\b|401 Client Error|403 Client Error", re.I),
        "the package index refused the credentials",
        "Check user and password in the index address that pip is configured with.",
    ),
    _Pattern(
        re.compile(
            r"NewConnectionError|Max retries exceeded|Temporary failure in name resolution|Name or service not known"
            r"|Connection refused|Network is unreachable|ConnectTimeout|Read timed out|ProxyError|dns error"
            r"|error sending request|connection broken by|tcp connect error|operation timed out"
            r"|Network connectivity is disabled|could not resolve host|CondaHTTPError",
            re.I,
        ),
        "the package index cannot be reached",
        _NETWORK_NEXT,
    ),
    _Pattern(
        re.compile(r"requires a different python|does not satisfy Python|Requires-Python|current Python version", re.I),
        "a package does not run on this version of Python",
        "Ask for another version of it, or set `python` in the environment.",
        is_version=True,
    ),
    _Pattern(
        re.compile(r"(?:there (?:is|are) no versions? of|no version of) (?P<what>\S+)", re.I),
        "there is no version {what}",
        _VERSION_NEXT,
        is_version=True,
    ),
    _Pattern(
        re.compile(
            r"Because (?P<what>\S+) was not found in (?:the package registry|the provided package locations)"
            r"|requirement (?P<pip>\S+)[^\n]*\(from versions: none\)"
            r"|^\s*(?:nothing provides|package) (?P<conda>\S+?) ?(?:needed|does not exist|\(|=)"
            r"|ResolvePackageNotFound:\s+-\s+(?P<old>\S+)",
            re.I | re.MULTILINE,
        ),
        "there is no package {what}",
        "Correct its name in the environment, or name the index that has it with --extra-index-url.",
    ),
    _Pattern(
        re.compile(r"(?:No matching distribution found for|satisfies the requirement) (?P<what>[^\n(]+)", re.I),
        "no version fits {what}",
        _VERSION_NEXT,
        is_version=True,
    ),
    _Pattern(
        re.compile(r"ResolutionImpossible|unsatisfiable|conflicting dependencies|are incompatible", re.I),
        "the requirements contradict each other",
        "Loosen one of the versions that the lines name.",
        is_version=True,
    ),
    _Pattern(
        re.compile(
            r"Failed to build|Building wheel for \S+ .*did not run|subprocess-exited-with-error"
            r"|metadata-generation-failed|build backend returned an error|error: command '[^']*(?:gcc|g\+\+|cc)'",
            re.I,
        ),
        "a package could not be compiled",
        "Ask for a version that has a wheel for this Python, or install the compilers and headers that it needs.",
        is_version=True,
    ),
    _Pattern(
        re.compile(r"Invalid requirement|Failed to parse|Couldn't parse|InvalidMatchSpec|expected one of", re.I),
        "a requirement cannot be read",
        "Correct the line that is named.",
    ),
)


# For container engines, when they pull, build or push.
_ENGINE_PATTERNS = (
    _Pattern(
        re.compile(r"no space left on device|disk quota exceeded", re.I),
        "the disk is full",
        "Remove images that nothing uses (`podman image prune`), or give the engine a larger disk.",
        "disk_full",
    ),
    _Pattern(
        re.compile(r"unauthorized|authentication required|access to the resource is denied|denied:|\b40[13]\b", re.I),
        "the registry refused the credentials, or has none for this image",
        "Set them with `muster secret set {secret}`, as USER:PASSWORD; check that the image's name is right.",
    ),
    _Pattern(
        re.compile(r"manifest unknown|not found: manifest|name unknown|repository does not exist|\b404\b", re.I),
        "the registry has no such image",
        "Correct its name or tag.",
    ),
    _Pattern(
        re.compile(
            r"no such host|connection refused|network is unreachable|i/o timeout|TLS handshake|server misbehaving"
            r"|temporary failure in name resolution|proxyconnect|server gave HTTP response to HTTPS|no route to host",
            re.I,
        ),
        "the registry cannot be reached",
        "Check the network and proxy of the node, and the registry's name.",
    ),
)


_LOCAL_IMAGE = re.compile(r"\blocalhost/\S+")
_LOCAL_NEXT = (
    "`localhost/` names an image that was built on the node itself, and no registry has it: build it there (`podman "
    "images` lists what there is), or push it to a registry and name that."
)


def classify(program: str, returncode: int, printed: Sequence[str]) -> Failure:
    """The failure behind a builder's exit code and its last lines."""
    lines = tuple(line for line in printed if line.strip())[-_LINES:]
    if returncode < 0:
        return killed(program, -returncode, lines)
    text = "\n".join(printed)
    for pattern in _PATTERNS:
        match = pattern.text.search(text)
        if match:
            what = next((group for group in match.groupdict().values() if group), "what is asked for")
            message = pattern.message.format(what=what.strip("`'\",;:() ").removesuffix("."))
            return Failure(pattern.code, message, pattern.next, lines, is_version=pattern.is_version)
    return Failure("environment", f"{program} ended with code {returncode}", "The lines say why.", lines)


def classify_engine(what: str, code: int, printed: Sequence[str], secret: str = "", *, pulled: bool = False) -> Failure:
    """The failure behind a container engine's exit code; `what` names the image and the action."""
    lines = tuple(line for line in printed if line.strip())[-_LINES:]
    if code < 0:
        return killed("the container engine", -code, lines)
    text = "\n".join(lines)
    if pulled and _LOCAL_IMAGE.search(what):
        return Failure("environment", f"{what}: the node has no image of that name", _LOCAL_NEXT, lines)
    for pattern in _ENGINE_PATTERNS:
        # A build prints whatever its commands print; only a full disk means the same in it.
        if (pulled or pattern.code == "disk_full") and pattern.text.search(text):
            return Failure(pattern.code, f"{what}: {pattern.message}", pattern.next.format(secret=secret), lines)
    hint = "The lines say why." if pulled else "The lines say which step failed; correct the Dockerfile."
    return Failure("environment", f"{what}: the engine ended with code {code}", hint, lines)


def killed(program: str, number: int, lines: Sequence[str] = ()) -> Failure:
    name = signal.Signals(number).name if number in {item.value for item in signal.Signals} else f"signal {number}"
    hint = "Something outside sent it"
    if number == signal.SIGKILL:
        hint += ", or the node ran out of memory"
    return Failure("environment", f"{program} was killed by {name}", f"{hint}; submit again.", tuple(lines))
