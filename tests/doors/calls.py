"""Hostile calls of every public function and method: one argument is not what it should be, all others are valid. [SC7]

`python -m tests.doors.calls` prints what is neither a success nor an error of this package; `python -m tests.doors.calls 0 4 calls.json`
makes one call in four, with each argument, and writes all of them into a file. It never starts Spark: pyspark is blocked, so that a check
has to come before Spark.
"""

import contextlib
import datetime as dt
import decimal
import inspect
import itertools
import json
import math
import os
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset

import manifestcommit as mc
from manifestcommit.job import PUBLIC
from manifestcommit.store.local import OBJECTS

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "day": ["a", "b", "c"]})
_TEMPLATE = "/doors/template/table"
_COUNT = itertools.count()

# What may be handed in for any argument. A factory each: a call may consume what it gets.
HOSTILE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "three": lambda: 3,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "true": lambda: True,
    "false": lambda: False,
    "a fraction": lambda: 1.5,
    "nan": lambda: math.nan,
    "infinity": lambda: math.inf,
    "2**70": lambda: 2**70,
    "10**5000": lambda: 10**5000,
    "a decimal": lambda: decimal.Decimal("1.5"),
    "a complex number": lambda: 1j,
    "bytes": lambda: b"x",
    "empty": lambda: "",
    "a blank": lambda: " ",
    "a letter": lambda: "x",
    "NUL": lambda: "a\0b",
    "a surrogate": lambda: "\ud800",
    "long": lambda: "x" * 70_000,
    "a newline": lambda: "a\nb",
    "percent": lambda: "%00 +=%#'\"é`",
    "a size": lambda: "128MB",
    "a URL": lambda: "s3://",
    "a list": list,
    "a list of None": lambda: [None],
    "a list of lists": lambda: [[]],
    "a list of a surrogate": lambda: ["\ud800"],
    "a tuple": lambda: (1, 2, 3),
    "a set": lambda: {"id"},
    "a dict": dict,
    "a dict of numbers": lambda: {1: 2},
    "a dict of None": lambda: {None: None},
    "a dict of a surrogate": lambda: {"\ud800": "\ud800"},
    "a dict of objects": lambda: {"a": object()},
    "an object": object,
    "a function": lambda: lambda *_: None,
    "a class": lambda: Exception,
    "a generator": lambda: (each for each in [1]),
    "a path": lambda: pathlib.Path("x"),
    "a datetime without a zone": lambda: dt.datetime(2013, 1, 31),
    "the last datetime": lambda: dt.datetime.max,
    "the first datetime with a zone": lambda: dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    "a date": lambda: dt.date(2013, 1, 31),
    "a timedelta": lambda: dt.timedelta(days=1),
    "the longest timedelta": lambda: dt.timedelta.max,
    "an Arrow table": lambda: ROWS,
    "an Arrow type": pa.null,
    "an Arrow schema": lambda: pa.schema([("a", pa.int64())]),
    "an empty Arrow schema": lambda: pa.schema([]),
    "an Arrow expression": lambda: pa.compute.field("nowhere") > 1,
}

# What no argument of this name may be: the error has to be a UsageError that names it.
NEVER = ("an object", "a function")


def is_taken(door: str, parameter: str, value: str) -> bool:
    """Whether such a value is right there nevertheless."""
    return door == "Job.__exit__" or (parameter == "progress" and value == "a function")


class World:
    """A table of its own in this process' memory, with an open job, and a job that is prepared."""

    def __init__(self) -> None:
        self.root = f"/doors/{next(_COUNT)}/table"
        OBJECTS.update({self.root + path: (data, time.time()) for path, data in _template().items()})
        self.url = f"memory:/{self.root}"

    def objects(self) -> dict[str, bytes]:
        return {path: data for path, (data, _) in OBJECTS.items() if path.startswith(f"{self.root}/")}

    def close(self) -> None:
        for path in list(OBJECTS):
            if path.startswith(self.root.rpartition("/")[0] + "/"):
                del OBJECTS[path]


_MADE: dict[str, bytes] = {}
PREPARED: list[str] = []


def _template() -> dict[str, bytes]:
    if not _MADE:
        url = f"memory:/{_TEMPLATE}"
        mc.write(ROWS, url, partition_by="day", key="first", watermarks={"s": (0, 10), "text": (None, "b")})
        mc.write(ROWS, url, key="second", watermarks={"s": (10, 20)})
        mc.Table(url).tag("kept", 2)
        job = mc.begin(url, key="third")
        job.write(ROWS)
        PREPARED.append(job.prepare())
        for path in [each for each in OBJECTS if each.startswith(_TEMPLATE)]:
            _MADE[path.removeprefix(_TEMPLATE)], _ = OBJECTS.pop(path)
    return _MADE


# Valid values of the arguments that have no default, by their name.
VALID: dict[str, Callable[[World], Any]] = {
    "data": lambda world: ROWS, "path": lambda world: world.url, "job_id": lambda world: PREPARED[0], "jobs": lambda world: [],
    "schema": lambda world: ROWS.schema, "spark": lambda world: None, "from_": lambda world: None, "source": lambda world: "s",
    "position": lambda world: 5, "to": lambda world: 10, "reason": lambda world: "why", "condition": lambda world: "id > 0",
    "name": lambda world: "id", "new_name": lambda world: "number", "type": lambda world: "string", "comment": lambda world: "of a flight",
    "default": lambda world: "none", "partition_by": lambda world: ["day"], "properties": lambda world: {"mine": "1"},
    "start_version": lambda world: 1, "where": lambda world: "id = 1", "set": lambda world: {"day": "'x'"},
    "values": lambda world: {"id": "id", "day": "day"}, "on": lambda world: "id", "paths": lambda world: [], "start": lambda world: 20,
    "end": lambda world: 30, "kind": lambda world: None, "error": lambda world: None, "trace": lambda world: None,
    "tables": lambda world: {"t": world.url}, "versions": lambda world: {world.url: 1}, "statement": lambda world: "SELECT 1",
}  # fmt: skip
# ... and where one door needs others.
ALSO: dict[str, dict[str, Callable[[World], Any]]] = {
    "clone": {"to": lambda world: f"{world.url}-clone", "to_options": lambda world: {}},
    "publish_catalog": {"to": lambda world: f"{world.url}-names", "to_options": lambda world: {}},
    "maintain": {"tables": lambda world: world.url},
    "Table.add_column": {"name": lambda world: "new"},
    "Table.widen_column": {"type": lambda world: "long"},
    "Table.tag": {"name": lambda world: "other"},
    "Table.export": {"to": lambda world: "iceberg"},
    "Table.create_table_sql": {"name": lambda world: "lake.flights"},
    "Table.untag": {"name": lambda world: "kept"},
    "Table.rollback": {"version": lambda world: 1},
    "Table.overwrite_where": {"where": lambda world: "id > 0 OR id <= 0 OR id IS NULL"},
    "Table.merge": {"source": lambda world: ROWS, "where": lambda world: "target.id > 0"},
    "load": {"source": lambda world: mc.sources.files("memory://doors-landing", settle="0s")},
    "follow": {"source": lambda world: mc.sources.files("memory://doors-landing", settle="0s")},
}
# Arguments that mean something only together with another one.
TOGETHER: dict[tuple[str, str], dict[str, Any]] = {
    ("write", "overwrite"): {"mode": "overwrite"},
    ("write", "conflict"): {"mode": "overwrite"},
    ("write", "quarantine"): {"on_violation": "quarantine"},
    ("write", "max_violations"): {"on_violation": "quarantine"},
    ("Table.rollback", "tag"): {"version": None},
}


class Door(NamedTuple):
    """A public callable. open: what is called, in a world."""

    name: str
    parameters: tuple[str, ...]
    required: tuple[str, ...]
    open: Callable[[World], Callable[..., Any]]


def doors() -> Iterator[Door]:
    """Every function of the package, and every public method and property of its classes that takes arguments."""
    for name in mc.__all__:
        found = getattr(mc, name)
        if inspect.isfunction(found):
            yield _door(name, found, lambda world, found=found: found, skip=0)
    yield _door("Table", mc.Table.__init__, lambda world: mc.Table, skip=1)
    yield from _methods("Table", mc.Table, lambda world: mc.Table(world.url))
    yield from _methods("Job", mc.Job, lambda world: mc.begin(world.url))


def _methods(name: str, kind: type, make: Callable[[World], Any]) -> Iterator[Door]:
    for each in dir(kind):
        found = inspect.getattr_static(kind, each)
        if kind is mc.Job and each not in (*PUBLIC, "__exit__"):
            continue
        if not inspect.isfunction(found) or (each.startswith("_") and each != "__exit__"):
            continue
        yield _door(f"{name}.{each}", found, lambda world, each=each: getattr(make(world), each), skip=1)


def _door(name: str, found: Any, opened: Callable[[World], Callable[..., Any]], *, skip: int) -> Door:
    parameters = list(inspect.signature(found).parameters.values())[skip:]
    required = tuple(each.name for each in parameters if each.default is each.empty)
    return Door(name, tuple(each.name for each in parameters), required, opened)


class Call(NamedTuple):
    """What a call came to. kind: "done", "refused" (an error of this package) or "untyped"."""

    door: str
    parameter: str
    value: str
    kind: str
    error: BaseException | None
    changed: bool  # an object is there that was not, or is another


# Arguments that hold others: each hostile value inside of them, too.
INSIDE: dict[str, Callable[[Any], Any]] = {
    "overwrite": lambda value: {"day": value}, "watermarks": lambda value: {"s": (20, value)}, "sources": lambda value: {"s": (value, 30)},
    "properties": lambda value: {"mine": value}, "ends": lambda value: {"s": value}, "storage_options": lambda value: {"key": value},
    "partition_by": lambda value: [value], "columns": lambda value: [value], "on": lambda value: [value], "sort_by": lambda value: [value],
    "paths": lambda value: [value], "jobs": lambda value: [value],
}  # fmt: skip


def calls(part: int, parts: int) -> Iterator[Call]:
    """Each door, with each argument, with each hostile value; one after the other, each in a world of its own. One in so many of them: the
    values take turns, from argument to argument."""
    arguments = [(door, parameter) for door in doors() for parameter in door.parameters]
    for turn, (door, parameter) in enumerate(arguments, start=part):
        for value, make in itertools.islice(HOSTILE.items(), turn % parts, None, parts):
            yield call(door, {parameter: value}, {parameter: make()})
            if (wrap := INSIDE.get(parameter)) is not None:
                yield call(door, {parameter: f"{value}, inside"}, {parameter: wrap(make())})
    for door in doors() if part == 0 else ():
        for one, other in itertools.permutations(door.required, 2):
            yield call(door, {one: f"what is meant for {other}"}, {one: _valid(door, other)})


def _valid(door: Door, name: str) -> Callable[[World], Any]:
    return ALSO.get(door.name, {}).get(name) or VALID[name]


def call(door: Door, said: dict[str, str], hostile: dict[str, Any]) -> Call:
    """One of them. said: the argument and what is wrong with it, for people."""
    ((parameter, value),) = said.items()
    world = World()
    try:
        given = {name: _valid(door, name)(world) for name in {**dict.fromkeys(door.required), **ALSO.get(door.name, {})}}
        given |= TOGETHER.get((door.name, parameter), {})
        given |= {name: each(world) if value.startswith("what is meant") else each for name, each in hostile.items()}
        return attempt(world, door, parameter, value, given)
    finally:
        world.close()


def attempt(world: World, door: Door, parameter: str, value: str, given: dict[str, Any]) -> Call:
    """The call, and what has changed since."""
    opened = door.open(world)
    before = world.objects()
    error: BaseException | None = None
    kind = "done"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            consume(opened(**given))
    except mc.errors.ManifestCommitError as caught:
        kind, error = "refused", caught
    except Exception as caught:
        kind, error = "untyped", caught
    return Call(door.name, parameter, value, kind, error, world.objects() != before)


def consume(made: Any) -> None:
    """Whatever a call returns is looked at: an error may wait in it."""
    repr(made)
    if isinstance(made, pa.dataset.Dataset):
        made.to_table()
    elif isinstance(made, msgspec.Struct):
        with contextlib.suppress(TypeError):
            msgspec.to_builtins(made)


def main(part: str = "0", parts: str = "1", *paths: str) -> int:
    """Print a line for each call that ended in an error of another kind; write all of them into a file, if one is named."""
    os.chdir(tempfile.mkdtemp(prefix="doors-"))  # some of the hostile roots are those of tables beside it
    found = list(calls(int(part), int(parts)))
    for each in found:
        if each.kind == "untyped":
            print(f"{each.door}({each.parameter}={each.value}): {type(each.error).__name__}: {str(each.error)[:100]!r}")
    print(f"{len(found):,} calls, {sum(each.kind == 'untyped' for each in found)} with an error of another kind")
    for path in paths:
        with open(path, "w") as out:
            told = (
                {"error": type(each.error).__name__, "message": str(each.error).encode(errors="backslashreplace").decode()}
                if each.error
                else {"error": "", "message": ""}
                for each in found
            )
            json.dump([{**each._asdict(), **error} for each, error in zip(found, told, strict=True)], out)
    return 0


if __name__ == "__main__":
    sys.modules["pyspark"] = None  # type: ignore[assignment]
    sys.exit(main(*sys.argv[1:]))
