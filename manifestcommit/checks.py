"""Checks of a staged job before it is published: `staged.check(checks.expect("amount > 0"))`.

A check of the job's own rows holds for good. One that reads the whole table, as it would be with
the job, holds for the version that it has seen: `publish` repeats it where others have changed rows
since, and one that reads another table where that has a newer version. A callable is a check, too:
it gets the job's own rows as a pyarrow table. It holds where it returns True or None, or a result
or dict whose `success` is True; it fails where it returns False, or such a `success`, or raises;
any other answer is a `UsageError`. `on_table` hands it the whole table.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .display import counted
from .errors import UsageError
from .runtime import validation
from .runtime.validation import checked, optional, text, whole

__all__ = ["Check", "expect", "expect_fresh", "expect_rows", "expect_unique"]
__all__ += ["expect_values_in", "on_table"]

_COLUMN = text("the name of a column", "'loaded_at'")


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check, made by the functions of this module.

    Attributes:
        name: what the record of the commit calls it.
        reads_table: whether it reads the whole table; else only the rows that the job adds.
        refers_to: the path of another table that it reads; None: of none.
        run: what it does: it gets the staged job and returns why it fails, a text; None: it holds.

    Spec: CK6, CK9.
    """

    name: str
    reads_table: bool
    refers_to: str | None = None
    run: Callable[[Any], str | None]


@checked(condition=text("SQL that is true or false of a row, as a text", "'amount > 0'"))
def expect(condition: str) -> Check:
    """Expect a condition of every row that the job adds.

    Args:
        condition: SQL on one row, as for `Table.add_constraint`; null passes.

    Returns:
        The check.

    Raises:
        UsageError: the condition is no text; `Staged.check` says whether it can be evaluated.

    Example:
        `checks.expect("amount BETWEEN 0 AND 1000000")`

    Spec: CK6.
    """
    return Check(
        name=f"expect({condition})",
        reads_table=False,
        run=lambda staged: staged._violation(condition),
    )


@checked(columns=validation.names)
def expect_unique(columns: list[str] | str) -> Check:
    """Expect no two rows of the table to have the same values in some columns.

    It reads these columns of the whole table. Rows with a null in one of them are not compared.

    Args:
        columns: the column, or several that are compared together; nested ones cannot be. All NaN
            are one value, and so are 0.0 and -0.0.

    Returns:
        The check.

    Raises:
        UsageError: `columns` are no names; `Staged.check` says whether the table has them.

    Spec: CK6.
    """
    given = [columns] if isinstance(columns, str) else list(columns)
    return Check(
        name=f"expect_unique({', '.join(given)})",
        reads_table=True,
        run=lambda staged: _repeated(staged.to_arrow(given)),
    )


@checked(at_least=optional(whole(0)), at_most=optional(whole(0)))
def expect_rows(*, at_least: int | None = None, at_most: int | None = None) -> Check:
    """Expect the job to add so many rows. No file is read.

    Args:
        at_least: the lowest number; by default none.
        at_most: the highest number; by default none.

    Returns:
        The check.

    Raises:
        UsageError: neither is given, or `at_least` is above `at_most`.

    Spec: CK6.
    """
    if at_least is None and at_most is None:
        raise UsageError("expect_rows: expected at_least=… or at_most=…, or both")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise UsageError(f"expect_rows: at_least={at_least} is above at_most={at_most}")
    limits = {"at_least": at_least, "at_most": at_most}
    said = ", ".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None)

    def run(staged: Any) -> str | None:
        count = staged.count
        fits = (at_least or 0) <= count and (at_most is None or count <= at_most)
        return None if fits else f"the job adds {counted(count, 'row')}"

    return Check(name=f"expect_rows({said})", reads_table=False, run=run)


@checked(column=_COLUMN, within=validation.age)
def expect_fresh(column: str, within: str | dt.timedelta) -> Check:
    """Expect the newest time among the rows that the job adds to be at most so long ago.

    It is as of the check: what is published later is older by then.

    Args:
        column: a column of timestamps, or of dates, which begin at midnight; times are in UTC.
        within: how long ago, such as "2h".

    Returns:
        The check.

    Raises:
        UsageError: `within` is no length of time; `Staged.check` says whether there is such a
            column.

    Example:
        `checks.expect_fresh("loaded_at", within="2h")`

    Spec: CK6.
    """
    most_us = int(validation.parse_age(within, "within") * 1_000_000)
    return Check(
        name=f"expect_fresh({column}, within={within})",
        reads_table=False,
        run=lambda staged: _too_old(staged.rows([column]).column(0), staged._now_us(), most_us),
    )


@checked(table=validation.root, column=_COLUMN, of=optional(_COLUMN))
def expect_values_in(table: str, column: str, of: str | None = None) -> Check:
    """Expect each value of a column, in the rows that the job adds, to be in another table.

    It holds for the version of that table that it has read: `publish` repeats it where there is a
    newer one. What is committed there while the job is published is not seen: a transaction that
    reads that table by `Transaction.read` sees it.

    Args:
        table: the path of the other table.
        column: the column of the job's rows; a null refers to nothing, and passes.
        of: the column of the other table; by default one of the same name.

    Returns:
        The check.

    Raises:
        UsageError: an argument is wrong; `Staged.check` says whether there are such columns.

    Example:
        `checks.expect_values_in("customers", "customer", of="id")`

    Spec: CK9.
    """
    path = str(table)
    return Check(
        name=f"expect_values_in({path}, {column})",
        reads_table=False,
        refers_to=path,
        run=lambda staged: _unknown(
            staged.rows([column]).column(0), staged._column_beside(path, of or column)
        ),
    )


@checked(check=validation.function)
def on_table(check: Callable[[Any], Any]) -> Check:
    """Make a check of a callable that looks at the whole table, as it would be with the job.

    Args:
        check: gets the table's rows as a pyarrow table, in memory; what it returns is judged as
            that of any callable.

    Returns:
        The check.

    Raises:
        UsageError: it is no callable.

    Spec: CK6.
    """
    return Check(
        name=f"on_table({_called(check)})",
        reads_table=True,
        run=lambda staged: _judged(check, staged.to_arrow()),
    )


def as_check(given: Any) -> Check:
    """A check, or a callable as one of the job's own rows."""
    if isinstance(given, Check):
        return given
    if not callable(given):
        raise UsageError(
            "checks: expected what the functions of manifestcommit.checks return, or a callable, "
            f"not {type(given).__name__}"
        )
    return Check(
        name=_called(given), reads_table=False, run=lambda staged: _judged(given, staged.rows())
    )


def _called(given: Any) -> str:
    return str(getattr(given, "__name__", type(given).__name__))


def _judged(check: Callable[[Any], Any], rows: Any) -> str | None:
    """Why it fails; UsageError where what it says is neither yes nor no."""
    try:
        said = check(rows)
    except Exception as error:  # of whatever library
        return f"{type(error).__name__}: {error}"
    value: Any = said.get("success") if isinstance(said, dict) else getattr(said, "success", said)
    if hasattr(value, "as_py"):  # a scalar of pyarrow
        value = value.as_py()
    elif getattr(value, "ndim", 1) == 0:  # of numpy
        value = value.item()
    if said is not None and not isinstance(value, bool):
        raise UsageError(
            f"the check {_called(check)} returned neither yes nor no, but a {type(said).__name__}: "
            "let it return True or None where it holds, else False; or a result that has `success`"
        )
    return "it returned False" if value is False else None


def _too_old(times: Any, now_us: int, most_us: int) -> str | None:
    """Why the newest of these times is not new enough."""
    if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
        raise UsageError(f"expect_fresh: the column is {times.type}: expected timestamps or dates")
    newest = pc.max(times)
    if not newest.is_valid:
        return "the job adds no time"
    zone = getattr(times.type, "tz", None)
    late = dt.timedelta(microseconds=now_us - newest.cast(pa.timestamp("us", zone)).value)
    said = f"the newest, {newest}, is {late} ago"
    return None if late <= dt.timedelta(microseconds=most_us) else said


def _unknown(values: Any, known: Any) -> str | None:
    """The values that are not among those that are known, of which a few are named."""
    if pa.types.is_integer(values.type) and pa.types.is_integer(known.type):
        values, known = values.cast(pa.int64()), known.cast(pa.int64())
    if values.type != known.type or pa.types.is_nested(values.type):
        raise UsageError(
            f"expect_values_in: {values.type} cannot be looked up among {known.type}. Compare them "
            "in a callable."
        )
    own = values.drop_null().unique()
    lacking = own.filter(pc.invert(pc.is_in(own, value_set=known)))
    if not len(lacking):
        return None
    few = ", ".join(repr(value) for value in lacking.slice(0, 3).to_pylist())
    many = "1 value is" if len(lacking) == 1 else f"{len(lacking):,} values are"
    return f"{many} not there, such as {few[:300]}"


def _repeated(rows: Any) -> str | None:
    """The values that come more than once, of which a few are named."""
    columns = rows.column_names
    for place, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            raise UsageError(
                f"expect_unique: the column {field.name!r} is {field.type}, whose values cannot be "
                "compared. Name other columns, or compare them in a callable."
            )
        if pa.types.is_floating(field.type):
            zero, nan = (pa.scalar(value, field.type) for value in (0.0, math.nan))
            one = pc.add(rows.column(place), zero)  # -0.0 + 0.0 is 0.0
            rows = rows.set_column(place, field.name, pc.if_else(pc.is_nan(one), nan, one))
    counted = rows.drop_null().group_by(columns).aggregate([([], "count_all")])
    often = counted.filter(pc.greater(counted.column("count_all"), 1))
    if not often.num_rows:
        return None
    few = often.select(columns).slice(0, 3).to_pylist()
    such = "; ".join(", ".join(f"{name} = {value!r}" for name, value in row.items()) for row in few)
    return f"{often.num_rows:,} values come more than once, such as {such[:300]}"
