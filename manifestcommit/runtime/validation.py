"""Public calls check what they are given before anything is read: one rule for each argument, by
its name; a rule returns the value, or raises a UsageError that names the argument. [SE3] [SE1]
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any, ParamSpec, TypeVar, get_args

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import UsageError
from ..format.change import Advance, ConflictChoice, Position, check_advance
from ..format.entries import SourceRange
from ..format.fields import ArrayType, MapType, StructType, is_text, is_unicode, shown
from ..format.object_names import is_job_id
from ..format.snapshot import Note, check_message, check_metadata, find_credential
from ..store.base import StorageOptions, split_url

Ranges = Mapping[str, tuple[int | str | None, int | str]]  # source -> start, end; half-open
Rule = Callable[[str, Any], Any]  # the argument's name and value -> the value, or UsageError

_LONGEST_ROOT = 4096  # bytes: PATH_MAX; the keys of object stores are shorter
_LONGEST_PART = 255  # bytes of one name in a folder
_LARGEST = 2**63 - 1
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]?)(i?)b?", re.IGNORECASE | re.ASCII)
P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=type[Any])


def wrong(name: str, value: object, expected: str, example: str = "") -> UsageError:
    """The error that says what was given and what was expected, with an example. [SE3]"""
    such = f", such as {example}" if example else ""
    return UsageError(f"expected {expected}{such}", argument=name, given=shown(value))


def anything(name: str, value: Any) -> Any:
    """Accept any value: it is checked later, where more is known."""
    return value


def optional(rule: Rule) -> Rule:
    """Accept None, or what the rule accepts."""

    def check(name: str, value: Any) -> Any:
        return None if value is None else rule(name, value)

    return check


def fits(is_one: Callable[[Any], bool], expected: str, example: str = "") -> Rule:
    """Accept, as it is, what this is true of."""

    def check(name: str, value: Any) -> Any:
        if not is_one(value):
            raise wrong(name, value, expected, example)
        return value

    return check


# no other truthy value: `dry_run="no"` would be true
flag = fits(lambda value: isinstance(value, bool), "True or False")


def is_whole(value: object) -> bool:
    """Whether it is a whole number, of numpy, too: for Python a bool is one."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def within(least: int, most: int, expected: str = "") -> Rule:
    """A whole number between these bounds, both included."""

    def check(name: str, value: Any) -> int:
        if not is_whole(value) or not least <= int(value) <= most:
            raise wrong(name, value, expected or f"a whole number from {least} to {most}")
        return int(value)

    return check


def whole(least: int | None) -> Rule:
    """A whole number from `least` on that fits 64 bits."""
    if least is None:
        return within(-_LARGEST, _LARGEST, "a whole number")
    return within(least, _LARGEST, f"a whole number from {least} on")


def one_of(*choices: str, more: str = "") -> Rule:
    """One of these texts. more: what an error adds to them."""
    expected = " or ".join(f'"{choice}"' for choice in choices) + more
    return fits(lambda value: isinstance(value, str) and value in choices, expected)


def text(expected: str, example: str, *, blank: bool = True) -> Rule:
    """A text that can be stored. blank: accept one of nothing but spaces, too. [SC7]"""

    def check(name: str, value: Any) -> str:
        if not is_text(value) or not (blank or value.strip()):
            raise wrong(name, value, expected, example)
        return str(value)

    return check


def names(name: str, value: Any) -> list[str]:
    """One text, or a list of texts."""
    given, expected = [value] if isinstance(value, str) else value, "a text or a list of texts"
    if isinstance(given, Mapping | bytes) or not isinstance(given, Iterable):
        raise wrong(name, value, expected, "['day', 'hour']")
    items = list(given)
    if not all(map(is_text, items)):
        raise wrong(name, items, f"{expected}, none of them empty", "['day', 'hour']")
    return items


file_name = fits(
    lambda value: (
        isinstance(value, str | os.PathLike)
        and "\0" not in (text := os.fspath(value))
        and text != ""
    ),
    "the name of a file",
    "'report.html'",
)


def paths(name: str, value: Any) -> list[str]:
    """A list of paths relative to the table path; not one text, which is a list of letters."""
    if isinstance(value, str):
        expected = "a list of paths relative to the table path, not one text"
        raise wrong(name, value, expected, "['day=1/a.parquet']")
    return names(name, value)


def root(name: str, value: Any) -> Any:
    """A path or a URL that stores can hold; the first of two arguments may be the data. [ST4]"""
    expected = "the table path, a local path or a URL"
    example = "'/lake/flights' or 's3://bucket/lake/flights'"
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(path, str):
        if hasattr(value, "__arrow_c_stream__"):
            example += "; write takes the data first, then the table path"
        raise wrong(name, value, expected, example)
    parts = path.replace(os.sep, "/").split("/")
    if (
        "\0" in path
        or not is_unicode(path)
        or len(path.encode()) > _LONGEST_ROOT
        or any(len(part.encode()) > _LONGEST_PART for part in parts)
    ):
        why = (
            f"without NUL and lone surrogates, of at most {_LONGEST_ROOT:,} bytes, and "
            f"{_LONGEST_PART} between two slashes"
        )
        raise wrong(name, "" if "@" in path or "?" in path else path, f"{expected}, {why}", example)
    split_url(path)  # here, where a refusal loses its frames, which hold what was given
    return value


def roots(name: str, value: Any) -> Any:
    """Tables: the paths among them are paths; a list, since an iterator is read once. [SE1]"""
    found: Iterable[Any]
    if isinstance(value, Mapping):
        found = value.values()
    elif isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
        found = (value,)
    else:
        found = value = list(value)
    for each in found:
        if isinstance(each, str | os.PathLike):
            root(name, each)
    return value


def roots_with_versions(name: str, value: Any) -> Any:
    """A mapping whose keys are tables. [SE1]"""
    roots(name, value.keys() if isinstance(value, Mapping) else value)
    return value


def size(name: str, value: Any) -> int:
    """Bytes above 0: a number, or a text such as "128MB", of powers of 1000, or "1GiB", of 1024."""
    bytes_ = 0
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is not None and (match[2] or not match[3]):
            power = " kmgt".index(match[2].lower() or " ")
            bytes_ = int(float(match[1]) * (1024 if match[3] else 1000) ** power)
    elif is_whole(value):
        bytes_ = int(value)
    if not 1 <= bytes_ <= _LARGEST:
        expected = "a number of bytes above 0, or a text with a unit"
        raise wrong(name, value, expected, "134217728, '128MB' or '1GiB'")
    return bytes_


function = fits(callable, "a function that takes a text", "print")


def mapping(expected: str, example: str) -> Rule:
    """A mapping; its contents are checked where it is used."""
    return fits(lambda value: isinstance(value, Mapping), expected, example)


# a selection of rows or files
condition = fits(
    lambda value: (
        (is_text(value) and bool(value.strip()))
        or isinstance(value, pc.Expression)
        or is_spark(value, "Column")
    ),
    "a pyarrow expression, a Spark Column or SQL",
    "pyarrow.compute.field('flight') == 1545",
)
# without importing DuckDB or pyspark
duckdb_connection = fits(
    lambda value: type(value).__name__ == "DuckDBPyConnection",
    "a connection of DuckDB, or None for the module's own",
    "duckdb.connect()",
)
spark_session = fits(
    lambda value: is_spark(value, "SparkSession"),
    "a SparkSession, or None for the active one",
    "SparkSession.builder.getOrCreate()",
)
column_type = fits(
    lambda value: (
        is_text(value) or isinstance(value, pa.DataType | StructType | ArrayType | MapType)
    ),
    "a pyarrow type, or the name of a type of Spark or SQL",
    "pyarrow.int64() or 'decimal(10,2)'",
)
# whether it does hold rows is checked when it is read
rows = fits(
    lambda value: (
        hasattr(value, "__arrow_c_stream__")
        or is_spark(value, "DataFrame")
        or any(
            base.__module__.partition(".")[0] in ("pyarrow", "pandas", "polars", "duckdb")
            for base in type(value).__mro__
        )
    ),
    "rows: a Spark DataFrame, or anything with __arrow_c_stream__",
    "a pyarrow.Table",
)


def is_spark(value: Any, kind: str) -> bool:
    """Whether it is such an object of Spark, checked without importing pyspark."""
    return any(
        base.__module__.startswith("pyspark.sql.") and base.__name__ == kind
        for base in type(value).__mro__
    )


def is_spark_dataframe(data: object) -> bool:
    """Whether it is a Spark DataFrame, classic or Connect, without importing pyspark."""
    return is_spark(data, "DataFrame")


def option_names(name: str, value: Any) -> Any:
    """Storage options; only their names are checked. [SE1]"""
    if not all(map(is_text, value)):
        what = "expected texts as the names of options, such as endpoint_url"
        raise UsageError(what, argument=name)
    return value


def position(name: str, value: Any) -> Any:
    """A position of a source: a whole number that fits 64 bits, or a text. [WM3]"""
    if is_whole(value) and abs(int(value)) <= _LARGEST + 1:
        return int(value)
    if not (isinstance(value, str) and is_unicode(value)):
        raise wrong(name, value, "a position: a whole number of 64 bits, or a text", "27004")
    return value


def ranges(name: str, value: Any) -> Any:
    """Ranges of sources, well-formed. [WM3]"""
    advances_of(value)
    return value


def _recorded(check: Callable[[Any], Any], part: str, example: str) -> Rule:
    """A part of a note that can be recorded and holds no credential. [OB15] [SE5]"""

    def rule(name: str, value: Any) -> Any:
        try:
            checked = check(value)
        except ValueError as error:
            given, _, why = str(error).partition(": ")
            raise UsageError(f"{why}, such as {example}", argument=name, given=given) from None
        if (found := find_credential(Note(**{part: checked}))) is not None:
            raise UsageError(
                f"{found}, and everybody who reads the table could read it for as long as it "
                "exists. Nothing was done: leave it out",
                argument=name,
            )
        return checked

    return rule


message = _recorded(check_message, "message", "'late corrections of May'")
metadata = _recorded(check_metadata, "metadata", "{'airflow_run': 'manual__2013-01-02'}")


def advance_of(source: object, start: object, end: object) -> Advance:
    """A well-formed range of a source, or UsageError. [WM3]"""
    try:
        return check_advance(source, start, end)
    except ValueError as error:
        raise UsageError(str(error)) from None


def origins_of(sources: Mapping[str, int | str | None] | None) -> dict[str, Position]:
    """Where each source begins; UsageError, naming it, for no position. [WM3] [WM7]"""
    given: Any = sources if sources is not None else {}
    if not isinstance(given, Mapping):
        raise UsageError(
            f"sources maps each source to where it begins, such as {{'orders': 0}}; this is "
            f"{given!r}"
        )
    for source, origin in given.items():
        advance_of(source, origin, 0 if origin is None else origin)
    return {str(source): origin for source, origin in given.items()}


def advances_of(ranges: Ranges | None) -> tuple[Advance, ...]:
    """The ranges of all sources; UsageError, naming the source, for no range. [WM3]"""
    given: Any = ranges if ranges is not None else {}
    expected = "watermarks and sources map a source to (start, end), half-open"
    if not isinstance(given, Mapping):
        raise UsageError(f"{expected}; this is {shown(given)}")
    for source, pair in given.items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise UsageError(f"{expected}; {shown(source)} has {shown(pair)}")
    return tuple(advance_of(source, *pair) for source, pair in given.items())


def source_ranges_of(sources: Ranges | None) -> tuple[SourceRange, ...]:
    """The ranges of a file's rows, well-formed like advances. [OB8] [WM3]"""
    return tuple(SourceRange(**msgspec.structs.asdict(each)) for each in advances_of(sources))


# Times and ages.

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_AGE = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def to_datetime(micros: int) -> dt.datetime:
    """An aware datetime in UTC, at most the last one: the end of a tag may be later."""
    try:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
    except OverflowError:
        return (dt.datetime.max if micros > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def to_micros(moment: str | dt.datetime) -> int:
    """Microseconds since the epoch of a datetime or an ISO text; without a zone it is UTC. [RD4]"""
    try:
        time = dt.datetime.fromisoformat(moment) if isinstance(moment, str) else moment
        if isinstance(time, dt.datetime):
            has_zone = time.tzinfo is not None
            time = time.astimezone(dt.UTC) if has_zone else time.replace(tzinfo=dt.UTC)
    except (ValueError, OverflowError):  # not a time, or out of the range of UTC
        time = None
    if not isinstance(time, dt.datetime):
        raise wrong("as_of", moment, "a datetime or an ISO text", "2013-01-31T12:00:00Z")
    return (time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def parse_age(age: str | dt.timedelta, argument: str = "age") -> float:
    """Seconds of a timedelta, or of a text such as "24h", "7d", "90m"; never negative. [GC1]"""
    if isinstance(age, dt.timedelta):
        seconds = age.total_seconds()
    else:
        match = _AGE.fullmatch(age) if isinstance(age, str) else None
        seconds = int(match[1]) * _UNITS[match[2]] if match else -1.0
    if seconds < 0:
        expected = "a timedelta, or a number with a unit (s, m, h, d, w), and not below 0"
        raise wrong(argument, age, expected, "24h or 7d")
    return seconds


def moment(name: str, value: Any) -> Any:
    """A point in time. [RD4]"""
    to_micros(value)
    return value


def share_or_count(name: str, value: Any) -> int | float:
    """A whole number from 0 on, or a share below 1.0."""
    if isinstance(value, float) and 0.0 <= value < 1.0:
        return value
    try:
        return int(whole(0)(name, value))
    except UsageError:
        raise wrong(name, value, "a whole number from 0 on, or a share below 1.0") from None


def age(name: str, value: Any) -> Any:
    """A length of time. [GC1]"""
    parse_age(value, name)
    return value


def source_format(name: str, value: Any) -> Any:
    """A format, or the path of an Iceberg document."""
    found = text("a format, or the path of an Iceberg document", "'iceberg'")(name, value)
    return root(name, found) if "://" in found else found


def _refusal(rules: Mapping[str, Rule], found: dict[str, Any]) -> UsageError | None:
    """What the rules have against these arguments, without a traceback that holds them. [SE1]"""
    for name, rule in rules.items():
        if name in found:
            try:
                found[name] = rule(name, found[name])
            except UsageError as error:
                error.__cause__ = error.__context__ = None
                return error.with_traceback(None)
    return None


def names_or_pairs(name: str, value: Any) -> Any:
    """Columns, or column of the table -> column of the source."""
    if not isinstance(value, Mapping):
        return names(name, value)
    return dict(zip(names(name, list(value)), names(name, list(value.values())), strict=True))


def tables(name: str, value: Any) -> list[Any]:
    """Paths of tables, one or several."""
    found = roots(name, value)
    return [root(name, each) for each in (found if isinstance(found, list) else [found])]


def flag_or_names(name: str, value: Any) -> Any:
    """True, False or columns."""
    return value if isinstance(value, bool) else names(name, value)


REASON = text(
    "a text that says why, for those who read the history later",
    "'wrong file delivered'",
    blank=False,
)
_WORK = text("a non-empty text that is the same on every rerun of this work", "'flights:2013-01'")
_NAME = text("a name, as a text", "'flight'")
# by what they mean, where it is known
_OTHERWISE_CHECKED = ("data", "default", "overwrite", "schema", "self", "settle", "table")

RULES: dict[str, Rule] = {
    **dict.fromkeys(("abort_jobs", "alone", "deep", "drop_tags", "dry_run", "exist_ok"), flag),
    **dict.fromkeys(("foreign", "merge_schema", "only_manifests", "publish", "rewrite"), flag),
    **dict.fromkeys(("recoverable", "replace_schema", "restart"), flag),
    **dict.fromkeys(_OTHERWISE_CHECKED, anything),
    "as_of": optional(moment),
    **dict.fromkeys(("clones", "followers"), tables),
    **dict.fromkeys(("columns", "partition_by", "sort_by"), optional(names)),
    "condition": text("SQL that is true or false of a row, as a text", "'amount > 0'"),
    "conflict": one_of(*get_args(ConflictChoice)),
    "connection": optional(duckdb_connection),
    "based_on": optional(whole(1)),
    **dict.fromkeys(("end_version", "keep_versions"), optional(whole(1))),
    "every": age,
    "end": position,
    "ends": optional(mapping("a mapping of each source to its end", "{'topic:0': 12345}")),
    **dict.fromkeys(("filter", "where"), optional(condition)),
    **dict.fromkeys(("fingerprint", "key"), optional(_WORK)),
    **dict.fromkeys(("grace", "keep_for", "keep_keys_for", "max_time"), optional(age)),
    "job_id": fits(
        lambda value: isinstance(value, str) and is_job_id(value),
        "the id of a job, as OutcomeUnknownError and `jobs` name it",
        "'v7-…'",
    ),
    "keep": optional(one_of("last")),
    **dict.fromkeys(("keep_keys", "limit"), optional(whole(0))),
    "from_": optional(source_format),
    "max_bytes": size,
    "max_errors": whole(0),
    "message": optional(message),
    "min_files": whole(2),
    "metadata": optional(metadata),
    "mode": one_of("append", "overwrite", "error", "ignore", more=" (upsert: Table.merge)"),
    **dict.fromkeys(("name", "new_name"), _NAME),
    "null_safe": flag_or_names,
    "on": names_or_pairs,
    "max_violations": optional(share_or_count),
    "on_violation": one_of("error", "quarantine"),
    "path": root,
    "paths": paths,
    "position": whole(None),
    "progress": optional(function),
    "properties": mapping("a mapping of names to texts", "{'write.bounds-columns': '32'}"),
    "quarantine": optional(root),
    "reason": REASON,
    "set": mapping("a mapping of each column to its new value", "{'delay': 'delay + 1'}"),
    "source": text("the name of a source, as a text", "'topic:0'"),
    **dict.fromkeys(("sources", "watermarks"), ranges),
    "spark": optional(spark_session),
    **dict.fromkeys(("start", "to"), optional(position)),
    "start_version": whole(1),
    "storage_options": optional(option_names),
    "tables": roots,
    "tag": optional(text("the name of a tag, as a text", "'audited'")),
    "by": optional(text("the name of a column of the source", "'updated_at'")),
    "target_file_size": optional(size),
    "type": column_type,
    "version": optional(whole(None)),
    "versions": roots_with_versions,
}


def part_of(owner: str) -> Callable[[K], K]:
    """Decorate a class with methods of the public `owner`, which Python's errors name then."""

    def rename(kind: K) -> K:
        for name, member in vars(kind).items():
            found = member.fget if isinstance(member, property) else member
            if inspect.isfunction(found):
                found.__qualname__ = f"{owner}.{name}"
        return kind

    return rename


def checked(**own: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a public call by the rules of their names, or by `own`; one without a
    rule is an error on import. Storage options are hidden before anything else can fail: no frame
    of this package holds their values, so that no tool that prints frames shows one. [SE3] [SE1]"""

    def check(called: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(called)
        rules = {
            each.name: own.get(each.name) or RULES[each.name]
            for each in signature.parameters.values()
            if each.kind is not each.VAR_KEYWORD
        }

        @functools.wraps(called)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            problem, named = "", call.__qualname__.removesuffix(".__init__")
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError as error:
                several = " (several names are one list)" if "columns" in rules else ""
                problem = f"{named}(): {error}{several}"
            del args, kwargs
            if problem:
                raise TypeError(problem)  # here: the frames of the other one hold what was given
            found = given.arguments
            if found.get("storage_options") is not None:
                found["storage_options"] = StorageOptions(found.pop("storage_options"))
            refusal = _refusal(rules, found)
            if refusal is not None:
                del given, found
                raise refusal
            return called(*given.args, **given.kwargs)

        return call

    return check
