"""What is kept with a run of its environment: the same JSON from submission to the view."""

from __future__ import annotations

from muster.environments.resolve import Resolved
from muster.server.environments import records
from muster.wire.environments import BuiltEnvironment, EnvironmentBrief
from muster.wire.node.containers import Build, ImageSource
from muster.wire.node.recipes import Recipe
from tests.unit.server.conftest import Server

SIX = Recipe("six", ("six",), options=("--index-url https://u:p@host/simple",))
LOCK = ("six==1.17",)


def test_a_record_holds_the_recipe_and_then_what_the_first_node_came_to() -> None:
    stored = records.record_of(Resolved("mine", SIX))
    assert stored == {
        "name": "mine",
        "recipe": {"label": "six", "requirements": ["six"], "options": ["--index-url https://u:p@host/simple"]},
    }
    assert records.order_of(stored) == SIX
    assert records.brief(stored) == EnvironmentBrief(0, "mine")
    first = records.with_versions(stored, BuiltEnvironment("k", "3.11.7", LOCK, (), "linux-x86_64", built_s=1.5))
    assert first == {
        **stored,
        "key": "k",
        "python": "3.11.7",
        "platform": "linux-x86_64",
        "lock": ["six==1.17"],
        "indexes": [],
    }
    assert records.with_versions(first, BuiltEnvironment("other", "3.12.1", ("six==1.16",))) == first
    assert records.order_of(first) == SIX.locked(LOCK)
    assert records.brief(first) == EnvironmentBrief(1, "mine", "k", "3.11.7")


def test_nothing_is_kept_where_nothing_is_built() -> None:
    assert records.record_of(Resolved()) is None
    assert records.order_of(None) is None and records.brief(None) is None and records.build_snapshot(None) is None
    assert records.with_versions(None, BuiltEnvironment("k", "3.11.7")) is None


def test_an_image_is_recorded_by_its_name_or_by_the_folder_that_it_is_built_from() -> None:
    pulled = records.record_of(Resolved(container=ImageSource("img:1", packages=SIX)))
    assert isinstance(pulled, dict) and pulled["name"] == "img:1"
    assert records.order_of(pulled) is None and records.build_snapshot(pulled) is None
    built = records.record_of(Resolved(container=ImageSource(build=Build("abc", args={"A": "1"}))))
    assert records.build_snapshot(built) == "abc"
    assert isinstance(built, dict)
    assert built["container"] == {"build": {"snapshot": "abc", "dockerfile": "Dockerfile", "args": {"A": "1"}}}


def test_passwords_of_indexes_are_not_shown() -> None:
    recipe = records.shown(records.record_of(Resolved("mine", SIX))).recipe
    assert recipe is not None and recipe.options == ("--index-url https://****@host/simple",)
    container = records.shown(records.record_of(Resolved(container=ImageSource("img:1", packages=SIX)))).container
    assert container is not None and container.packages is not None and "u:p" not in str(container.packages)
    spec = records.shown_spec({"command": "true", "environment": {"pip": ["--index-url https://u:p@host/x"]}})
    assert spec == {"command": "true", "environment": {"pip": ["--index-url https://****@host/x"]}}


def test_an_environment_that_cannot_be_is_refused_by_its_keys(server: Server) -> None:
    status, answer = server.call("POST", "/environments", {"name": "mine", "spec": {"\t": [], "pip": 3}})
    assert status == 422 and "environment.\t: unknown key" in answer["error"]["message"]
    assert "environment.pip: " in answer["error"]["message"]
