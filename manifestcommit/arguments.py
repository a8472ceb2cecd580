"""Public calls check what they are given before anything is read: one rule for each argument, by
its name. [SE3] [SE1]

Internal: it may change in any release.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, get_args

from .errors import UsageError
from .format.change import ConflictChoice
from .log.time_travel import parse_age, to_micros
from .runtime.validation import (
    Rule,
    anything,
    column_type,
    condition,
    duckdb_connection,
    flag,
    function,
    mapping,
    message,
    metadata,
    names,
    one_of,
    option_names,
    optional,
    paths,
    position,
    ranges,
    root,
    roots,
    roots_with_versions,
    size,
    spark_session,
    text,
    whole,
    wrong,
)
from .store import StorageOptions

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=type[Any])


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


def flag_or_names(name: str, value: Any) -> Any:
    """True, False or columns."""
    return value if isinstance(value, bool) else names(name, value)


REASON = text(
    "a text that says why, for those who read the history later",
    "'wrong file delivered'",
    blank=False,
)
_WORK = text("a non-empty text that is the same on every rerun of this work", "'flights:2013-01'")
_FLAGS = (
    "abort",
    "alone",
    "deep",
    "dry_run",
    "exist_ok",
    "foreign",
    "lazy",
    "merge_schema",
    "only_manifests",
    "publish",
    "recoverable",
    "replace_schema",
    "restart",
    "rewrite",
)
_OTHERWISE_CHECKED = (
    "data",
    "default",
    "jobs",
    "schema",
    "table",
)  # by what they mean, where it is known

RULES: dict[str, Rule] = {
    **dict.fromkeys(_FLAGS, flag),
    **dict.fromkeys(_OTHERWISE_CHECKED, anything),
    **dict.fromkeys(("self", "ctx", "kind", "error", "trace"), anything),
    "as_of": optional(moment),
    "columns": optional(names),
    "condition": text("SQL that is true or false of a row, as a text", "'amount > 0'"),
    "conflict": one_of(*get_args(ConflictChoice)),
    "connection": optional(duckdb_connection),
    "end_version": optional(whole(1)),
    "every": age,
    "end": position,
    "ends": optional(mapping("a mapping of each source to its end", "{'topic:0': 12345}")),
    "filter": optional(condition),
    "fingerprint": optional(_WORK),
    "grace": optional(age),
    "job_id": text("the id of a job, as OutcomeUnknownError and `jobs` name it", "'v7-…'"),
    "keep": optional(one_of("last")),
    "keep_for": optional(age),
    "keep_keys": optional(whole(0)),
    "keep_keys_for": optional(age),
    "keep_versions": optional(whole(1)),
    "from_": optional(source_format),
    "key": optional(_WORK),
    "limit": optional(whole(0)),
    "max_bytes": size,
    "max_errors": whole(0),
    "max_time": optional(age),
    "message": optional(message),
    "min_files": whole(2),
    "metadata": optional(metadata),
    "mode": one_of("append", "overwrite", "error", "ignore"),
    "name": text("a name, as a text", "'flight'"),
    "new_name": text("a name, as a text", "'flight'"),
    "null_safe": flag_or_names,
    "on": names_or_pairs,
    "max_violations": optional(share_or_count),
    "on_violation": one_of("error", "quarantine"),
    "overwrite": anything,
    "partition_by": optional(names),
    "path": root,
    "paths": paths,
    "position": whole(None),
    "progress": optional(function),
    "properties": mapping("a mapping of names to texts", "{'write.bounds-columns': '32'}"),
    "quarantine": optional(root),
    "reason": REASON,
    "set": mapping("a mapping of each column to its new value", "{'delay': 'delay + 1'}"),
    "sort_by": optional(names),
    "source": text("the name of a source, as a text", "'topic:0'"),
    "sources": ranges,
    "spark": optional(spark_session),
    "start": optional(position),
    "start_version": whole(1),
    "storage_options": optional(option_names),
    "tables": roots,
    "tag": optional(text("the name of a tag, as a text", "'audited'")),
    "based_on": optional(whole(1)),
    "by": optional(text("the name of a column of the source", "'updated_at'")),
    "target_file_size": optional(size),
    "to": optional(position),
    "tries": whole(1),
    "type": column_type,
    "version": optional(whole(None)),
    "versions": roots_with_versions,
    "watermarks": ranges,
    "where": optional(condition),
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
    """Check the arguments of a public call by the rules of their names. own: rules of this call in
    place of those. [SE3]

    An argument without a rule is an error when the module is imported. Storage options are hidden
    before anything else can fail: no frame of this package holds their values, so that no tool that
    prints frames shows one. [SE1]
    """

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
