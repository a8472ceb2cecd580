"""The public surface: what `manifestcommit` exports is all that its signatures name, and it is spelled one way."""

import argparse
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pandas
import polars
import pyarrow.compute
import pyarrow.dataset
import pyspark.sql
import pyspark.sql.types
import pytest

import manifestcommit as mc
from manifestcommit import checks
from manifestcommit.cli import main as main_module
from manifestcommit.job import PUBLIC
from manifestcommit.transactions import PreparedTransaction

# What the modules import for type checkers only: in annotations they are names without a value.
LATE = {
    "Any": Any, "Condition": str | pyarrow.compute.Expression | pyspark.sql.Column, "Erasure": mc.Erasure, "Export": mc.Export,
    "Report": mc.Report, "DataFrame": pyspark.sql.DataFrame, "Path": str, "Resolution": mc.Resolution, "Staged": mc.Staged,
    "Mapping": Mapping, "SparkSession": pyspark.sql.SparkSession, "StructType": pyspark.sql.types.StructType, "ds": pyarrow.dataset,
    "duckdb": duckdb, "pandas": pandas, "polars": polars,
}  # fmt: skip
ELSEWHERE = "builtins collections datetime os pathlib types typing pyarrow pyspark pandas polars duckdb _duckdb"
# Its members are those of the object that the specification describes (OB2); no signature names their types.
OF_THE_FORMAT = {mc.Snapshot}


def classes() -> Iterator[type]:
    for name in mc.__all__:
        if isinstance(found := getattr(mc, name), type):
            yield found


def callables() -> Iterator[tuple[str, Any]]:
    """Every public function, method and property, by its name; also a constructor that users call."""
    for name in mc.__all__:
        found = getattr(mc, name)
        if inspect.isfunction(found):
            yield name, found
    yield "Table", mc.Table.__init__
    for kind in classes():
        if issubclass(kind, BaseException):
            continue
        for name in dir(kind):
            found = inspect.getattr_static(kind, name)
            if (
                name.startswith("_")
                or (kind is mc.Job and name not in PUBLIC)
                or getattr(found, "__module__", "manifestcommit").partition(".")[0] != "manifestcommit"
            ):
                continue
            if isinstance(found, property) and (found.fget.__module__ or "").startswith("manifestcommit"):
                yield f"{kind.__name__}.{name}", found.fget
            elif inspect.isfunction(found):
                yield f"{kind.__name__}.{name}", found


CALLABLES = dict(callables())


def hints(found: Any) -> dict[str, Any]:
    inner = inspect.unwrap(found)
    return typing.get_type_hints(inner, globalns={**inner.__globals__, **LATE})


def named(hint: Any) -> Iterator[type]:
    """The classes that an annotation names, those inside of others too."""
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    elif typing.get_origin(hint) is not typing.Literal:
        for part in (typing.get_origin(hint), *typing.get_args(hint)):
            if isinstance(part, list):
                for each in part:
                    yield from named(each)
            elif part is not None:
                yield from named(part)


def test_there_are_no_fewer_than_there_were() -> None:
    assert len(CALLABLES) > 60 and {"write", "Table", "Table.compact", "Job.abort", "gc", "Table.plan_gc"} <= CALLABLES.keys()
    assert mc.__all__ == sorted(mc.__all__) and set(mc.__all__) <= set(dir(mc))


def test_a_job_shows_what_is_public_of_it(tmp_path: Path) -> None:
    """Its other members are for the package: neither a prompt nor the reference page lists them."""
    job = mc.begin(tmp_path / "t")
    page = (Path(__file__).parents[2] / "docs/reference/job.md").read_text("utf-8")
    assert dir(job) == sorted(PUBLIC) and all(hasattr(job, name) for name in PUBLIC)
    assert f"members: [{', '.join(each for each in PUBLIC if each != 'outcome')}]" in page


@pytest.mark.parametrize("name", CALLABLES)
def test_every_type_of_a_signature_is_exported(name: str) -> None:
    """But that of what `Transaction.prepare` returns: its members are said there, and nobody makes one."""
    public = {*classes(), PreparedTransaction, checks.Check, mc.sources.Source}
    for hint in hints(CALLABLES[name]).values():
        for kind in named(hint):
            assert kind in public or kind.__module__.partition(".")[0] in ELSEWHERE.split(), f"{name} names {kind}"


@pytest.mark.parametrize("kind", [kind for kind in classes() if issubclass(kind, msgspec.Struct) and kind not in OF_THE_FORMAT])
def test_every_type_of_a_field_is_exported(kind: type) -> None:
    public = {*classes(), mc.errors.ManifestCommitError}
    for field, hint in typing.get_type_hints(kind).items():
        for part in named(hint):
            assert part in public or part.__module__.partition(".")[0] in ELSEWHERE.split(), f"{kind.__name__}.{field} is a {part}"


@pytest.mark.parametrize("name", [name for name, call in CALLABLES.items() if typing.get_overloads(call)])
def test_every_overload_has_every_parameter(name: str) -> None:
    """Whoever reads one of them, or checks types by it, sees them all; those of a typed dictionary are parameters like others."""
    names = sorted(inspect.signature(CALLABLES[name]).parameters)
    for each in typing.get_overloads(CALLABLES[name]):
        found = {*inspect.signature(each).parameters}
        if (told := re.search(r"Unpack\[(\w+)\]", str(each.__annotations__.get("options")))) is not None:
            found = found - {"options"} | {*getattr(sys.modules[each.__module__], told[1]).__annotations__}
        assert sorted(found) == names


@pytest.mark.parametrize("name", CALLABLES)
def test_no_bool_is_positional(name: str) -> None:
    """`write(data, path, True)` would tell nobody what is true."""
    for parameter in inspect.signature(CALLABLES[name]).parameters.values():
        if isinstance(parameter.default, bool):
            assert parameter.kind is parameter.KEYWORD_ONLY, f"{name}({parameter.name})"


@pytest.mark.parametrize("name", [name for name, found in CALLABLES.items() if inspect.isfunction(found) and "." not in name])
def test_a_table_is_named_by_its_path_first(name: str) -> None:
    """The data, or its datasource, alone comes before it; what takes jobs needs none, and what acts in a session begins with that."""
    first = [each for each in inspect.signature(CALLABLES[name]).parameters if each not in ("data", "source", "self")]
    several = ("maintain", "read_together", "rollback_together", "transaction")
    assert first[0] == "path" or name in ("attach", "register", "sql", *several)


# --- one name in Python, in Spark's options and on the command line ---------------------------------------------------------
# Python's parameter -> the option of format("manifestcommit"), the argument of the command; None: there is none of it.
NAMES: dict[str, tuple[str | None, str | None]] = {
    "path": ("path", "PATH"),
    "version": ("version", "--version"),
    "as_of": ("asOf", "--as-of"),
    "tag": ("tag", "--tag"),
    "columns": ("columns", "--columns"),
    "on": ("on", "--on"),
    "filter": (None, "--filter"),
    "partition_by": ("partitionBy", "--partition-by"),
    "from_": (None, "--from"),
    "rewrite": (None, "--rewrite"),
    "key": ("key", "--key"),
    "fingerprint": ("fingerprint", None),
    "watermarks": ("watermarks", None),
    "overwrite": ("overwrite", None),
    "conflict": ("conflict", None),
    "based_on": ("basedOn", None),
    "merge_schema": ("mergeSchema", "--merge-schema"),
    "replace_schema": ("replaceSchema", None),
    "target_file_size": ("targetFileSize", "--target-file-size"),
    "storage_options": (None, "--storage-options"),  # Spark shows options in plans: `register` takes them [SE1]
    "where": (None, "--where"),
    "sort_by": (None, "--sort-by"),
    "max_bytes": (None, "--max-bytes"),
    "only_manifests": (None, "--only-manifests"),
    "dry_run": (None, "--dry-run"),
    "spark": (None, None),
    "grace": (None, "--grace"),
    "keep_versions": (None, "--keep-versions"),
    "keep_for": (None, "--keep-for"),
    "alone": (None, "--alone"),
    "outcome": (None, "--outcome"),
    "keep_keys": (None, "--keep-keys"),
    "keep_keys_for": (None, "--keep-keys-for"),
    "foreign": (None, "--foreign"),
    "deep": (None, "--deep"),
    "limit": (None, "--limit"),
    "ends": (None, "--ends"),
    "last": (None, "--last"),
    "gc": (None, "--gc"),
    "reason": (None, "--reason"),
    "message": ("message", "--message"),
    "metadata": ("metadata", "--metadata"),
    "to": (None, "--to"),
    "to_options": (None, "--to-options"),
    "source": (None, "SOURCE"),
    "position": (None, "POSITION"),
    "comment": (None, "TEXT"),
    "default": (None, "--default"),
    "name": (None, "NAME"),
    "new_name": (None, "NEW"),
    "type": (None, "TYPE"),
    "job_id": (None, "JOB"),
    "start_version": (None, "START"),
    "end_version": (None, "END"),
    "max_errors": (None, "--max-errors"),
    "max_time": (None, "--max-time"),
    "min_files": (None, "--min-files"),
    "restart": (None, "--restart"),
    "every": (None, "--every"),
    "on_violation": (None, "--on-violation"),
    **{name: (None, f"--{name.replace('_', '-')}") for name in ("drop_tags", "abort_jobs", "followers", "clones")},
}
# Spark's own, and those of streams, which only Spark has.
ONLY_SPARK = {"checkpointLocation", "queryName", "startingVersion", "maxFilesPerTrigger", "onOverwrite"}
# How the command shows what it found; and `to=None`, which no text can say.
ONLY_COMMAND = {"--json", "--format", "--bytes", "--yes", "--bounds", "--forget", "--help", "--output", "--open"}
# What a command adds to its call: filters of what the call returns, changes one by one, plans.
_OF_FILES = {*("--input-format", "--pattern", "--file-column", "--settle", "--on-changed", "--csv-options", "--source-options", "--on")}
_OF_POSTGRES = {"--dsn-file", "--xid-column", "--slot", "--history", "--query-name", "--on-failover"}
_OF_KAFKA = {"--servers", "--kafka-settings", "--value", "--record-columns", "--start", "--until", "--on-broken", "--on-lost"}
OF_SOURCES = _OF_FILES | _OF_POSTGRES | _OF_KAFKA
ONLY_OF = {
    "load": OF_SOURCES, "follow": OF_SOURCES, "head": {"--limit"}, "maintain": {"--every"}, "changes": {"--rows", "--limit"},
    "properties": {"--set", "--unset"}, "constraints": {"--add", "--drop"},
    **{name: {"--dry-run"} for name in ("rollback", "rewind", "abort", "drop-column", "untag")},
}  # fmt: skip
# Commands that are called something else in Python, and those about no table.
CALLED = {
    "changes": "changed_files", "head": "to_arrow", "schema": "snapshot", "properties": "set_properties", "constraints": "add_constraint",
}  # fmt: skip
WITHOUT_TABLE = {"help", "tables", "serve"}
PLACE = {"self", "path", "storage_options"}
# A rehearsal that results in something else than the act is a call of its own.
DRY_RUNS = {"gc": "plan_gc", "compact": "plan_compaction"}


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def test_a_parameter_has_one_name_everywhere() -> None:
    """camelCase of the same words as an option of Spark, kebab-case on the command line."""
    parameters = {name for found in CALLABLES.values() for name in inspect.signature(found).parameters}
    for name, (option, argument) in NAMES.items():
        assert name in parameters
        assert option in (None, camel(name))
        word = name.removesuffix("_")  # from_: Python keeps the word for itself
        assert argument is None or argument == f"--{word.replace('_', '-')}" or argument.isupper()


def test_every_option_of_spark_is_a_parameter_of_python() -> None:
    from manifestcommit.spark import datasource

    options = {*datasource.WRITE_OPTIONS, *datasource.STREAM_WRITE_OPTIONS, *datasource.READ_OPTIONS, *datasource.STREAM_READ_OPTIONS}
    assert options - ONLY_SPARK == {option for option, _ in NAMES.values() if option is not None}
    assert set(datasource.WRITE_OPTIONS) <= {camel(name) for name in inspect.signature(mc.write).parameters}
    assert set(datasource.READ_OPTIONS) <= {camel(name) for name in inspect.signature(mc.read_committed).parameters}


def commands() -> dict[str, argparse.ArgumentParser]:
    parser = main_module.make_parser()
    (found,) = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found)


def test_every_command_and_its_arguments_are_calls_and_parameters_of_python() -> None:
    """A command is a method of `Table`, or a function, of that name; what it takes, that takes."""
    seen: set[str] = set()
    by_argument = {argument: name for name, (_, argument) in NAMES.items() if argument is not None} | {"TO": "to"}
    for command, parser in commands().items():
        if command in WITHOUT_TABLE:
            continue
        method = CALLED.get(command, command.replace("-", "_"))
        called = getattr(mc.Table, method, None) or getattr(mc, method)
        taken = {*inspect.signature(called).parameters, *inspect.signature(mc.Table).parameters}
        if command in ("files", "watermarks"):  # of any version: `Table.snapshot` chooses it
            taken |= set(inspect.signature(mc.Table.snapshot).parameters)
        if "--message" in parser._option_string_actions:  # of the commits of a table: `Table.noting` says it
            taken |= set(inspect.signature(mc.Table.noting).parameters)
        if command == "changes":  # `--rows` reads them
            taken |= set(inspect.signature(mc.Table.changed_rows).parameters)
        for action in parser._actions:
            argument = action.option_strings[-1] if action.option_strings else str(action.metavar)
            if argument in ONLY_COMMAND | ONLY_OF.get(command, set()):
                continue
            if argument == "--dry-run" and command in DRY_RUNS:
                planned = set(inspect.signature(getattr(mc.Table, DRY_RUNS[command])).parameters)
                assert planned <= taken, "what plans takes what acts takes"
                continue
            if argument == "--together-with":  # of several tables
                assert taken - {"version", "tag", "alone"} <= {*inspect.signature(getattr(mc, f"{command}_together")).parameters, *PLACE}
                continue
            name = "version" if argument == "VERSION" else by_argument[argument]
            assert action.dest == name and name in taken, f"{command} {argument}"
            seen.add(argument)
    assert seen >= set(by_argument)


def test_one_act_has_one_word() -> None:
    """To abort is to abort: in what people read, too."""
    texts = [inspect.getdoc(CALLABLES[name]) or "" for name in CALLABLES] + [parser.format_help() for parser in commands().values()]
    for text in [*texts, main_module.make_parser().format_help()]:
        assert not re.search(r"\b(abandon|g[ia]ve[sn]? (it |them |each |a job )?up|cancel)", text), text
