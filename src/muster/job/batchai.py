"""Jobs of Batch AI, in the format of its command line, translated. Pure but for checks whether paths exist."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.errors import JobError
from muster.job.mpirun import MpiLine, read_mpirun
from muster.wire.codec import Json

SETTINGS = (
    "pyTorchSettings",
    "tensorFlowSettings",
    "horovodSettings",
    "customMpiSettings",
    "customToolkitSettings",
    "chainerSettings",
    "cntkSettings",
    "caffeSettings",
    "caffe2Settings",
)
_MPI = ("horovodSettings", "customMpiSettings", "chainerSettings", "cntkSettings")
# The start of the commands that read a toolkit's own file, up to the file's name.
_CONFIGURED = {"cntkSettings": "cntk configFile=", "caffeSettings": "caffe train --solver="}
_JOB_KEYS = {
    *SETTINGS,
    *("nodeCount", "cluster", "experimentName", "name", "schedulingPriority", "priority", "constraints"),
    *("inputDirectories", "outputDirectories", "mountVolumes", "stdOutErrPathPrefix", "environmentVariables"),
    *("secrets", "containerSettings", "jobPreparation", "toolType"),
    # Added by its service to a job that it shows.
    *("creationTime", "executionInfo", "executionState", "executionStateTransitionTime"),
    *("jobOutputDirectoryPathSegment", "provisioningState", "provisioningStateTransitionTime"),
}
_SETTINGS_KEYS = {
    *("pythonScriptFilePath", "pythonInterpreterPath", "commandLineArgs", "commandLine", "processCount"),
    *("communicationBackend", "masterCommandLineArgs", "workerCommandLineArgs", "parameterServerCommandLineArgs"),
    *("workerCount", "parameterServerCount", "languageType", "configFilePath"),
}
_CLUSTER_KEYS = ("scaleSettings", "virtualMachineConfiguration")
_FILE_SERVER_KEYS = ("dataDisks", "sshConfiguration")
_ROOT = re.compile(r"\$\{?AZ_BATCHAI_(?:JOB_)?MOUNT_ROOT\}?")
_MOUNTED = re.compile(_ROOT.pattern + r"/([A-Za-z0-9_.-]+)")
_NOISE = re.compile(r"\s*(echo|cat|ifconfig|ibv_devinfo|nvidia-smi|env|printenv|hostname|source\s+\S*mpivars\S*)\b")
_SCRIPT = re.compile(r"""(?<![^\s"'])([\w.-]+(?:/[\w.-]+)*\.(?:py|sh))(?![^\s"'])""")
_PRIORITIES = {"low": "low", "normal": "medium", "high": "high"}
_WALL_CLOCK = re.compile(r"(?:(\d+)\.)?(\d+):(\d+):(\d+)")
_ISO_PERIOD = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
# TF_CONFIG describes a process's role; Batch AI used variables.
_TASKS = """\
eval "$(python - <<'END'
import json, os
config = json.loads(os.environ["TF_CONFIG"])
task, cluster = config["task"], config["cluster"]
print("role={} AZ_BATCHAI_TASK_INDEX={}".format(task["type"], task["index"]))
for name in ("ps", "worker"):
    print("AZ_BATCHAI_{}_HOSTS={}".format(name.upper(), ",".join(cluster.get(name, []))))
END
)"
export AZ_BATCHAI_TASK_INDEX AZ_BATCHAI_PS_HOSTS AZ_BATCHAI_WORKER_HOSTS"""


@dataclass
class Translated:
    """A job of Batch AI in Muster's vocabulary."""

    data: dict[str, Json]
    notices: list[str] = field(default_factory=list)


def is_batch_ai(data: Mapping[str, Json]) -> bool:
    """Whether a file is from Batch AI."""
    inner = _properties(data)
    return any(key in inner for key in (*SETTINGS, *_CLUSTER_KEYS, *_FILE_SERVER_KEYS)) and "command" not in data


def translate(data: Mapping[str, Json], base_dir: Path) -> Translated:
    """The job of a file in `base_dir`; raises JobError if it is not a job."""
    properties = _properties(data)
    if any(key in properties for key in _CLUSTER_KEYS):
        hint = "Make the cluster with `muster cluster create NAME --file FILE`, then run the job."
        raise JobError("this is a cluster of Batch AI, not a job", hint)
    if any(key in properties for key in _FILE_SERVER_KEYS) and not any(key in properties for key in SETTINGS):
        hint = "Make the file server with `muster fileserver create NAME --file FILE`, then run the job."
        raise JobError("this is a file server of Batch AI, not a job", hint)
    given = [key for key in SETTINGS if properties.get(key) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "no settings"
        raise JobError(f"the job has {said}; exactly one is needed", f"Give one of {', '.join(SETTINGS)}.")
    return _Translation(properties, given[0], base_dir).whole()


class _Translation:
    """One job, part by part."""

    def __init__(self, properties: Mapping[str, Json], kind: str, base_dir: Path) -> None:
        self._properties = properties
        self._kind = kind
        self._settings = _mapping(properties, kind)
        self._base_dir = base_dir
        self._notices: list[str] = []
        self._inputs: dict[str, Json] = {}
        self._outputs: dict[str, Json] = {}
        self._exports: dict[str, str] = {}
        self._links: list[str] = []

    def whole(self) -> Translated:
        nodes = self._properties.get("nodeCount", 1)
        if not isinstance(nodes, int) or isinstance(nodes, bool) or nodes < 1:
            raise JobError(f"nodeCount: {nodes!r} is not a number of nodes", "Give a whole number of at least 1.")
        self._tell_unknown("", self._properties, _JOB_KEYS)
        self._tell_unknown(f"{self._kind}.", self._settings, _SETTINGS_KEYS)
        self._directories()
        command, distribution, held = self._command(nodes)
        self._mounts(command)
        data: dict[str, Json] = {
            **({"code": "."} if self._is_beside(command) else {}),
            "command": "\n".join([*self._preamble(), command]),
            "resources": {"instance_count": held, **self._memory()},
            "inputs": self._inputs,
            "outputs": self._outputs,
            "environment_variables": self._variables(),
        }
        optional: dict[str, Json] = {
            "distribution": distribution,
            "environment": self._environment(),
            "limits": self._limits(),
            "queue_settings": self._queue(),
            "compute": self._compute(),
            "experiment_name": _text(self._properties, "experimentName") or None,
        }
        data |= {key: value for key, value in optional.items() if value is not None}
        return Translated(data, self._notices)

    def _tell_unknown(self, below: str, given: Mapping[str, Json], known: set[str]) -> None:
        """Add a notice for each unknown key: a misspelt one would otherwise be ignored silently."""
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                also = f"; did you mean {near[0]!r}?" if near else ""
                self._notices.append(f"{below}{key}: left out, Muster knows no such key of Batch AI's{also}")

    # Data

    def _directories(self) -> None:
        for item in _items(self._properties, "inputDirectories"):
            name = _identifier(_text(item, "id"))
            self._inputs[name] = {"type": "uri_folder", "path": self._place(_text(item, "path"))}
            self._exports[f"AZ_BATCHAI_INPUT_{_text(item, 'id')}"] = f'"$MUSTER_INPUT_{name}"'
        for item in _items(self._properties, "outputDirectories"):
            name = _identifier(_text(item, "id"))
            self._outputs[name] = {"type": "uri_folder"}
            self._exports[f"AZ_BATCHAI_OUTPUT_{_text(item, 'id')}"] = f'"$MUSTER_OUTPUT_{name}"'
        if self._outputs:
            self._notices.append(
                f"outputDirectories ({', '.join(self._outputs)}) are kept with the run: `muster download RUN outputs`"
            )

    def _place(self, path: str) -> str:
        """A path below a mount: the folder of that name next to the file, or in the datastore of that name."""
        inner = _ROOT.sub("", path).lstrip("/") if _ROOT.match(path) else ""
        if not inner:
            return path
        if (self._base_dir / inner).is_dir():
            return inner
        mount, _, rest = inner.partition("/")
        return f"azureml://datastores/{mount}/paths/{rest}"

    def _mounts(self, command: str) -> None:
        """Link the mounts that the command itself names; those of input directories need no link."""
        preparation = _text(_mapping(self._properties, "jobPreparation"), "commandLine")
        for mount in dict.fromkeys(_MOUNTED.findall(f"{command}\n{preparation}")):
            name = f"mount_{_identifier(mount)}"
            path = self._place(f"$AZ_BATCHAI_MOUNT_ROOT/{mount}")
            self._inputs[name] = {"type": "uri_folder", "path": path}
            self._links.append(f'ln -sfn "$MUSTER_INPUT_{name}" "$AZ_BATCHAI_MOUNT_ROOT"/{shlex.quote(mount)}')

    def _is_beside(self, command: str) -> bool:
        """Whether the command names a script next to the file (Batch AI had scripts only in mounts)."""
        return any((self._base_dir / script).is_file() for script in _SCRIPT.findall(command))

    # The command

    def _preamble(self) -> Iterator[str]:
        exports = {
            "AZ_BATCHAI_MOUNT_ROOT": '"$PWD/.batchai/mounts"',
            "AZ_BATCHAI_JOB_MOUNT_ROOT": '"$PWD/.batchai/mounts"',
            "AZ_BATCHAI_JOB_TEMP": '"${TMPDIR:-/tmp}"',
            "AZ_BATCHAI_JOB_WORK_DIR": '"$PWD"',
            "AZ_BATCHAI_STDOUTERR_DIR": '"$PWD/logs"',
            "AZ_BATCHAI_MPI_HOST_FILE": '"$PWD/.batchai/hostfile"',
            **self._exports,
        }
        yield 'mkdir -p "$PWD/.batchai/mounts" "$PWD/logs"'
        yield "export " + " ".join(f"{name}={value}" for name, value in exports.items())
        # The cluster's own mounts appear there as well.
        yield '[ -z "$MUSTER_MOUNTS" ] || ln -sfn "$MUSTER_MOUNTS"/* "$AZ_BATCHAI_MOUNT_ROOT"/'
        yield from self._links
        yield "hosts=${AZ_BATCH_HOST_LIST:-localhost}"
        yield 'printf "%s\\n" ${hosts//,/ } > "$AZ_BATCHAI_MPI_HOST_FILE.$$"'
        yield 'mv "$AZ_BATCHAI_MPI_HOST_FILE.$$" "$AZ_BATCHAI_MPI_HOST_FILE"'
        if preparation := _text(_mapping(self._properties, "jobPreparation"), "commandLine"):
            done = '"$PWD/.batchai/prepared"'
            once = f"flock 9; [ -e {done} ] || {{ bash -c {shlex.quote(preparation)} && touch {done}; }}"
            # Once on each node, before any of its ranks continues.
            yield f'( {once} ) 9> "$PWD/.batchai/lock" || exit'

    def _command(self, nodes: int) -> tuple[str, Json, int]:
        """The command of a process, the distribution, and the number of nodes to hold."""
        if self._kind == "tensorFlowSettings":
            return self._tensorflow(nodes)
        if self._kind == "pyTorchSettings":
            return self._pytorch(nodes)
        if self._kind in _MPI:
            return self._line(), {"type": "mpi", "process_count_per_instance": self._per_node(nodes)}, nodes
        line = read_mpirun(self._line())
        if line is not None:
            return self._own_mpirun(line, nodes)
        if nodes > 1:
            self._notices.append(f"nodeCount {nodes}: the command runs once, on one node, and only that node is held")
        return self._line(), None, 1

    def _line(self) -> str:
        if line := _text(self._settings, "commandLine"):
            return line
        arguments = _text(self._settings, "commandLineArgs")
        if script := _text(self._settings, "pythonScriptFilePath"):
            return f"{self._python()} {_quoted(script)} {arguments}".rstrip()
        configuration = _text(self._settings, "configFilePath")
        if configuration and self._kind in _CONFIGURED:
            return f"{_CONFIGURED[self._kind]}{_quoted(configuration)} {arguments}".rstrip()
        raise JobError(f"{self._kind} has neither commandLine nor pythonScriptFilePath", "Add one of them.")

    def _python(self) -> str:
        if path := _text(self._settings, "pythonInterpreterPath"):
            self._notices.append(f"pythonInterpreterPath {path}: the job's own Python is used")
        return "python"

    def _pytorch(self, nodes: int) -> tuple[str, Json, int]:
        backend = _text(self._settings, "communicationBackend").lower()
        if backend == "mpi":
            return self._line(), {"type": "mpi", "process_count_per_instance": self._per_node(nodes)}, nodes
        self._exports["AZ_BATCHAI_PYTORCH_INIT_METHOD"] = '"tcp://$MASTER_ADDR:$MASTER_PORT"'
        self._exports["AZ_BATCHAI_TASK_INDEX"] = '"$RANK"'
        distribution: dict[str, Json] = {"type": "pytorch", "process_count_per_instance": self._per_node(nodes)}
        if backend:
            # `tcp` was PyTorch's backend before gloo.
            distribution["communication_backend"] = "gloo" if backend == "tcp" else backend
        return self._line(), distribution, nodes

    def _tensorflow(self, nodes: int) -> tuple[str, Json, int]:
        workers, servers = self._count("workerCount") or nodes, self._count("parameterServerCount") or 0
        script = _text(self._settings, "pythonScriptFilePath")
        if not script:
            raise JobError("tensorFlowSettings has no pythonScriptFilePath", "Add it.")
        start = f"{self._python()} {_quoted(script)}"
        master = _text(self._settings, "masterCommandLineArgs")
        worker = _text(self._settings, "workerCommandLineArgs") or master
        server = _text(self._settings, "parameterServerCommandLineArgs") or worker
        command = "\n".join(
            [
                _TASKS,
                'case "$role-$AZ_BATCHAI_TASK_INDEX" in',
                f"ps-*) {start} {server} ;;",
                f"worker-0) {start} {master} ;;",
                f"*) {start} {worker} ;;",
                "esac",
            ]
        )
        return command, {"type": "tensorflow", "worker_count": workers, "parameter_server_count": servers}, workers

    def _own_mpirun(self, line: MpiLine, nodes: int) -> tuple[str, Json, int]:
        total = line.processes or (line.per_node or 1) * nodes
        per_node = line.per_node or -(-total // nodes)
        if per_node * nodes != total:
            self._notices.append(f"mpirun -np {total} on {nodes} nodes: {per_node} processes on each are started")
        self._notices.append(
            "Muster starts the ranks with its own mpirun"
            + (f"; left out of the line: {', '.join(line.left_out)}" if line.left_out else "")
        )
        kept = [part.strip() for part in re.split(r"[;\n]|&&", line.before) if part.strip()]
        before = [part for part in kept if not _NOISE.match(part)]
        exports = [f"export {name}={value}" for name, value in line.variables.items()]
        distribution: dict[str, Json] = {"type": "mpi", "process_count_per_instance": per_node}
        return "\n".join([*before, *exports, line.program]), distribution, nodes

    def _per_node(self, nodes: int) -> int:
        total = self._count("processCount") or nodes
        if total % nodes:
            self._notices.append(f"processCount {total} on {nodes} nodes: {-(-total // nodes)} on each are started")
        return -(-total // nodes)

    def _count(self, key: str) -> int | None:
        value = self._settings.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise JobError(f"{self._kind}.{key}: {value!r} is not a count", "Give a whole number.")
        return value

    # The rest

    def _variables(self) -> dict[str, Json]:
        plain = {_text(item, "name"): item.get("value") for item in _items(self._properties, "environmentVariables")}
        secrets = [_text(item, "name") for item in _items(self._properties, "secrets")]
        if secrets:
            self._notices.append(f"secrets: keep each with `muster secret set NAME` ({', '.join(secrets)})")
        return {**plain, **{name: f"${{{{secrets.{name}}}}}" for name in secrets}}

    def _environment(self) -> Json:
        registry = _mapping(_mapping(self._properties, "containerSettings"), "imageSourceRegistry")
        image, server = _text(registry, "image"), _text(registry, "serverUrl")
        if not image:
            return None
        host = re.sub(r"^https?://", "", server).rstrip("/")
        return {"image": f"{host}/{image}" if host and not image.startswith(f"{host}/") else image}

    def _memory(self) -> dict[str, Json]:
        size = _text(_mapping(self._properties, "containerSettings"), "shmSize")
        return {"shm_size": size.lower()} if size else {}

    def _limits(self) -> Json:
        text = _text(_mapping(self._properties, "constraints"), "maxWallClockTime")
        if not text:
            return None
        match = _WALL_CLOCK.fullmatch(text) or _ISO_PERIOD.fullmatch(text)
        if match is None:
            raise JobError(f"constraints.maxWallClockTime: {text!r} is not a time", "Write it as 1.12:00:00 or PT36H.")
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return {"timeout": ((days * 24 + hours) * 60 + minutes) * 60 + seconds}

    def _queue(self) -> Json:
        priority = _PRIORITIES.get(_text(self._properties, "schedulingPriority").lower())
        return {"priority": priority} if priority else None

    def _compute(self) -> Json:
        found = _text(_mapping(self._properties, "cluster"), "id").rstrip("/").rsplit("/", 1)[-1]
        return found or None


def _properties(data: Mapping[str, Json]) -> Mapping[str, Json]:
    inner = data.get("properties")
    return inner if isinstance(inner, Mapping) and inner else data


def _mapping(data: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _items(data: Mapping[str, Json], key: str) -> list[Mapping[str, Json]]:
    value = data.get(key)
    items = value if isinstance(value, list | tuple) else ()
    return [item for item in items if isinstance(item, Mapping)]


def _text(data: Mapping[str, Json], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", text) or "_"


def _quoted(path: str) -> str:
    """A path with variables, for a shell."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`") + '"'
