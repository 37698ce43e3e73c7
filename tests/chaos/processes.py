"""SIGKILL and SIGSTOP of every kind of process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterable

import psutil
from tests.chaos.checks import Expected
from tests.chaos.stage import MUSTER
from tests.chaos.trial import Fault, Scene
from tests.chaos.waiting import until

_WHILE_RUNNING = ("begun", "flowing", "middle", "last")


def kill(processes: Iterable[psutil.Process]) -> None:
    """All at once, as far as that goes: none of them sees another's end before it is stopped."""
    chosen = list(processes)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in chosen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def pause(scene: Scene, process: psutil.Process, most_s: float) -> None:
    """Stop a process, and continue it after a while that depends on the seed."""
    seconds = scene.chance.uniform(0.2, most_s)
    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()

    def resume() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    timer = threading.Timer(seconds, resume)
    timer.start()
    scene.undo.append(timer.join)


def rank_killed(scene: Scene) -> Expected:
    rank = scene.any_rank()
    scene.stage.gang(scene.run_id, rank).rank.kill()
    return scene.fails("signal", rank=rank)


def rank_stopped(scene: Scene) -> Expected:
    pause(scene, scene.stage.gang(scene.run_id, scene.any_rank()).rank, 2.0)
    return Expected()


def keeper_killed(scene: Scene) -> Expected:
    scene.stage.gang(scene.run_id, scene.any_rank()).keeper.kill()
    return scene.fails("platform")


def keeper_stopped(scene: Scene) -> Expected:
    scene.stage.gang(scene.run_id, scene.any_rank()).keeper.suspend()
    return Expected()


def nursery_killed(scene: Scene) -> Expected:
    scene.stage.gang(scene.run_id, scene.any_rank()).nursery.kill()
    return Expected()


def nursery_stopped(scene: Scene) -> Expected:
    scene.stage.gang(scene.run_id, scene.any_rank()).nursery.suspend()
    return Expected()


def agent_killed(scene: Scene) -> Expected:
    rank = scene.any_rank()
    node = scene.stage.ranks(scene.run_id)[rank].node
    gang = scene.stage.gang(scene.run_id, rank)
    gang.agent.kill()
    _wait_for_its_end(gang.rank)
    return scene.fails("node_lost", node=node)


def agent_stopped(scene: Scene) -> Expected:
    pause(scene, scene.stage.gang(scene.run_id, scene.any_rank()).agent, 4.0)
    return Expected()


def node_killed(scene: Scene) -> Expected:
    """All of Muster on a node at once; what it started works on until the next agent comes."""
    rank = scene.any_rank()
    node = scene.stage.ranks(scene.run_id)[rank].node
    gang = scene.stage.gang(scene.run_id, rank)
    kill([gang.agent, gang.nursery, gang.keeper])
    return scene.fails("node_lost", node=node)


def server_killed(scene: Scene) -> Expected:
    scene.stage.server().kill()
    return Expected()


def server_killed_often(scene: Scene) -> Expected:
    for _ in range(scene.chance.randint(2, 4)):
        scene.stage.server().kill()
    return Expected()


def server_stopped(scene: Scene) -> Expected:
    pause(scene, scene.stage.server(), 4.0)
    return Expected()


def server_asked_to_end(scene: Scene) -> Expected:
    """SIGTERM, while requests are under way."""
    scene.stage.server().terminate()
    return Expected()


def all_killed(scene: Scene) -> Expected:
    """Server, agents, nurseries and keepers at once."""
    gangs = [scene.stage.gang(scene.run_id, rank) for rank in range(scene.num_ranks)]
    kill({scene.stage.server(), *(item for gang in gangs for item in (gang.agent, gang.nursery, gang.keeper))})
    return scene.fails("node_lost")


def rank_and_server_killed(scene: Scene) -> Expected:
    rank = scene.any_rank()
    victim = scene.stage.gang(scene.run_id, rank).rank
    kill([victim, scene.stage.server()])
    return scene.fails("signal", rank=rank)


def agent_and_server_killed(scene: Scene) -> Expected:
    rank = scene.any_rank()
    node = scene.stage.ranks(scene.run_id)[rank].node
    gang = scene.stage.gang(scene.run_id, rank)
    kill([gang.agent, scene.stage.server()])
    _wait_for_its_end(gang.rank)
    return scene.fails("node_lost", node=node)


def _wait_for_its_end(rank: psutil.Process) -> None:
    """A rank of a dead agent is ended: one that may go on before that ends well by itself, and so does its run."""
    until(lambda: _has_ended(rank), "the end of a rank without an agent")


def _has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def follower_killed(scene: Scene) -> Expected:
    """A client that follows the run dies."""
    watching = subprocess.Popen(
        [MUSTER, "logs", "-f", scene.run_id],
        cwd=scene.stage.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    assert watching.stdout is not None
    with watching.stdout as lines:
        lines.readline()
        watching.kill()
        watching.wait()
    return Expected()


def cancelled_while_stopped(scene: Scene) -> Expected:
    """A gang whose keeper hangs is ended by force all the same."""
    scene.stage.gang(scene.run_id, scene.any_rank()).keeper.suspend()
    scene.stage.client.cancel(scene.run_id, force=True)
    return Expected(("cancelled",))


def cancelled_and_server_killed(scene: Scene) -> Expected:
    scene.stage.client.cancel(scene.run_id, force=True)
    scene.stage.server().kill()
    # Ranks that end well before the next server can stop them have completed.
    return Expected(("cancelled",), exact=False)


def idle_agent_killed(scene: Scene) -> Expected:
    """The agent of a node dies right after a run was submitted, before or while it prepares."""
    agents = [item for item in psutil.process_iter(["cmdline"]) if _is_agent(item, scene)]
    if agents:
        scene.chance.choice(agents).kill()
    return Expected(("node_lost", "platform"), retried=scene.retried, exact=False)


def _is_agent(process: psutil.Process, scene: Scene) -> bool:
    words = process.info["cmdline"] or []
    return "muster.agent" in words and str(scene.stage.folder) in words[-1]


PROCESSES = (
    Fault("a rank killed", rank_killed, _WHILE_RUNNING),
    Fault("a rank stopped and continued", rank_stopped, _WHILE_RUNNING),
    Fault("a keeper killed", keeper_killed, _WHILE_RUNNING),
    Fault("a keeper stopped", keeper_stopped, _WHILE_RUNNING),
    Fault("a nursery killed", nursery_killed, _WHILE_RUNNING),
    Fault("a nursery stopped", nursery_stopped, _WHILE_RUNNING),
    Fault("an agent killed", agent_killed, _WHILE_RUNNING),
    Fault("an agent stopped and continued", agent_stopped, _WHILE_RUNNING),
    Fault("agent, nursery and keeper killed at once", node_killed, _WHILE_RUNNING),
    Fault("the server killed", server_killed, ("submitted", *_WHILE_RUNNING)),
    Fault("the server killed again and again", server_killed_often, ("submitted", *_WHILE_RUNNING)),
    Fault("the server stopped and continued", server_stopped, ("submitted", *_WHILE_RUNNING)),
    Fault("the server told to end", server_asked_to_end, ("submitted", *_WHILE_RUNNING)),
    Fault("server, agents and keepers killed at once", all_killed, _WHILE_RUNNING),
    Fault("a rank and the server killed", rank_and_server_killed, _WHILE_RUNNING),
    Fault("an agent and the server killed", agent_and_server_killed, _WHILE_RUNNING),
    Fault("a follower killed", follower_killed, ("begun", "flowing", "middle")),
    Fault("cancelled while a keeper hangs", cancelled_while_stopped, ("begun", "middle")),
    Fault("cancelled, and the server killed", cancelled_and_server_killed, ("begun", "middle")),
    Fault("an agent killed before it began", idle_agent_killed, ("submitted",)),
)
