"""`muster rerun`: run a job again, with its own code and changed values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from muster.cli.commands.run import follow, tell
from muster.cli.interrupts import submitted
from muster.cli.options import Json, Run, option, switch
from muster.cli.overrides import Overrides, parse_pairs, with_overrides
from muster.client.connect import connect
from muster.client.provenance import record
from muster.errors import JobError
from muster.job.explain import make_spec
from muster.wire.codec import Json as JsonValue
from muster.wire.runs import RunView


def rerun(
    run: Run,
    inputs: Annotated[
        list[str] | None, option("K=V", "Another value for an input; repeatable.", "--input", "-i")
    ] = None,
    settings: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Another value for a key of the job, such as limits.timeout=3600.", "--set"),
    ] = None,
    name: Annotated[str | None, option("NAME", "A name for the new run.")] = None,
    detach: Annotated[bool, switch("Print the run's id and return at once.", "--detach", "-d")] = False,
    quiet: Annotated[bool, switch("Print only the summary.", "--quiet", "-q")] = False,
    as_json: Json = False,
) -> None:
    """Repeat a run with the code that it had, and follow it to its end.

    The new run has its own id; the tag rerun_of names the one that it repeats. Files that have changed in the code
    folder since do not matter: the code is the one that was kept with the run.

    \b
    Examples:
      muster rerun @latest
      muster rerun @latest -i lr=0.05
      muster rerun @latest --set limits.timeout=3600 --detach
    """
    client = connect()
    earlier = client.run(run)
    document = again(earlier, parse_pairs("--input", inputs or []), parse_pairs("--set", settings or []), name)
    python = sys.executable if document.get("environment") is None else None
    spec = make_spec(document)

    def then(view: RunView) -> None:
        record(client, [view.id], Path.cwd(), ["muster", *sys.argv[1:]])
        tell(view)

    view = submitted(client, lambda: client.submit(spec, earlier.snapshot, None, python), then)
    raise typer.Exit(follow(client, view, detach=detach, quiet=quiet, as_json=as_json))


def again(
    earlier: RunView, inputs: Mapping[str, str], settings: Mapping[str, str], name: str | None
) -> dict[str, JsonValue]:
    """The job of an earlier run with changed values. Pure."""
    document = {key: value for key, value in earlier.spec.items() if value is not None}
    # Two runs must not share a name.
    document.pop("name", None)
    changed = with_overrides(document, Overrides(inputs=inputs, name=name))
    for key, text in settings.items():
        _put(changed, key, text)
    tags = changed.get("tags")
    changed["tags"] = {**(tags if isinstance(tags, Mapping) else {}), "rerun_of": earlier.id}
    return changed


def _put(document: dict[str, Any], key: str, text: str) -> None:
    """Set a value by its dotted key; make_spec checks that the key exists."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    *folders, last = key.split(".")
    inner = document
    for part in folders:
        below = inner.get(part)
        if below is not None and not isinstance(below, Mapping):
            raise JobError(f"--set {key}={text}: {part} is {below!r} in this job, and has no parts.")
        inner[part] = dict(below or {})
        inner = inner[part]
    inner[last] = value
