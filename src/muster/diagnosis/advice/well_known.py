"""Advice about the final messages of well-known tools, whatever job they ran in."""

from __future__ import annotations

import re

KNOWN: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (
            r"Permission denied \(\w*publickey",
            "The other side does not take the node's ssh key: give the job one that it takes, or use https and a token "
            "(a secret of the job).",
        ),
        (
            r"Host key verification failed",
            "Nobody answers ssh's question about a new host key in a job: put the key into `known_hosts` first "
            "(`ssh-keyscan HOST`).",
        ),
        (
            r"Authentication failed for '?(?P<what>[^\s']{1,200})|could not read Username for '(?P<other>[^']{1,200})",
            "The node has no login for {what}{other}: give the job a token as a secret.",
        ),
        (
            r"not a git repository",
            "The code that was submitted has no `.git`: hand over the commit in a variable or an argument instead of "
            "asking git for it.",
        ),
        (
            r"pathspec '(?P<what>[^']{1,200})' did not match",
            "git knows no `{what}` here: check the name of the branch, tag or file (a shallow clone has few of them).",
        ),
        (
            r"returned error: (?P<what>4\d\d)|ERROR (?P<other>4\d\d): "
            r"|\b(?P<more>40[134]) (?:Client Error|Not Found|Forbidden)",
            "The server answers with {what}{other}{more}: check the address, and whether it wants a login (a token as "
            "a secret of the job).",
        ),
        (
            r"SSL certificate problem|certificate verify failed|CERTIFICATE_VERIFY_FAILED",
            "The node does not know who signed the server's certificate: name the authority's certificate in "
            "SSL_CERT_FILE (REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE) in `environment_variables`.",
        ),
        (
            r"Unable to locate credentials|NoCredentialsError"
            r"|[Cc]ould not (?:find|automatically determine) (?:default )?credentials",
            "The job has no credentials for the storage: give them as secrets "
            "(`secrets: {{AWS_ACCESS_KEY_ID: NAME}}`).",
        ),
        (
            r"gated repo|Access to model \S+ is restricted|make sure to pass a token",
            "The hub asks for a login: check the name of the model, accept its terms there, and give HF_TOKEN as a "
            "secret of the job.",
        ),
        (
            r"No rule to make target ['`](?P<what>[^'`]{1,200})'",
            "The Makefile has no target `{what}`, and there is no such file: check the spelling, and that it was "
            "submitted.",
        ),
        (
            r"cannot find -l(?P<what>[\w.+-]+)",
            "The linker finds no library {what}: use an image that has it, or name its folder (`-L`, LIBRARY_PATH).",
        ),
        (
            r"Argument list too long",
            "More arguments than one command takes: pass them on by `find … -exec … +` or `xargs`.",
        ),
        (
            r"computed checksums? did NOT match",
            "A file is not what its checksum says: remove it and download it again, or correct the list.",
        ),
        (
            r"(?m)Error opening input file (?P<what>\S{1,200}?)\.?$",
            "`{what}` is not there on the node, or cannot be read: check the path, or give it as an input of the job.",
        ),
        (
            r"zipfile directory|End-of-central-directory",
            "The archive is damaged or incomplete: download it again.",
        ),
        (
            r"Run 'conda init' before",
            'A script has to set up conda first: `eval "$(conda shell.bash hook)"` before `conda activate`.',
        ),
        (
            r"Cannot find primary config '(?P<what>[^']{1,80})'",
            "There is no configuration `{what}` in the folder that `config_path` names: check both names.",
        ),
    )
)


def known(text: str) -> str:
    """What to do about the first line that is known; empty where none is."""
    for pattern, advice in KNOWN:
        if found := pattern.search(text):
            return advice.format_map({name: value or "" for name, value in found.groupdict().items()})
    return ""
