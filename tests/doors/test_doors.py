"""Whatever is handed to a public call, it succeeds or raises an error of this package that names the argument. [SE3]

One process without pyspark makes all hostile calls: a check has to come before Spark is looked for.
"""

import inspect
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.doors import calls
from tests.kit.documents import docstring
from tests.kit.sizes import rest_thorough

import manifestcommit as mc
from manifestcommit import errors
from manifestcommit.runtime.validation import RULES, checked

# Each with every argument of every door: a small part, and those that are all.
PARTS = ("0 of 16", "0 of 4", "1 of 4", "2 of 4", "3 of 4")


@pytest.fixture(scope="module", params=rest_thorough(PARTS, PARTS[0]))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """One part of all hostile calls, as another process without pyspark has made them."""
    part, _, parts = request.param.partition(" of ")
    out = tmp_path_factory.mktemp("doors") / "calls.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.doors.calls", part, parts, str(out)],
        cwd=out.parent,  # some calls write a file of the name that they are given
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert out.exists(), done.stderr
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


@pytest.mark.thorough
def test_no_hostile_call_ends_in_an_error_of_another_kind(made: list[dict[str, Any]]) -> None:
    """0 of all. [SE3]"""
    assert len(made) > 500
    assert [each for each in made if each["kind"] == "untyped"] == []


@pytest.mark.thorough
def test_what_no_argument_can_be_is_refused_by_its_name(made: list[dict[str, Any]]) -> None:
    """Also where the call needs Spark, which is not there: the error is of the argument. [SE3]"""
    never = [each for each in made if each["value"] in calls.NEVER and not calls.is_taken(each["door"], each["parameter"], each["value"])]
    assert len(never) > 10
    assert [
        each for each in never if each["kind"] != "refused" or each["error"] != "UsageError" or each["parameter"] not in each["message"]
    ] == []


def test_every_error_of_a_hostile_call_is_in_the_docstring(made: list[dict[str, Any]]) -> None:
    """Itself or a base class of it is an entry of `Raises:`."""
    raised = {(each["door"], each["error"]) for each in made if each["error"]}
    assert len({error for _, error in raised}) >= 4
    unsaid = [
        f"{door} raises {error}"
        for door, error in sorted(raised)
        if not {base.__name__ for base in getattr(errors, error).__mro__} & docstring(door).entries("Raises").keys()
    ]
    assert not unsaid


def test_what_is_refused_has_changed_nothing(made: list[dict[str, Any]]) -> None:
    """[SE3]"""
    refused = [each for each in made if each["error"] == "UsageError" and "but wrote rows of" not in each["message"]]  # the data is wrong
    assert [each for each in refused if each["changed"]] == []


def test_a_default_may_be_said() -> None:
    """As callers do that hand on what they were given."""
    owners = [mc, mc.Table, mc.Job, mc.Transaction]
    found = {each for owner in owners for name in dir(owner) if hasattr(each := getattr(owner, name), "__wrapped__")}
    rules = [(each, inspect.getclosurevars(each).nonlocals["rules"]) for each in found if "rules" in each.__code__.co_freevars]
    assert len(rules) > 50
    for door, known in rules:
        for name, parameter in inspect.signature(door).parameters.items():
            if parameter.default is not parameter.empty:
                known[name](name, parameter.default)


def test_messages_are_short(made: list[dict[str, Any]]) -> None:
    """However long the value is. [SE3]"""
    whole = ("but wrote rows of", "There is no file")  # what was given has to be seen to its end there
    mine = [each for each in made if each["error"] == "UsageError" and not any(text in each["message"] for text in whole)]
    assert [each for each in mine if len(each["message"]) > 1_000] == []


def test_every_door_is_called_with_every_argument(made: list[dict[str, Any]]) -> None:
    """A new argument has a rule, or the package does not import. [SE3]"""
    assert {(door.name, name) for door in calls.doors() for name in door.parameters} == {(each["door"], each["parameter"]) for each in made}
    with pytest.raises(KeyError, match="brand_new"):

        @checked()
        def door(brand_new: int) -> None: ...

    assert "brand_new" not in RULES


def test_a_call_with_other_arguments_than_there_are_is_pythons_error() -> None:
    """As without the checks. [SE3]"""
    with pytest.raises(TypeError, match=r"write\(\): .*unexpected keyword argument 'storage_option'"):
        mc.write(calls.ROWS, "memory://doors/none", storage_option={"secret": "hunter2"})  # type: ignore[call-arg]
