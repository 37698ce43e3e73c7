from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import JobError
from muster.launch.expand import expand, expand_all, protect

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
ENVIRONMENTS = st.dictionaries(NAMES, st.text(max_size=12), max_size=5)


@given(st.text(), ENVIRONMENTS)
def test_protected_text_expands_to_itself(text: str, env: dict[str, str]) -> None:
    assert expand(protect(text), env) == text


@given(st.text(alphabet=[*string.printable.replace("$", ""), "é"]), ENVIRONMENTS)
def test_text_without_a_dollar_is_left_alone(text: str, env: dict[str, str]) -> None:
    assert expand(text, env) == text


@given(NAMES, st.text(), st.text(), st.text())
def test_a_braced_name_is_replaced_wherever_it_stands(name: str, value: str, before: str, after: str) -> None:
    element = protect(before) + "${" + name + "}" + protect(after)
    assert expand(element, {name: value}) == before + value + after


@given(st.lists(st.text(alphabet=" \t\n'\"ab$", max_size=6)), ENVIRONMENTS)
def test_every_element_stays_one_argument(elements: list[str], env: dict[str, str]) -> None:
    assert expand_all([protect(element) for element in elements], env) == tuple(elements)


@pytest.mark.parametrize(
    ("element", "expected"),
    [
        ("--local_rank=$LOCAL_RANK", "--local_rank=1"),
        ("$LOCAL_RANK/$LOCAL_RANK", "1/1"),
        ("${LOCAL_RANK}x", "1x"),
        ("$EMPTY", ""),
        ("two $LOCAL_RANK words", "two 1 words"),
        ("$$LOCAL_RANK", "$LOCAL_RANK"),
        ("$$$LOCAL_RANK", "$1"),
        ("$${LOCAL_RANK}", "${LOCAL_RANK}"),
        ("$NESTED", "$LOCAL_RANK"),
        ("^a.*z$", "^a.*z$"),
        ("$1 $ 5", "$1 $ 5"),
        ("$", "$"),
        ("`date` *.txt ~", "`date` *.txt ~"),
    ],
)
def test_what_becomes_of_a_dollar(element: str, expected: str) -> None:
    assert expand(element, {"LOCAL_RANK": "1", "EMPTY": "", "NESTED": "$LOCAL_RANK"}) == expected


def test_an_undefined_name_is_an_error_that_names_it_and_its_neighbours() -> None:
    with pytest.raises(JobError) as refused:
        expand("--rank=$LOCALRANK", {"LOCAL_RANK": "0", "HOME": "/root"})
    assert "$LOCALRANK" in refused.value.message
    assert "--rank=$LOCALRANK" in refused.value.message
    assert "LOCAL_RANK" in refused.value.hint
    assert "HOME" not in refused.value.hint


@pytest.mark.parametrize("element", ["$(nproc)", "${A:-1}", "${}", "${A", "${1}", "x${ A }"])
def test_shell_syntax_is_refused_with_the_way_out(element: str) -> None:
    with pytest.raises(JobError, match="without a shell") as refused:
        expand(element, {"A": "1"})
    assert "bash" in refused.value.hint
