"""MLflow's search language: what it selects and how it orders; what it does not understand it refuses."""

from __future__ import annotations

import pytest

from muster.server.mlflow.filters import Value, order, parse, select
from muster.server.mlflow.protocol import MlflowError

ITEMS = [
    {"metrics": {"loss": 0.5, "a b": 1.0}, "params": {"lr": "0.1"}, "tags": {"kind": "demo"}, "attributes": {"n": "x"}},
    {"metrics": {"loss": 0.1}, "params": {"lr": "0.01"}, "tags": {}, "attributes": {"n": "y"}},
    {"metrics": {}, "params": {}, "tags": {"kind": "Other_1"}, "attributes": {"n": "z"}},
]


def lookup(item: dict[str, dict[str, Value]], kind: str, name: str) -> Value:
    return item.get(kind, {}).get(name)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "xyz"),
        ("metrics.loss < 0.3", "y"),
        ("metrics.`a b` = 1", "x"),
        ('metrics."a b" >= 1.0 and params.lr = "0.1"', "x"),
        ("tags.kind LIKE 'de%'", "x"),
        ("tags.kind ILIKE 'OTHER__'", "z"),
        ("tags.kind IN ('demo', 'nothing')", "x"),
        ("tags.kind NOT IN ('demo')", "z"),
        ("tags.kind IS NULL", "y"),
        ("attributes.n != 'x' AND n != 'y'", "z"),
        ("metrics.loss > -1e3 AND metrics.loss <= 5e-1", "xy"),
        ("params.lr = 'it''s'", ""),
    ],
)
def test_a_filter_selects(text: str, found: str) -> None:
    chosen = select(ITEMS, parse(text), lookup)
    assert "".join(str(item["attributes"]["n"]) for item in chosen) == found


@pytest.mark.parametrize(
    "text", ["metrics.loss", "metrics.loss <", "metrics.loss ~ 1", "a = 1 OR b = 2", "tags.k IN 1", "= 1", "@"]
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(MlflowError, match="Invalid filter") as refused:
        parse(text)
    assert refused.value.status == 400


def test_results_are_ordered_by_several_clauses_and_those_without_a_value_come_last() -> None:
    def names(*clauses: str) -> str:
        return "".join(str(item["attributes"]["n"]) for item in order(ITEMS, clauses, lookup))

    assert names("metrics.loss") == "yxz"
    assert names("metrics.loss DESC") == "xyz"
    assert names("tags.`kind` ASC", "attributes.n DESC") == "zxy"
