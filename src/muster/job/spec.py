"""The job: the request of a file, a command line or a program, complete and consistent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Discriminator, Tag, field_validator, model_validator

from muster.job import rules
from muster.job.expressions import expression_problems
from muster.job.literals import checked_literal, input_kind, input_value
from muster.job.parts import (
    Distribution,
    EnvironmentSpec,
    Input,
    Limits,
    Model,
    Mpi,
    Notified,
    Output,
    QueueSettings,
    Resources,
    Retry,
    Scalar,
    Service,
    TensorFlow,
    Text,
    Texts,
    as_lower,
    as_tuple,
    one_or_several,
)
from muster.job.refusal import REFUSAL, Problem, refusal, refusals, show
from muster.wire.text import printable

T = TypeVar("T")
# Linux allows 128 KiB for one argument or variable; inputs and quotes are added later.
MAX_TEXT_BYTES = 100_000


def _sequence_or_text(value: Any) -> str | None:
    return "<text>" if isinstance(value, str) else "<list>" if isinstance(value, list | tuple) else None


def _name_or_mapping(value: Any) -> str | None:
    return "<name>" if isinstance(value, str) else "<mapping>" if isinstance(value, Mapping | EnvironmentSpec) else None


# Names in <> mark alternatives in the locations of validation errors; `explain` leaves them out.
Command = Annotated[
    Annotated[Text, Tag("<text>")]
    | Annotated[tuple[Text, ...], BeforeValidator(as_tuple, json_schema_input_type=list[Scalar]), Tag("<list>")],
    Discriminator(
        _sequence_or_text, custom_error_type=REFUSAL, custom_error_message="a text or a list of texts is needed"
    ),
]
Environment = Annotated[
    Annotated[Text, Tag("<name>")] | Annotated[EnvironmentSpec, Tag("<mapping>")],
    Discriminator(_name_or_mapping, custom_error_type=REFUSAL, custom_error_message="a name or a mapping is needed"),
]
InputValue = Annotated[
    Annotated[Scalar, BeforeValidator(checked_literal), Tag("<literal>")] | Annotated[Input, Tag("<path>")],
    Discriminator(input_kind),
]


class JobSpec(Model):
    """One job: what to run, on how many nodes, as which ranks, with what data."""

    type: Literal["command"] = "command"
    """The kind of job."""
    name: Text | None = None
    """A name for the run, which `muster` commands take in place of its id."""
    display_name: Text | None = None
    """A title for people."""
    experiment_name: Text = "default"
    """The experiment that the run belongs to."""
    description: Text | None = None
    """Free text."""
    tags: Texts = {}
    """Texts by name, to find runs by."""
    properties: Texts = {}
    """Texts by name that are kept with the job and never change."""
    code: Text | None = None
    """Folder (or file) with the script, relative to the job file. The command runs in a copy of it."""
    additional_includes: Annotated[tuple[Text, ...], BeforeValidator(as_tuple, json_schema_input_type=list[str])] = ()
    """Further files and folders, relative to the job file, that are put beside what `code` holds."""
    command: Command
    """Text runs under bash; a list is expanded per rank without a shell."""
    environment: Environment | None = None
    """What a rank runs in: a name, or a mapping; absent: the current Python."""
    compute: Text = "local"
    """The cluster: `local`, `NAME` or `azureml:NAME`."""
    resources: Resources = Resources()
    """How much of the cluster the job holds."""
    distribution: Distribution | None = None
    """How processes become ranks; absent: one process on one node."""
    inputs: dict[str, Annotated[InputValue, BeforeValidator(input_value)]] = {}
    """What the job reads, by name: plain values, files, folders."""
    outputs: dict[str, Output] = {}
    """What the job writes, by name; nothing after the name means a folder that is kept with the run."""
    environment_variables: Texts = {}
    """Variables of every process; `${{secrets.NAME}}` in them is a secret's value. Those of Muster are refused."""
    isolation: Literal["sandbox", "none"] | None = None
    """`sandbox`: ranks see the system, their own folder, inputs, outputs and GPUs, and nothing else of the node."""
    after: Annotated[tuple[Text, ...], BeforeValidator(one_or_several, json_schema_input_type=str | list[str])] = ()
    """Runs that must have completed first, by id or name; `RUN:ended`: however it ended. The job waits until then."""
    limits: Limits = Limits()
    """When the job is stopped."""
    queue_settings: QueueSettings = QueueSettings()
    """How the job waits."""
    retry: Retry = Retry()
    """When a failed attempt is followed by another."""
    notify: Notified = ()
    """Who is told when it ends, hangs, or its loss is no number: a receiver's name, an address, or a mapping."""
    services: dict[str, Service] = {}
    """What people may reach while the job runs, by name: `ssh`, `tensor_board`, `jupyter_lab`, ports of its own."""

    @field_validator("distribution", mode="before")
    @classmethod
    def _type_in_any_case(cls, value: Any) -> Any:
        return {**value, "type": as_lower(value["type"])} if isinstance(value, dict) and "type" in value else value

    @field_validator("outputs", mode="before")
    @classmethod
    def _null_is_a_default_output(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: {} if output is None else output for name, output in value.items()}

    @field_validator("name", mode="after")
    @classmethod
    def _is_a_run_name(cls, value: str | None) -> str | None:
        if value is not None and not rules.RUN_NAME.fullmatch(value):
            raise refusal(
                f"{show(value)} is not a name",
                "Use letters, digits, '_', '.' and '-', beginning with a letter or digit, at most 255 characters.",
            )
        return value

    @field_validator("display_name", "experiment_name", mode="after")
    @classmethod
    def _is_one_line(cls, value: str | None) -> str | None:
        if value is not None and printable(value) != value:
            raise refusal(
                f"{show(value)} has characters that are not shown: line ends, escapes or others",
                "Use letters, digits, spaces and punctuation.",
            )
        return value

    @field_validator("after", mode="after")
    @classmethod
    def _are_runs(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [item for item in value if not rules.DEPENDENCY.fullmatch(item)]
        if wrong:
            hint = "Write a run's id, its name, or @latest; RUN:ended waits for its end, however it ends."
            raise refusal(f"{show(wrong[0])} is not a run", hint)
        return value

    @field_validator("compute", mode="after")
    @classmethod
    def _is_a_cluster_name(cls, value: str) -> str:
        name = rules.cluster_name(value)
        if name is None:
            raise refusal(
                f"{show(value)} is not the name of a cluster",
                "Write local, NAME or azureml:NAME, or run it with --compute NAME.",
            )
        return name

    @field_validator("environment", mode="after")
    @classmethod
    def _is_an_environment(cls, value: str | EnvironmentSpec | None) -> str | EnvironmentSpec | None:
        if not isinstance(value, str):
            return value
        name = rules.environment_reference(value)
        if name is None:
            raise refusal(
                f"{show(value)} is not the name of an environment",
                "Write azureml:NAME, azureml:NAME:VERSION or azureml:NAME@latest, or a mapping such as {image: …}; or "
                "run it with --environment NAME, --environment FILE or --environment none.",
            )
        return name

    @field_validator("command", mode="after")
    @classmethod
    def _can_be_started(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if not value or not (value if isinstance(value, str) else value[0]).strip():
            raise refusal("is empty", "Write what each process runs, such as: python train.py")
        longest = max(len(text.encode()) for text in ([value] if isinstance(value, str) else value))
        if longest > MAX_TEXT_BYTES:
            raise refusal(f"{longest:,} bytes; at most {MAX_TEXT_BYTES:,} fit", "Put it into a script in `code`.")
        return value

    @field_validator("inputs", "outputs", "services", mode="after")
    @classmethod
    def _names_are_identifiers(cls, value: dict[str, T]) -> dict[str, T]:
        wrong = [name for name in value if not rules.IDENTIFIER.fullmatch(name)]
        if wrong:
            hint = "Use letters, digits and '_', beginning with a letter or '_'."
            raise refusals(Problem((name,), f"{show(name)} is not a name", hint) for name in wrong)
        return value

    @field_validator("environment_variables", mode="after")
    @classmethod
    def _variables_are_free(cls, value: dict[str, str]) -> dict[str, str]:
        if problems := [problem for name, text in value.items() for problem in _variable_problems(name, text)]:
            raise refusals(problems)
        return value

    @model_validator(mode="after")
    def _parts_fit_together(self) -> JobSpec:
        problems = [*expression_problems(self), *_launcher_problems(self), *_node_problems(self)]
        if problems:
            raise refusals(problems)
        tensorflow = self.distribution
        if isinstance(tensorflow, TensorFlow) and tensorflow.worker_count is not None:
            # The model is frozen for its users, but is still being built here.
            resources = self.resources.model_copy(update={"instance_count": tensorflow.worker_count})
            object.__setattr__(self, "resources", resources)
        return self


def _variable_problems(name: str, text: str) -> Iterator[Problem]:
    if not rules.IDENTIFIER.fullmatch(name):
        yield Problem((name,), f"{show(name)} is not the name of a variable", "Use letters, digits and '_'.")
    if rules.is_owned_variable(name):
        yield Problem((name,), f"{name} is set by Muster itself", f"Remove {name}; see docs/launch-contract.md.")
    if len(text.encode()) > MAX_TEXT_BYTES:
        yield Problem((name,), f"longer than {MAX_TEXT_BYTES:,} bytes", "Put it into a file.")


def _launcher_problems(spec: JobSpec) -> Iterator[Problem]:
    program = rules.head_program(spec.command)
    if isinstance(spec.distribution, Mpi) and program in rules.MPI_LAUNCHERS:
        yield Problem(
            ("command",),
            f"starts with {program}, and in an MPI job Muster starts the processes with mpirun itself",
            f"Leave {program} out: write the command of one process, and set "
            "distribution.process_count_per_instance and resources.instance_count.",
        )
    elif program == "deepspeed" and _num_nodes(spec) > 1:
        yield Problem(
            ("command",),
            "starts with the launcher deepspeed, which reaches other nodes over ssh by itself",
            "Leave deepspeed out and use distribution {type: mpi} or {type: pytorch} with "
            "process_count_per_instance; the launcher itself works on one node.",
        )


def _node_problems(spec: JobSpec) -> Iterator[Problem]:
    nodes = spec.resources.instance_count
    distribution = spec.distribution
    if distribution is None and nodes > 1:
        yield Problem(
            ("resources", "instance_count"),
            f"{nodes} nodes are asked for, and without `distribution` only one process runs, on one node",
            "Add distribution: {type: pytorch} (or mpi, tensorflow), or set instance_count to 1.",
        )
    if not isinstance(distribution, TensorFlow):
        return
    workers, servers = _num_nodes(spec), distribution.parameter_server_count
    if "instance_count" in spec.resources.model_fields_set and workers != nodes:
        yield Problem(
            ("distribution", "worker_count"),
            f"{workers} workers do not fit {nodes} nodes: there is one worker per node",
            f"Set worker_count and resources.instance_count to the same number, or leave one out ({workers}?).",
        )
    elif servers > workers:
        yield Problem(
            ("distribution", "parameter_server_count"),
            f"{servers} parameter servers do not fit {workers} nodes: there is at most one per node",
            f"Use at most {workers}, or more workers.",
        )


def _num_nodes(spec: JobSpec) -> int:
    if isinstance(spec.distribution, TensorFlow) and spec.distribution.worker_count is not None:
        return spec.distribution.worker_count
    return spec.resources.instance_count
