"""Who is to blame by what others say, by what only one says of itself, and by how far ranks came."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.diagnosis.test_gangs import TIMED_OUT, rank, stack, stopped, verdict

from muster.wire.verdicts import JobFacts, RankEvidence

INIT = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    dist.init_process_group("gloo")
  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 9, in init_process_group
    backend = ProcessGroupGloo(
RuntimeError: Wait timeout
"""


def raised(line: str, source: str = "step()", function: str = "<module>") -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 7, in {function}\n    {source}\n{line}\n'


def doing(number: int, source: str) -> str:
    return stack(number, 5) + f'muster: "/job/work/train.py" line 5: {source}\n'


def steps(number: int, count: int) -> str:
    return "".join(f"rank {number} step {step}\n" for step in range(count))


def test_an_exception_inside_a_librarys_meeting_is_a_rendezvous_whatever_its_words() -> None:
    made = verdict(*(rank(number, f"meets at exp7\n{INIT}") for number in range(3)))
    assert made.code == "rendezvous"


def test_the_only_rank_that_met_elsewhere_is_named() -> None:
    ranks = [rank(number, f"rank {number} meets at exp{8 if number == 2 else 7}\n{INIT}") for number in range(4)]
    made = verdict(*ranks)
    assert (made.code, made.rank, made.confidence) == ("rendezvous", 2, "likely")
    assert "rank 2 meets at exp8" in made.message


def test_a_number_that_only_looks_like_a_ranks_own_tells_nobody_apart() -> None:
    made = verdict(*(rank(number, f"interface: ib0\n{INIT}") for number in range(3)))
    assert made.rank is None


def test_a_rank_at_another_port_than_the_given_one_is_named() -> None:
    ranks = [rank(number, f"head is 127.0.0.1:{29511 if number == 1 else 4000}\n{INIT}") for number in range(2)]
    made = verdict(*ranks, facts=JobFacts(master_port=4000))
    assert (made.code, made.rank) == ("rendezvous", 1)
    assert "MASTER_PORT is 4000" in made.next


def test_a_world_size_that_is_too_large_blames_nobody() -> None:
    counted = "torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 2/3 clients joined."
    made = verdict(rank(0, raised(counted)), stopped(1))
    assert (made.code, made.rank) == ("rendezvous", None)
    assert "the world size is 3 in the script" in made.message
    assert "WORLD_SIZE" in made.next


def test_the_rank_that_all_others_accuse_is_named_though_it_accuses_them() -> None:
    def says(own: int, other: int) -> str:
        return raised(f"RuntimeError: Detected mismatch between collectives on ranks. Rank {own} …, but Rank {other} …")

    made = verdict(rank(0, says(0, 2)), rank(1, says(1, 2)), rank(2, says(2, 0)))
    assert (made.code, made.rank) == ("collective", 2)


def test_a_server_that_goes_on_is_to_blame_for_what_it_told_its_client() -> None:
    fault = raised("xmlrpc.client.Fault: <Fault 1: \"<class 'IndexError'>:list index out of range\">")
    serves = stack(0, 9).replace("train.py", "lib/python3.11/socketserver.py").replace("<module>", "serve_forever")
    made = verdict(rank(1, fault), stopped(0, serves), stopped(2, stack(2, 5)))
    assert (made.code, made.rank) == ("exception", 0)
    assert "IndexError: list index out of range" in made.message


def test_a_peer_that_is_named_and_had_left_is_to_blame() -> None:
    made = verdict(rank(0, "driver: nothing came from actors [2]\n"), rank(1, exit_code=0), rank(2, exit_code=0))
    assert (made.code, made.rank) == ("collective", 2)
    assert made.second is not None and made.second.rank == 0


def test_a_peer_that_is_named_and_waits_is_not_to_blame() -> None:
    made = verdict(rank(0, "driver: no answer from rank 1 within 5 s\n"), stopped(1, stack(1, 9, True)))
    assert (made.code, made.rank) == ("exit_code", 0)


def test_a_file_that_another_rank_never_wrote() -> None:
    missing = raised("FileNotFoundError: [Errno 2] No such file or directory: 'parts/part-2.json'")
    made = verdict(rank(0, missing), stopped(1, stack(1, 3)), rank(2, "no rows\n", exit_code=0))
    assert (made.code, made.rank) == ("collective", 2)
    assert "its last line: no rows" in made.message
    own = raised("FileNotFoundError: [Errno 2] No such file or directory: 'parts/part-0.json'")
    assert verdict(rank(0, own), rank(2, exit_code=0)).rank == 0


def test_ranks_that_had_finished_did_not_leave_too_early() -> None:
    gave_up = raised("TimeoutError: timed out", "got = before.recv(64)")
    made = verdict(
        rank(4, steps(4, 3) + gave_up),
        *(rank(number, steps(number, 5), exit_code=0) for number in (0, 1)),
        stopped(3, steps(3, 3) + doing(3, "got = before.recv(64)")),
    )
    assert (made.code, made.rank) == ("collective", 3)


def test_a_rank_that_came_further_than_the_one_that_complains_is_not_what_it_waited_for() -> None:
    own = raised("TimeoutError: the store sent nothing for 5 s", "raise TimeoutError(why)", "fetch")
    made = verdict(rank(0, steps(0, 2) + own), stopped(1, steps(1, 6) + doing(1, "time.sleep(0.2)")))
    assert (made.code, made.rank) == ("exception", 0)


def test_a_service_that_the_script_writes_out_is_no_peer() -> None:
    refused = raised("ConnectionRefusedError: [Errno 111] Connection refused", 'urlopen("http://10.0.0.9:80/labels")')
    made = verdict(rank(1, refused), stopped(0, stack(0, 4)))
    assert (made.code, made.rank) == ("exception", 1)


def test_words_of_waiting_in_an_error_of_the_program_do_not_make_a_victim() -> None:
    made = verdict(rank(1, raised("ValueError: model 'vit' is not registered")), stopped(0, stack(0, 4)))
    assert (made.code, made.rank) == ("exception", 1)


def test_what_a_rank_raised_before_it_lost_the_others_while_leaving() -> None:
    handling = "\nDuring handling of the above exception, another exception occurred:\n\n"
    made = verdict(rank(0, TIMED_OUT), rank(1, raised("KeyError: 'c'") + handling + TIMED_OUT))
    assert (made.code, made.rank) == ("exception", 1)
    assert "KeyError: 'c'" in made.message


def test_the_only_value_that_differs_is_the_wrong_one() -> None:
    ranks = [rank(n, raised(f"ValueError: sizes differ: this one has {128 if n == 1 else 64}")) for n in range(3)]
    assert verdict(*ranks).rank == 1


def test_where_no_stack_tells_the_rank_that_is_behind_is_named() -> None:
    ranks = [stopped(number, steps(number, 2 if number == 2 else 3)) for number in range(4)]
    made = verdict(*ranks, reason="timeout", timeout_s=9.0)
    assert (made.code, made.rank, made.confidence) == ("timeout", 2, "likely")


def test_a_program_that_mpirun_does_not_find_is_that_of_its_ranks() -> None:
    said = "mpirun was unable to find the specified executable file\n-----\nExecutable: ./writer\n-----\n"
    many = RankEvidence(0, "node-0", exit_code=183, tail=said, command="mpirun -n 2 python a.py : -n 1 ./writer")
    assert verdict(many).rank == 2
    assert verdict(replace(many, command="mpirun ./writer")).rank is None
