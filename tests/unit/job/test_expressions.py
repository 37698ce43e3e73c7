"""Expressions: what bash makes of them is what the job said."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.errors import JobError
from muster.job.explain import make_spec
from muster.job.expressions import resolve_command, resolve_environment
from muster.job.spec import JobSpec

SPECIAL = " '\"$`\\!#~*?{}[]()<>|&;\n\t=-+^%@,:./é\u2028a1"
VALUES = st.text(alphabet=SPECIAL, max_size=12) | st.text(
    alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12
)


def job(command: Any, **inputs: Any) -> JobSpec:
    return make_spec({"command": command, "inputs": inputs, "outputs": {"model": None}})


def resolved(command: Any, **inputs: Any) -> Any:
    return resolve_command(job(command, **inputs))


def refused(command: Any, **inputs: Any) -> str:
    with pytest.raises(JobError) as caught:
        job(command, **inputs)
    assert caught.value.hint
    return caught.value.message


def arguments(script: str, path: str = "") -> list[str]:
    """What `emit` got, run by a real bash; every argument ends with NUL."""
    text = "emit() { printf '%s\\0' \"$@\"; }\n" + script
    environment = {"MUSTER_INPUT_p": path, "MUSTER_OUTPUT_model": path, "NAME": "named", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", text], env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


# A line of bash with a reference in it, and what `emit` must get for a value.
LINES = [
    ("emit {}", "{}"),
    ('emit "{}"', "{}"),
    ("emit '{}'", "{}"),
    ("emit --a={}b", "--a={}b"),
    ('emit "a {} b"', "a {} b"),
    ("emit 'a {} b'", "a {} b"),
    ("emit $'a\\'{}\\n'", "a'{}\n"),
    ("emit $NAME{}", "named{}"),
    ('emit "$NAME{}"', "named{}"),
    ('emit "\\\\$NAME{}"', "\\named{}"),
    ("emit '$NAME{}'", "$NAME{}"),
    ('emit "it\'s {}"', "it's {}"),
    ("emit 'say \"'{}'\"'", 'say "{}"'),
    ('emit \\"{}', '"{}'),
    ("emit a\\ #{}", "a #{}"),
    ("emit a#{}", "a#{}"),
    ('emit "$(printf %s {}; printf .)"', "{}."),
    ('emit "$(printf %s "{}"; printf .)"', "{}."),
    ("emit \"$(printf %s '{}'; printf .)\"", "{}."),
    ("(emit {})", "{}"),
    ('x={}; emit "$x"', "{}"),
    ('[[ {} == "{}" ]] && emit "{}"', "{}"),
    ('emit "${{NAME:-"a b"}} {}"', "named {}"),
    ("a=({} '{}'); emit \"${{a[1]}}\"", "{}"),
    ("case x in x) emit {};; esac", "{}"),
    ('emit "$((1 + 2)){}"', "3{}"),
    ("emit `echo \\`echo a\\``{}", "a{}"),
]
HEREDOCS = [
    ('IFS= read -r x <<EOF\n-{}-\nEOF\nemit "$x"', "-{}-"),
    ("IFS= read -r x <<-'EOF'\n\t-{}-\n\tEOF\nemit \"$x\"", "-{}-"),
    ('cat <<A >/dev/null; IFS= read -r x <<B\nit\'s\nA\n"{}"\nB\nemit "$x"', '"{}"'),
    ("emit \"$(cat <<EOF\n$(printf %s '{}' .)\nEOF\n)\"", "{}."),
]


def expected(line: str, value: str) -> str:
    return line.replace("{}", value)


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_a_plain_value_comes_out_of_bash_as_it_is_wherever_it_stands(value: str) -> None:
    script = "\n".join(unbraced(line) for line, _ in LINES)
    assert arguments(resolved(script, x=value)) == [expected(want, value) for _, want in LINES]


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_a_path_comes_out_of_bash_as_it_is_wherever_it_stands(path: str) -> None:
    script = "\n".join(unbraced(line).replace("inputs.x", "inputs.p") for line, _ in LINES)
    assert arguments(resolved(script, p={"path": "data"}), path) == [expected(want, path) for _, want in LINES]


@settings(max_examples=40, deadline=None)
@given(VALUES)
def test_a_value_of_one_line_comes_out_of_here_documents_as_it_is(value: str) -> None:
    assume("\n" not in value)
    script = "\n".join(unbraced(line) for line, _ in HEREDOCS)
    assert arguments(resolved(script, x=value)) == [expected(want, value) for _, want in HEREDOCS]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.sampled_from(["\n", " ; ", " # it's ${{inputs.x}}\n"])), min_size=1),
    VALUES,
)
def test_lines_in_any_order_do_not_disturb_each_other(lines: list[tuple[tuple[str, str], str]], value: str) -> None:
    script = "".join(unbraced(line) + end for (line, _), end in lines)
    assert arguments(resolved(script + "true", x=value)) == [expected(want, value) for (_, want), _ in lines]


def unbraced(line: str) -> str:
    """The line with its reference put in; doubled braces are single ones."""
    return line.replace("{}", "\1").replace("{{", "{").replace("}}", "}").replace("\1", "${{inputs.x}}")


def test_a_comment_keeps_the_name_and_takes_no_value() -> None:
    assert resolved("true # ${{inputs.x}}\ntrue", x="a\nrm -rf /") == "true # inputs.x\ntrue"


def test_arithmetic_takes_numbers_only() -> None:
    assert arguments(resolved("emit $(( ${{inputs.n}} + 1 )) $[ ${{inputs.n}} * 2 ]", n=3)) == ["4", "6"]
    assert "stands in arithmetic and is not a number" in refused("echo $(( ${{inputs.n}} ))", n="a[$(id)]")
    assert "stands in arithmetic and is not a number" in refused("echo $(( ${{outputs.model}} ))")


def test_a_number_before_a_redirection_stays_an_argument() -> None:
    assert arguments(resolved("emit ${{inputs.n}}>&1", n=3)) == ["3"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo `echo ${{inputs.x}}`", "inside backticks"),
        ('echo "${A:-${{inputs.x}}}"', "inside ${…} of bash"),
        ("echo \\${{inputs.x}}", "right after a backslash"),
        ("echo $${{inputs.x}}", "right after a dollar sign"),
        ('echo "$(case a in a) echo ${{inputs.x}};; esac)"', "after `case`"),
        ("cat <<${{inputs.x}}\n", "delimiter of a here-document"),
        ("cat <<EOF\n${{inputs.x}}\n", "not closed"),
        ("cat <<EOF\n${{inputs.lines}}\nEOF", "holds several lines"),
        ("cat <<'EOF'\n${{outputs.model}}\nEOF", "with a quoted delimiter"),
    ],
)
def test_places_where_a_value_cannot_be_quoted_are_refused(command: str, reason: str) -> None:
    assert reason in refused(command, x="a", lines="a\nb")


def test_true_and_false_are_written_as_in_azure() -> None:
    assert resolved("run ${{inputs.a}} ${{ inputs.b }} ${{inputs.c}}", a=True, b=False, c=0.1) == "run True False 0.1"


def test_paths_become_variables() -> None:
    for command in ("run ${{inputs.p}} --out ${{outputs.model}}", "run ${{inputs.p.path}} --out ${{outputs.model}}"):
        assert resolved(command, p={"path": "x"}) == 'run "${MUSTER_INPUT_p}" --out "${MUSTER_OUTPUT_model}"'


def test_a_list_takes_values_as_text_and_protects_dollar_signs() -> None:
    assert resolved(
        ["run", "--a=${{inputs.a}}", "${{inputs.p}}", "$LOCAL_RANK", "$NAME${{inputs.a}}", "$$$NAME${{inputs.a}}"],
        a="it's $5",
        p={"path": "x"},
    ) == (
        "run",
        "--a=it's $$5",
        "${MUSTER_INPUT_p}",
        "$LOCAL_RANK",
        "${NAME}it's $$5",
        "$$${NAME}it's $$5",
    )
    assert "right after a dollar sign" in refused(["run", "$${{inputs.a}}"], a=1)


def test_optional_parts_go_when_their_input_is_not_given() -> None:
    command = "run $[[--w ${{inputs.w}}]] $[[--n ${{inputs.n}}]] end"
    assert resolved(command, w={"type": "uri_file", "optional": True}, n=3) == "run  --n 3 end"
    assert resolved(command, w={"path": "w"}, n={"type": "integer", "optional": True}) == (
        'run --w "${MUSTER_INPUT_w}"  end'
    )
    assert resolved(["run", "$[[--n=${{inputs.n}}]]"], n={"type": "integer", "optional": True}) == ("run",)
    assert resolved(["run", "$[[--n=${{inputs.n}}]]", ""], n=3) == ("run", "--n=3", "")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run ${{inputs.epoch}}", "did you mean 'epochs'? declared: epochs"),
        ("run ${{outputs.modl}}", "did you mean 'model'? declared: model"),
        ("run ${{search_space.lr}}", "belongs to a sweep"),
        ("run ${{parent.inputs.x}}", "belongs to a step of a pipeline"),
        ("run ${{parent.jobs.a.outputs.x}}", "belongs to a step of a pipeline"),
        ("run ${{epochs}}", "is not an expression that Muster knows"),
        ("run ${{inputs.}}", "is not an expression that Muster knows"),
        ("run ${{inputs.epochs", "is not closed"),
        ("run $[[ ${{inputs.epochs}}", "is not closed"),
        ("run $[[ $[[ a ]] ]]", "an optional part inside another one"),
        (["run", "$[[${{inputs.epoch}}]]"], "command[1]: ${{inputs.epoch}} refers to 'epoch'"),
    ],
)
def test_expressions_that_mean_nothing_are_refused(command: Any, message: str) -> None:
    assert message in refused(command, epochs=3)


def test_an_input_without_a_value_is_refused_outside_of_optional_parts() -> None:
    assert "is optional and has no value" in refused("run ${{inputs.w}}", w={"type": "uri_file", "optional": True})
    assert "nothing is left of the command" in refused(
        "$[[run ${{inputs.w}}]]", w={"type": "uri_file", "optional": True}
    )


def test_variables_take_plain_values() -> None:
    spec = make_spec(
        {
            "command": "x",
            "inputs": {"n": 3, "p": {"path": "x"}},
            "environment_variables": {"A": "n=${{inputs.n}}$[[ or ${{inputs.n}}]]", "B": "plain $HOME"},
        }
    )
    assert resolve_environment(spec) == {"A": "n=3 or 3", "B": "plain $HOME"}
    with pytest.raises(JobError, match="is a path, which is known only on the node"):
        make_spec({"command": "x", "inputs": {"p": {"path": "x"}}, "environment_variables": {"A": "${{inputs.p}}"}})


@given(st.text(alphabet=SPECIAL + "{}[]$x", max_size=30))
def test_any_text_resolves_or_is_refused(text: str) -> None:
    try:
        spec = job("run ${{inputs.x}} " + text + "${{inputs.x}}", x="v")
    except JobError:
        return
    assert isinstance(resolve_command(spec), str)
