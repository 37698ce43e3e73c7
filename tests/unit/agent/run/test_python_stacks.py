"""What py-spy and faulthandler print, as one kind of stacks; and a diagnosis that is not misled by them."""

from __future__ import annotations

from muster.agent.run.sessions.python_stacks import handler_threads, spied_threads
from muster.diagnosis import log

DUMP = """muster: somebody asks where rank 1 (process 77) is:
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 294 in accept
  File "train.py", line 9 in serve

Current thread 0x00007f0000000002 (most recent call first):
  File "train.py", line 5 in fetch
  File "train.py", line 18 in <module>
epoch 2
"""


def test_the_handlers_dump_is_read_with_the_main_thread_first() -> None:
    main, other = handler_threads(DUMP)
    assert main["name"] == "MainThread" and [frame["function"] for frame in main["frames"]] == ["fetch", "<module>"]
    assert other["frames"][0] == {"function": "accept", "file": "/usr/lib/python3.11/socket.py", "line": 294}
    assert handler_threads("nothing of the kind\n") == []


def test_py_spys_dump_is_read_with_the_main_thread_first() -> None:
    call = {"name": "f", "filename": "a.py", "line": 3}
    dump = [
        {"pid": 7, "os_thread_id": 9, "thread_name": "worker", "frames": []},
        {"pid": 7, "os_thread_id": 7, "thread_name": None, "frames": [call]},
    ]
    main, worker = spied_threads(dump)
    assert main == {"name": "MainThread", "frames": [{"function": "f", "file": "a.py", "line": 3}]}
    assert worker["name"] == "worker"


def test_stacks_that_somebody_asked_for_are_no_sign_of_an_end() -> None:
    assert log.read(f"epoch 1\n{DUMP}").lines == ("epoch 1", "epoch 2")
    assert log.read(f"epoch 1\n{DUMP}").stacks == ()
