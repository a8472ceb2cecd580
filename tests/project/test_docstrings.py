"""Docstrings of everything public have one form, so that `help()` and the reference page answer the same questions everywhere.

The form is: an imperative sentence; what is guaranteed; `Args:` with every parameter; `Returns:`; `Raises:`; `Spec:` with the clauses.
A class of data has a line for each field; an error says in `Remedy:` what to do.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping
from functools import cache

import msgspec
import pytest
from tests.kit.documents import (
    _SECTION,
    CALLABLES,
    CLASSES,
    CONSTRUCTORS,
    ERRORS,
    MEMBERS,
    RAISED,
    SECTIONS,
    Docstring,
    docstring,
    is_ours,
    parameters,
)

# First words of docstrings: whether a word is a verb in the imperative, no rule can say. Add to it what is one.
_VERBS = """
    Abort Add Adopt Advance Begin Check Close Commit Compact Compare Copy Count Create Delete Describe Drop Expect Expire Export Find Forget
    Insert Keep List Load Look Make Measure Merge Move Name Open Overwrite Pass Prepare Probe Publish Read Record Register Remove Rename
    Replace Return Rewrite Roll Run Set Simulate Skip Tag Widen Write
"""
VERBS = frozenset(_VERBS.split())
_CLAUSE = re.compile(r"\[[A-Z]{2}\d+\]")
_SPEC = re.compile(r"[A-Z]{2}\d+(, [A-Z]{2}\d+)*\.")
_DEFAULT = re.compile(r"\bdefault\b|\bas for\b|\bNone:")
LONG = 95  # characters of a paragraph that is worth saying once only


# They take an argument, and nothing that a caller could give makes them raise an error of their own.
NEVER_RAISE = {
    "store.StorageOptions.scrub", "store.register_scheme", "testing.CountingStore.received_bytes", "testing.CountingStore.requests",
    "testing.CountingStore.sent_bytes",
}  # fmt: skip


def fields(kind: type) -> set[str]:
    """What a class of data has; of an error, what its constructor takes beside the message."""
    if issubclass(kind, msgspec.Struct):
        return {name for name in kind.__struct_fields__ if not name.startswith("_")}
    if issubclass(kind, BaseException):
        own = {each.name for each in parameters(kind.__init__)} if inspect.isfunction(kind.__init__) else set()
        return (own | {*getattr(kind, "__annotations__", ())}) - {"message", "args", "kwargs"}
    return {name for name in getattr(kind, "__annotations__", ()) if not name.startswith("_")}


def test_there_are_no_fewer_than_there_were() -> None:
    assert len(CALLABLES) > 80 and len(ERRORS) > 25 and len(MEMBERS) > 80
    assert {"write", "Table", "Table.compact", "Job.abort", "testing.simulate", "store.open_store", "store.Store.get"} <= CALLABLES.keys()
    assert {"Table.version", "Outcome.committed", "testing.FaultStore.count"} <= MEMBERS.keys()


@pytest.mark.parametrize("name", sorted({*CALLABLES, *MEMBERS} - {*CONSTRUCTORS}))
def test_the_first_line_says_in_the_imperative_what_it_does(name: str) -> None:
    first = docstring(name).first
    assert first.endswith("."), f"{name}: the first line is a sentence, not {first!r}"
    assert first.split()[0].rstrip(":,") in VERBS, f"{name}: {first.split()[0]!r} is no verb in the imperative that VERBS knows"


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_explained(name: str) -> None:
    said = docstring(name).entries("Args")
    taken = {each.name: each for each in parameters(CALLABLES[name])}
    assert said.keys() == taken.keys(), f"{name}: Args: has {sorted(said)}, the signature {sorted(taken)}"
    for argument, each in taken.items():
        if each.default is not each.empty and argument not in docstring(name).elsewhere.get("Args", {}):
            assert _DEFAULT.search(said[argument]), f"{name}: {argument} does not say what the default is or means"


@pytest.mark.parametrize("name", sorted({*CALLABLES, *MEMBERS} - {*CONSTRUCTORS}))
def test_what_is_returned_is_explained(name: str) -> None:
    """A property says it in its first line."""
    found = MEMBERS.get(name)
    if isinstance(found, property):
        assert docstring(name).first.startswith("Return "), f"{name} is a property: Return …"
        return
    returned = inspect.signature(CALLABLES[name]).return_annotation
    has = {*docstring(name).sections} & {"Returns", "Yields"}
    assert bool(has) == (returned not in ("None", None)), f"{name} returns {returned}; sections: {sorted(has)}"


@pytest.mark.parametrize("name", CALLABLES)
def test_what_is_raised_exists(name: str) -> None:
    raised = docstring(name).entries("Raises")
    if parameters(CALLABLES[name]):
        assert bool(raised) == (name not in NEVER_RAISE), f"{name} takes arguments: Raises: says what becomes of wrong ones"
    assert raised.keys() <= RAISED, f"{name}: there is no {sorted(raised.keys() - RAISED)}"


@pytest.mark.parametrize("name", CALLABLES)
def test_what_its_own_module_raises_is_explained(name: str) -> None:
    """Itself or a base class. What deeper modules raise is held by the calls of tests/doors."""
    function = inspect.unwrap(CALLABLES[name])
    functions = functions_of(function.__module__)
    own = ast.parse(textwrap.dedent(inspect.getsource(function)))
    said = docstring(name).entries("Raises").keys()
    known = {each.__name__: each for each in ERRORS.values()}
    raised = {error for error in raised_names(own, functions, {function.__name__}) if error in known}
    unsaid = sorted(error for error in raised if not {base.__name__ for base in known[error].__mro__} & said)
    assert not unsaid, f"{name}: Raises: lacks {unsaid}"


@cache
def functions_of(module: str) -> Mapping[str, ast.FunctionDef]:
    """The first function of each name."""
    nodes = [node for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))) if isinstance(node, ast.FunctionDef)]
    return {node.name: node for node in reversed(nodes)}


def raised_names(code: ast.AST, functions: Mapping[str, ast.FunctionDef], seen: set[str]) -> set[str]:
    """Names of what the code raises, and of what the functions of its module raise that it calls."""
    found: set[str] = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Raise) and node.exc is not None:
            found.add(called_name(node.exc))
        elif isinstance(node, ast.Call) and (name := called_name(node)) in functions and name not in seen:
            seen.add(name)
            found |= raised_names(functions[name], functions, seen)
    return found


def called_name(node: ast.expr) -> str:
    """`f` of `f(x)`, `self.f(x)` and `f`; empty for any other expression."""
    function = node.func if isinstance(node, ast.Call) else node
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self":
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def test_an_error_of_a_called_function_is_found() -> None:
    module = ast.parse("def f(x):\n    self.g(x)\ndef g(x):\n    if x:\n        raise UsageError('x')\n    f(x)\n")
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert raised_names(functions["f"], functions, {"f"}) == {"UsageError"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_has_its_line(name: str) -> None:
    assert not (problem := problem_of_class(name)), problem


def problem_of_class(name: str) -> str:
    said = Docstring.of(CLASSES[name])
    bases = [each for each in CLASSES[name].__mro__ if is_ours(each) and each.__doc__]
    missing = fields(CLASSES[name]).difference(*(Docstring.of(each).entries("Attributes") for each in bases))
    if not CLASSES[name].__doc__ or not said.first.endswith("."):
        return f"{name}: the first line is a sentence, not {said.first!r}"
    if missing:
        return f"{name}: Attributes: lacks {sorted(missing)}"
    stale = [each for each in said.entries("Attributes") if each not in fields(CLASSES[name])]
    code = inspect.getsource(CLASSES[name]) if stale else ""  # which takes long to be found
    stale = [each for each in stale if f"self.{each}" not in code]
    return f"{name}: Attributes: has {stale}, which it has not" if stale else ""


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_its_cause_and_its_remedy(name: str) -> None:
    said = Docstring.of(ERRORS[name])
    assert ERRORS[name].__doc__ and said.sections.get("Remedy"), f"{name} has no `Remedy: …`"


@pytest.mark.parametrize("name", sorted({*CALLABLES, *MEMBERS, *CLASSES}))
def test_clauses_are_named_in_one_way(name: str) -> None:
    """At the end, where the reference page finds them."""
    for said in (docstring(name),) if name not in CLASSES else (Docstring.of(CLASSES[name]),):
        assert not _CLAUSE.search(said.text), f"{name}: Spec: …, not brackets"
        spec = said.sections.get("Spec")
        if spec is not None:
            assert _SPEC.fullmatch(spec), f"{name}: {spec!r}"
            assert list(said.sections)[-1] == "Spec", f"{name}: Spec: comes last"


def test_nothing_long_is_said_twice() -> None:
    """What several methods share is said by one, or by their class; the others refer to it."""
    said = [Docstring.of(each) for each in {**CLASSES, **CALLABLES, **MEMBERS}.values()]
    paragraphs = Counter(
        text
        for each in {each.text: each for each in said}.values()
        for text in {
            *(" ".join(part.split()) for part in each.text.split("\n\n") if not _SECTION.match(part.partition("\n")[0])),
            *(entry for section in SECTIONS for entry in each.entries(section).values()),
        }
    )
    repeated = [text for text, times in paragraphs.items() if times > 1 and len(text) > LONG]
    assert not repeated, "\n".join(repeated)
