"""Make `--local_rank` and `--local-rank` one option: current launchers pass the second, older scripts expect the first.

A parser that knows only one spelling gets that one. Nothing is imported if neither was passed.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

_SPELLINGS = ("--local_rank", "--local-rank")


def install() -> None:
    """Bridge the two spellings in a process that was started with one of them."""
    if not any(spelling.encode() in _command_line() for spelling in _SPELLINGS):
        return
    import argparse

    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: "Any", args: "Any" = None, namespace: "Any" = None, **more: "Any") -> "Any":
        given = sys.argv[1:] if args is None else list(args)
        return parse(self, [_known(self, word) for word in given], namespace, **more)

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def _known(parser: "Any", word: "Any") -> "Any":
    """The word in the spelling that the parser knows."""
    if not isinstance(word, str):
        return word
    option, equals, value = word.partition("=")
    if option not in _SPELLINGS or option in parser._option_string_actions:
        return word
    other = _SPELLINGS[1 - _SPELLINGS.index(option)]
    return other + equals + value if other in parser._option_string_actions else word


def _command_line() -> bytes:
    words: "List[str]" = getattr(sys, "orig_argv", [])
    if words:
        return "\0".join(words).encode(errors="replace")
    try:
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""
