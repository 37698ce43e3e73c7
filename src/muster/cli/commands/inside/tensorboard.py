"""`muster tensorboard`: TensorBoard on runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from muster.cli.console import notice, say
from muster.cli.options import Runs, option
from muster.client.connect import connect
from muster.client.inside.event_files import Mirror, cache_folder
from muster.errors import MissingExtra, NotFound
from muster.host.extras import install_command
from muster.wire import states
from muster.wire.runs import RunView

_PORT = 6006


def tensorboard(
    runs: Runs,
    port: Annotated[int, option("PORT", "Port on this machine; 0 takes a free one.", min=0, max=65535)] = _PORT,
) -> None:
    """Start TensorBoard on the event files of runs, until Ctrl-C.

    Files of ended runs are downloaded; those of running ones are followed as they grow, wherever below its working
    folder a rank writes them. For a run that has ended, only what it wrote below `outputs` or `logs` is kept.

    \b
    Examples:
      muster tensorboard @latest
      muster tensorboard brave-otter calm-lynx --port 0
    """
    program = tensorboard_command()
    client = connect()
    views = list({view.id: view for view in map(client.run, runs)}.values())
    mirror = Mirror(client, cache_folder(client.health().workspace))
    found = {view.id: mirror.fetch(view) for view in views}
    living = [view for view in views if view.status not in states.TERMINAL]
    if not living and not any(found.values()):
        raise NotFound(
            f"{' and '.join(found)} left no event files of TensorBoard",
            "Have the script write them below `outputs`, such as SummaryWriter('outputs/tensorboard').",
        )
    for view in views:
        if not found[view.id] and view not in living:
            notice(f"{view.id} left no event files of TensorBoard")
        elif view in living:
            mirror.follow(view)
            say(f"{view.id} is {view.status}: what it writes is followed")
    with tempfile.TemporaryDirectory(prefix="muster-tensorboard-") as folder:
        _link(Path(folder), views, mirror)
        options = ["--logdir", folder, "--host", "127.0.0.1", "--port", str(port), "--reload_multifile", "true"]
        try:
            code = subprocess.call([*program, *options, "--reload_interval", "5", "--load_fast", "false"])
        except KeyboardInterrupt:
            code = 0
        finally:
            mirror.close()
    raise typer.Exit(code)


def tensorboard_command() -> list[str]:
    """The command that starts TensorBoard here; MissingExtra where it is not installed."""
    if find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    if program := shutil.which("tensorboard"):
        return [program]
    raise MissingExtra("TensorBoard is not installed here", install_command("tensorboard"))


def _link(folder: Path, views: list[RunView], mirror: Mirror) -> None:
    """A folder for each run, under the name that its submitter gave it."""
    for view in views:
        name = view.name or view.id
        target = mirror.target(view.id, "events").parent
        target.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target, target_is_directory=True)
