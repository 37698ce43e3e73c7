"""What compilers, package managers, shells and programs in other languages print at their end, in our own examples."""

from __future__ import annotations

import pytest

from muster.diagnosis.verdict import judge
from muster.wire.verdicts import Evidence, NodeEvidence, RankEvidence, Verdict

RAISED = 'Traceback (most recent call last):\n  File "/job/work/train.py", line 31, in main\n    step()\n'


def judged(text: str, code: int, command: str = "bash run.sh") -> Verdict:
    ended = RankEvidence(0, "node-0", code, tail=text, command=command)
    return judge(Evidence((ended,), [NodeEvidence(0, "node-0")], "rank_failed"))


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("RuntimeError: MPS backend out of memory (MPS allocated: 17.9 GB)", "gpu_oom", "MPS backend"),
        ("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,000 bytes.", "gpu_oom", "Out of memory"),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "environment",
            "no kernel",
        ),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found 11040). See http://a.example/",
            "environment",
            "too old",
        ),
        ("RuntimeError: CUDA error: invalid device ordinal", "exception", "invalid device ordinal"),
        ("RuntimeError: can't start new thread", "exception", "new thread"),
        ("sqlite3.OperationalError: database or disk is full", "disk_full", "disk is full"),
        ("TypeError: Descriptors cannot be created directly.", "environment", "Descriptors"),
        ("OSError: CUDA_HOME environment variable is not set. Please set it.", "environment", "CUDA_HOME"),
        (
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:9, unhandled cuda error\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
            "gpu_oom",
            "'out of memory'",
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:9, unhandled system error\n"
            "ncclSystemError: System call failed.\nLast error:\nError while creating shared memory segment /dev/shm/n",
            "shm_too_small",
            "/dev/shm/n",
        ),
        (
            "tensorflow.errors_impl.ResourceExhaustedError: Graph execution error:\n\n"
            "OOM when allocating tensor with shape[64,512] on /job:localhost/device:GPU:0",
            "gpu_oom",
            "shape[64,512]",
        ),
        ("tensorflow.errors_impl.DataLossError: corrupted record at 1395", "exception", "corrupted record at 1395"),
    ],
)
def test_an_exceptions_words_decide_wherever_in_its_message_they_stand(line: str, code: str, says: str) -> None:
    made = judged(f"{RAISED}{line}\n", 1, "python train.py")
    assert made.code == code
    assert says in made.message


def test_an_address_in_a_message_that_speaks_of_no_connection_is_not_called_unreachable() -> None:
    made = judged(f"{RAISED}ValueError: see https://docs.example.org/errors for the table\n", 1, "python train.py")
    assert "reach" not in made.next


@pytest.mark.parametrize(
    ("text", "exit_code", "code", "says", "next_names"),
    [
        ("ERROR: LoadError: ArgumentError: Package CSV not found in current path.\n", 1, "environment", "CSV", "CSV"),
        (
            "a.rb:1:in `require': cannot load such file -- nokogiri (LoadError)\n",
            1,
            "environment",
            "nokogiri",
            "nokogiri",
        ),
        ("lua: a.lua:1: module 'cjson' not found:\n\tno field package.preload\n", 1, "environment", "cjson", "cjson"),
        (
            "main.go:5:2: no required module provides package a.example/x; to add it:\n",
            1,
            "environment",
            "a.example/x",
            "a.example/x",
        ),
        (
            "error: no matching package named `serd` found\nrequired by package `a v0.1.0`\n",
            101,
            "environment",
            "serd",
            "serd",
        ),
        (
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because a==9 was not found, requirements are "
            "unsatisfiable.\n",
            1,
            "environment",
            "a==9",
            "versions",
        ),
        (
            "  ERROR: Failed building wheel for flash-attn\nERROR: Failed to build flash-attn\n",
            1,
            "environment",
            "flash-attn",
            "flash-attn",
        ),
        ("EnvironmentNameNotFound: Could not find conda environment: exp\n", 1, "environment", "exp", "exp"),
        (
            "Error: LinkageError occurred\n\tjava.lang.UnsupportedClassVersionError: Main\n",
            1,
            "environment",
            "UnsupportedClassVersionError",
            "newer Java",
        ),
        ("Error: cannot allocate vector of size 37.3 Gb\nExecution halted\n", 1, "host_oom", "37.3 Gb", "memory"),
        ("write /var/lib/x: no space left on device\n", 1, "disk_full", "no space left", "space"),
        (
            "timeout: failed to run command ‘torchrum’: No such file or directory\n",
            127,
            "launcher_missing",
            "torchrum",
            "torchrum",
        ),
        ("zsh:1: command not found: foo\n", 127, "launcher_missing", "foo", "`foo`"),
        ("slurmstepd: error: execve(): ./solvr: No such file or directory\n", 2, "launcher_missing", "solvr", "solvr"),
        (
            "error: unexpected argument '--epoch' found\n\n  tip: a similar argument exists: '--epochs'\n\nUsage: t\n",
            2,
            "bad_input",
            "--epoch",
            "`--epochs`",
        ),
        ("flag provided but not defined: -batchsize\nUsage of ./serve:\n", 2, "bad_input", "-batchsize", "-batchsize"),
        ("Usage: t.py [OPTIONS] CONFIG\n\nError: Missing argument 'CONFIG'.\n", 2, "bad_input", "CONFIG", "CONFIG"),
        (
            "git@a.example: Permission denied (publickey).\nfatal: Could not read from remote repository.\n",
            128,
            "exit_code",
            "publickey",
            "key",
        ),
        ("curl: (22) The requested URL returned error: 404\n", 22, "exit_code", "404", "404"),
        ("make: *** No rule to make target 'trian'.  Stop.\n", 2, "exit_code", "trian", "`trian`"),
        (
            "/usr/bin/ld: cannot find -lcudart: No such file\ncollect2: error: ld returned 1 exit status\n",
            1,
            "exit_code",
            "-lcudart",
            "cudart",
        ),
        ('k.cu(12): error: identifier "foo" is undefined\n', 1, "exit_code", "identifier", "k.cu line 12"),
        ("[guard] REGISTRY_TOKEN is not set\n", 78, "exit_code", "REGISTRY_TOKEN", "REGISTRY_TOKEN"),
        (
            "Error: reading the configuration\n\nCaused by:\n    missing field `lr` at line 4\n",
            1,
            "exit_code",
            "missing field `lr`",
            "",
        ),
        (
            "panic: runtime error: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\n"
            "\t/job/work/main.go:7 +0x1d\nexit status 2\n",
            2,
            "exception",
            "index out of range [5]",
            "main.go line 7",
        ),
        (
            "Unhandled exception. System.NullReferenceException: Object reference not set.\n"
            "   at Program.Main(String[] args) in /job/work/Program.cs:line 5\n",
            134,
            "exception",
            "NullReference",
            "Program.cs line 5",
        ),
        (
            'Exception in thread "main" kotlin.KotlinNullPointerException\n\tat MainKt.main(Main.kt:4)\n',
            1,
            "exception",
            "KotlinNullPointer",
            "Main.kt line 4",
        ),
        (
            'Exception in thread "main" org.apache.spark.sql.AnalysisException: no column x\n'
            "\tat org.apache.spark.sql.A.x(A.scala:1)\n\tat app.Main$.main(Main.scala:12)\n",
            1,
            "exception",
            "no column x",
            "Main.scala line 12",
        ),
        (
            '[UnhandledPromiseRejection: It was rejected with the reason "Error: shard 3 is empty".] {\n',
            1,
            "exception",
            "Error: shard 3 is empty",
            "",
        ),
    ],
)
def test_what_programs_say_at_their_end(text: str, exit_code: int, code: str, says: str, next_names: str) -> None:
    made = judged(text, exit_code)
    assert made.code == code
    assert says in made.message
    assert next_names in made.next


def test_a_warning_that_a_library_is_missing_is_not_why_a_program_left() -> None:
    made = judged("WARNING: libfast.so: cannot open shared object file\n" + "work\n" * 9 + "model rejected\n", 1)
    assert made.code == "exit_code"
