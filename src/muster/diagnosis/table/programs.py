"""Rules about programs: their environment, their data, their loaders, and well-known faults of scripts."""

from __future__ import annotations

from muster.diagnosis.table.checkpoints import CHECKPOINTS
from muster.diagnosis.table.rule import rule

LOADERS = (
    rule(
        "loader worker killed",
        "host_oom",
        r"DataLoader worker \(pid\D{0,6}\d+\) is killed by signal: Killed",
        "python-loader-worker-killed",
        "The kernel ends data-loader workers where memory runs out: use fewer `num_workers`, or a "
        "node with more memory.",
    ),
    rule(
        "worker of a pool died",
        "exception",
        r"A process in the process pool was terminated abruptly",
        "python-executor-child-killed q-spawn-broken-process-pool",
        "A worker process of the pool was killed, for want of memory perhaps, or crashed in native code: call what it "
        "does once without the pool, under `python -X faulthandler`.",
    ),
    rule(
        "loader worker crashed",
        "signal",
        r"DataLoader worker \(pid\D{0,6}\d+\) is killed by signal: (?P<signal>[^.]+)",
        "python-loader-worker-segv",
        "A data-loader worker crashed in native code: `num_workers=0` shows where, with `python -X faulthandler`.",
    ),
    rule(
        "segmentation fault in a worker",
        "signal",
        r"ERROR: Unexpected (?P<what>segmentation fault|bus error|floating-point exception)",
        "python-loader-worker-segv",
        "A data-loader worker crashed in native code: `num_workers=0` shows where, with `python -X faulthandler`.",
    ),
    rule(
        "child crashed",
        "signal",
        r"ProcessExitedException: process \d+ terminated with signal SIG(?:SEGV|BUS|FPE|ILL|ABRT)",
        "spawn-segv",
        "The child process crashed in native code: run it under `python -X faulthandler`, or look for a core file.",
    ),
    rule(
        "child killed",
        "signal",
        r"ProcessExitedException: process \d+ terminated with signal SIGKILL",
        "",
        "Something ended the child process from outside; where memory ran out, use fewer or smaller processes.",
    ),
    rule(
        "no main guard",
        "exception",
        r"context has already been set|An attempt has been made to start a new process before",
        "python-loader-no-main-guard",
        'Put what starts the work under `if __name__ == "__main__":`: started processes import the script again.',
    ),
    rule(
        "cannot be pickled",
        "exception",
        r"Can't (?:pickle|get) (?:local object |attribute )?(?P<what>\S{1,80})",
        "python-lambda-pickled",
        "What is handed to another process has to be picklable: define {what} at module level "
        "instead of as a lambda or inside a function.",
        "raised",
    ),
    rule(
        "CUDA after fork",
        "exception",
        r"Cannot re-initialize CUDA in forked subprocess",
        "",
        'Start workers with `multiprocessing_context="spawn"`, and do not touch CUDA before.',
    ),
    rule(
        "loader timed out",
        "exception",
        r"DataLoader timed out after \d+ seconds",
        "python-loader-timeout",
        "A worker of the data loader took longer than `timeout=`: `num_workers=0` shows on which sample.",
    ),
    rule(
        "loader worker left",
        "exception",
        r"DataLoader worker \(pid\D{0,6}[\d, ]+\) exited unexpectedly",
        "python-loader-exit",
        "A data-loader worker ended without a word: `num_workers=0` shows where.",
        "raised",
    ),
    rule(
        "too many open files",
        "exception",
        r"Too many open files|received 0 items of ancdata",
        "python-too-many-files",
        "Raise the limit of open files (`ulimit -n`) in the command, close files, or "
        "`torch.multiprocessing.set_sharing_strategy('file_system')`.",
    ),
)

LIMITS = (
    rule(
        "too many processes",
        "exception",
        r"can't start new thread|fork: .{0,40}Resource temporarily unavailable|pthread_create failed|RLIMIT_NPROC",
        "",
        "A limit of processes and threads is reached (`ulimit -u`, or that of a container): start fewer workers, or "
        "fewer threads (OMP_NUM_THREADS), or raise it.",
    ),
)

ENVIRONMENT = (
    rule(
        "requirements in conflict",
        "environment",
        r"have conflicting dependencies|unsatisfiable\.?$|LibMambaUnsatisfiableError|UnsatisfiableError",
        "",
        "The packages that are asked for exclude each other: loosen one of the versions that the message names.",
        "said",
    ),
    rule(
        "package does not build",
        "environment",
        r"Failed building wheel for (?P<package>\S+)|Failed to build (?:installable wheels.{0,80}\()?(?P<other>[\w.-]+)"
        r"|Could not build wheels for (?P<more>[\w.-]+)",
        "",
        "There is no ready build of `{package}{other}{more}` for this Python: choose a version that has one, or give "
        "it its compiler and headers (CUDA's, for one that uses GPUs).",
        "said",
    ),
    rule(
        "circular import",
        "exception",
        r"partially initialized module '(?P<module>[\w.]+)'.{0,60}circular import",
        "python-circular",
        "`{module}` and a module that it imports import each other: move what both need into a "
        "third, or import inside the function.",
        "raised",
    ),
    rule(
        "module missing",
        "environment",
        r"No module named '?(?P<module>[\w.]+)'?",
        "python-module gang-module-on-all torchrun-module mpirun-module",
    ),
    rule(
        "numpy's version",
        "environment",
        r"numpy\.core\.multiarray failed to import|numpy\.dtype size changed|_ARRAY_API not found"
        r"|compiled using NumPy 1",
        "python-numpy-abi",
        'A package was built for another NumPy: `pip: ["numpy<2"]` in `environment`, or a newer build of that package.',
    ),
    rule(
        "own name missing",
        "exception",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)' "
        r"\((?!\S{0,300}(?:site-packages|dist-packages|/lib(?:64)?/python))\S",
        "odd-own-name-missing",
        "`{module}` of the job's own code has no `{name}`: check the spelling, or the commit that is submitted.",
        "raised",
    ),
    rule(
        "name missing",
        "environment",
        r"^ImportError: cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'",
        "python-name-missing gang-tcp-refused",
        "`{module}` has no `{name}`: check the spelling, or the version of the package that has it.",
    ),
    rule(
        "library missing",
        "environment",
        r"(?<![\w.+-])(?P<library>[\w.+-]+\.so[\w.]*): cannot open shared object file|Could not "
        r"load library (?P<other>\S+)",
        "python-library-missing cpp-library-missing",
        "`{library}{other}` is not on the node: use an image or environment that has it, or name "
        "its folder in LD_LIBRARY_PATH.",
    ),
    rule(
        "system library too old",
        "environment",
        r"version `(?P<version>GLIBC\w*_[\d.]+)' not found",
        "",
        "The package was built for a newer system ({version}): use an older build of it, or an "
        "image with a newer system.",
    ),
    rule(
        "binary does not fit",
        "environment",
        r"undefined symbol: (?P<symbol>\S+)",
        "",
        "An extension was built against another version of a library: install builds that belong "
        "together (torch and its extensions).",
    ),
    rule(
        "relative import",
        "environment",
        r"attempted relative import with no known parent package",
        "tool-relative-import",
        "Start it as a module of its package (`python -m package.module`), or import without the dot.",
        "raised",
    ),
    rule("import", "environment", r"^ImportError: ", "python-numpy-abi", where="raised"),
    rule(
        "requirements",
        "environment",
        r"No matching distribution found for (?P<package>\S+)|ResolutionImpossible|PackagesNotFoundError"
        r"|No solution found when resolving",
        "n-pip-requirement-of-no-version requirements-no-such-version shell-pip-fails",
        where="said",
    ),
    rule(
        "Java class missing",
        "environment",
        r"(?:Could not find or load main class|ClassNotFoundException:) (?P<what>\S+)",
        "java-no-class",
        "Java finds no class {what}: check its name and the class path (`-cp`).",
    ),
    rule(
        "Perl module missing",
        "environment",
        r"Can't locate \S{1,200} in @INC \(you may need to install the (?P<module>[\w:]+) module",
        "perl-module-missing",
        "Perl finds no {module}: install it (`cpanm {module}`) in the image or environment of the job.",
        "said",
    ),
    rule(
        "Node.js module missing",
        "environment",
        r"Error: Cannot find module '(?P<module>[^']{1,200})'",
        "node-module-missing",
        "Node.js finds no `{module}`: `npm install` it into the code folder, or check its path.",
    ),
    rule(
        "Julia package missing",
        "environment",
        r"Package (?P<module>[\w.]+) not found in current path",
        "",
        'Julia finds no package {module}: `Pkg.add("{module}")` in the project or image of the job.',
        "said",
    ),
    rule(
        "Ruby or Lua module missing",
        "environment",
        r"cannot load such file -- (?P<module>\S+)|: module '(?P<other>[^']{1,80})' not found:?$",
        "",
        "`{module}{other}` is not installed: install it (`gem install`, `luarocks install`) in the image of the job, "
        "or check its path.",
        "said",
    ),
    rule(
        "package of another language missing",
        "environment",
        r"no required module provides package (?P<go>[^;\s]+)|no matching package named `(?P<rust>[^`]{1,80})`"
        r"|'(?P<npm>[^']{1,80})' is not in this registry",
        "",
        "`{go}{rust}{npm}` is not found: check its spelling, and add it to the project.",
        "said",
    ),
    rule(
        "conda environment missing",
        "environment",
        r"(?:EnvironmentNameNotFound|EnvironmentLocationNotFound): .{0,60}?: ?(?P<name>\S+)",
        "",
        "conda knows no environment `{name}` on this node: check its name (`conda info --envs`), or give the job an "
        "`environment`.",
    ),
    rule(
        "module file missing",
        "environment",
        r"Unable to locate a modulefile for '(?P<name>[^']{1,80})'|following module\(s\) are unknown: ?(?P<other>\S*)",
        "",
        "`module load` finds no {name}{other} on this node: `module avail` lists what it has.",
        "said",
    ),
    rule(
        "container image",
        "environment",
        r"pull access denied for (?P<image>[^,\s]+)|manifest for (?P<other>\S+) not found|manifest unknown"
        r"|could not select device driver",
        "",
        "The container does not start: check the name of the image {image}{other}, the login to its registry, and that "
        "the node has NVIDIA's container toolkit where it asks for GPUs.",
        "said",
    ),
    rule(
        "Java too old",
        "environment",
        r"UnsupportedClassVersionError",
        "",
        "It was compiled for a newer Java: use a newer Java on the node, or compile with `--release`.",
    ),
    rule(
        "protobuf's version",
        "environment",
        r"Descriptors cannot (?:not )?be created directly",
        "",
        'The generated code is older than protobuf: `pip: ["protobuf<4"]` in `environment`, or generate it again with '
        "a newer protoc.",
        "raised",
    ),
    rule(
        "compiler missing",
        "environment",
        r"Failed to find C compiler|CUDA_HOME environment variable is not set|nvcc(?:'|\"|:)? (?:was )?not found"
        r"|Ninja is required to load",
        "",
        "Something is compiled while the job runs, and the node lacks what that takes: use an image with a C compiler "
        "(CC), ninja and CUDA's toolkit (CUDA_HOME).",
        "raised",
    ),
    rule(
        "R package missing",
        "environment",
        r"there is no package called .(?P<module>[\w.]+)",
        "",
        "R finds no package {module}: install it in the image or environment of the job.",
    ),
    rule(
        "container engine not running",
        "environment",
        r"Cannot connect to the (?P<engine>Docker|Podman) daemon|Cannot connect to (?P<other>Podman)\b",
        "docker-daemon-absent",
        "The script starts containers itself, and no {engine}{other} daemon runs on the node: let Muster start the job "
        "in an image (`environment: {{image: …}}`), or use a node where one runs.",
    ),
    rule(
        "launcher's program",
        "launcher_missing",
        r"execvp error on file (?P<program>\S+)|execve\(\): (?P<other>\S+): (?:No such file|Permission denied)"
        r"|failed to run command .(?P<more>[^'’]{1,200}).: ",
        "",
        "There is no program `{program}{other}{more}` that can be started: check its spelling and its path, or use an "
        "environment or image that has it.",
        "said",
    ),
    rule(
        "mpirun's program",
        "launcher_missing",
        r"^Executable: (?P<program>\S+)",
        "mpirun-no-program",
        "mpirun finds no program `{program}`: check its spelling, or use an environment that has it.",
        "said",
    ),
    rule(
        "mpirun finds no program",
        "launcher_missing",
        r"could not find an executable|unable to find the specified executable",
        "mpirun-no-program",
        "mpirun does not find the program that it is to start: check its spelling, or use an environment that has it.",
        "said",
    ),
    rule(
        "mpirun's hostfile",
        "bad_input",
        r"unable to open (?:the )?host ?file",
        "border-mpirun-hostfile",
        "Let `--hostfile` name a file that is in the code folder, or leave it out: mpirun then uses only this node.",
        "said",
    ),
    rule(
        "mpirun rejects an option",
        "bad_input",
        r"unrecognized option was included on the \S{1,40} command line"
        r"|^(?:mpirun|mpiexec|prterun): Error: unknown option"
        r"|(?:directive|policy|modifier|qualifier) is not recognized|\bmatch_arg\b.{0,80}unrecognized argument",
        "border-mpirun-option border-mpirun-map-by",
        "mpirun does not accept this option or its value: `mpirun --help` lists what it accepts.",
        "said",
    ),
    rule(
        "mpirun has too few slots",
        "bad_input",
        r"not enough slots available in the system",
        "mpirun-too-many-slots",
        "Ask for fewer processes (`-n`), or give mpirun `--oversubscribe`.",
        "said",
    ),
)

DATA = (
    rule(
        "data",
        "data_unavailable",
        r"Errno (?:5|107|116|121)\b|Stale file handle|Transport endpoint is not connected"
        r"|^(?:FileNotFoundError|PermissionError|NotADirectoryError): .{0,500}/attempts/[^/]{1,200}/inputs/"
        r"|azure\.core\.exceptions\.\w+|NoSuchBucket|NoSuchKey|AuthenticationFailed"
        r"|NOT_FOUND: .{0,300}; No such file",
        "single-missing-data",
    ),
    rule(
        "model hub switched off",
        "exception",
        r"outgoing traffic has been disabled",
        "n-transformers-offline-model",
        "The hub is switched off (HF_HUB_OFFLINE, `local_files_only`), and the model is not in the cache: download it "
        "beforehand into HF_HOME, or switch the hub on.",
        "raised",
    ),
    rule(
        "model hub",
        "data_unavailable",
        r"(?:couldn't connect to|Max retries "
        r"exceeded.{0,80}host=)\W*(?:https://)?(?P<host>huggingface\.co)|LocalEntryNotFoundError",
        "python-huggingface-offline",
        "The node does not reach huggingface.co: download the model beforehand and set HF_HOME and HF_HUB_OFFLINE=1.",
    ),
)

SCRIPT = (
    rule(
        "unknown setting",
        "bad_input",
        r"Key '(?P<key>[^']{1,80})' is not in struct|Could not override '(?P<other>[^']{1,80})'",
        "hydra-unknown-key",
        "The configuration has no `{key}{other}`: check the spelling, or add it with `+{key}{other}=…`.",
        "said",
    ),
    rule(
        "override not understood",
        "bad_input",
        r"(?:no viable alternative at|mismatched|extraneous) input '(?P<text>[^']{1,80})'",
        "border-hydra-override-not-closed",
        "`{text}` in the command is not in the form `key=value` that Hydra reads: quote brackets and commas.",
        "said",
    ),
    rule(
        "no key for W&B",
        "exception",
        r"No API key configured|api_key not configured \(no-tty\)",
        "wandb-no-key",
        "Set WANDB_API_KEY as a secret of the job (`secrets: {{WANDB_API_KEY: NAME}}`), or WANDB_MODE=offline, which "
        "keeps what is logged with the run.",
    ),
    rule(
        "unused parameters",
        "exception",
        r"Expected to have finished reduction in the prior iteration",
        "gang-ddp-unused",
        "Some parameters got no gradient: `find_unused_parameters=True` in "
        "DistributedDataParallel, or let every parameter take part in the loss.",
    ),
    rule(
        "models differ",
        "exception",
        r"DDP expects same model across all ranks|params?(?:\[\d+\])? .{0,60}in this process",
        "gang-ddp-differs",
        "The ranks built models of different shapes: nothing in the model may depend on the rank.",
    ),
    rule(
        "group not made",
        "exception",
        r"Default process group has not been initialized",
        "gang-not-initialised",
        "Call `torch.distributed.init_process_group()` first, in every process.",
    ),
    rule(
        "weights only",
        "exception",
        r"Weights only load failed",
        "python-weights-only",
        "The file holds more than tensors: `torch.load(…, weights_only=False)` if you trust it, "
        "or `torch.serialization.add_safe_globals`.",
    ),
    *CHECKPOINTS,
    rule(
        "shapes",
        "exception",
        r"mat1 and mat2 shapes cannot be multiplied \((?P<shapes>[\dx a-z]+)\)|size mismatch|The size of tensor a",
        "python-shapes",
    ),
    rule(
        "index in embedding",
        "exception",
        r"index out of range in self",
        "python-embedding-range",
        "An index is at least as large as `num_embeddings`: the vocabulary and the embedding have different sizes.",
    ),
    rule(
        "removed from numpy",
        "exception",
        r"module 'numpy' has no attribute '(?P<name>\w+)'",
        "python-attribute-version",
        '`np.{name}` is gone from this NumPy: use the plain type, or `pip: ["numpy<1.24"]` in `environment`.',
    ),
    rule(
        "diverged",
        "exception",
        r"(?i)\b(?:loss|gradient|grad)\b.{0,40}\b(?:nan|inf)\b",
        "python-own-exception gang-raises gang-error-flag-traceback",
        where="raised",
    ),
)
