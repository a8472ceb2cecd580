"""`attach`, `sql` and `register`: the public calls. [SP50] [SP48]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..job import Path
from ..runtime.validation import Ranges, checked, root, text, wrong

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = text("a name for the table in SQL", "'flights'", blank=False)


def named_paths(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping) or not value:
        raise wrong(name, value, "a mapping of names to paths", "{'flights': '/lake/flights'}")
    return {_NAME(name, each): root(name, path) for each, path in value.items()}


@checked(tables=named_paths)
def attach(
    spark: SparkSession,
    tables: Mapping[str, Path],
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Name tables in a Spark session, for SQL.

    Each name becomes a temporary view, which shows the newest version as of this call and nothing
    later, with its true size. `mc.sql` knows the names, too, and reads the newest version each
    time. Attach a table again, and the view shows the version that is newest then. Names live as
    long as the session, and no other session knows them.

    Args:
        spark: the session.
        tables: name -> path, such as {"flights": "/lake/flights"}.
        storage_options: what reaches the object stores of these tables, as for s3fs, adlfs or
            gcsfs; by default the environment.

    Returns:
        Name -> the version that its view shows.

    Raises:
        TableNotFoundError: there is no table at a path; no name is known then.
        UsageError: an argument is wrong, or Spark is not installed.

    Example:
        `attach(spark, {"flights": "/lake/flights", "planes": "/lake/planes"})`

    Spec: SP50.
    """
    from .execution import attach_all  # late: pyspark is an extra

    return attach_all(spark, tables, storage_options)


@checked(statement=text("a statement in SQL", "'SELECT * FROM flights'", blank=False))
def sql(
    spark: SparkSession,
    statement: str,
    *,
    key: str | None = None,
    watermarks: Ranges | None = None,
    based_on: int | None = None,
    publish: bool = True,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Run one statement in Spark's SQL over the tables that `attach` has named.

    A query reads each table at one version for the whole statement, the newest one by default.
    Statements that change a table are this library's own operations, atomic and with typed
    outcomes: INSERT, DELETE, UPDATE, MERGE, ALTER TABLE. What is not understood is refused before
    anything is done. Other names are Spark's. Other arguments and errors are as for `write`.

    Args:
        spark: the session.
        statement: the statement. A table is an attached name, or a path as in
            ``manifestcommit.`/lake/flights` ``.
        key: an idempotency key for INSERT, DELETE, UPDATE and MERGE: a rerun with the same key
            does nothing; by default none.
        watermarks: source -> (start, end), half-open, as for `write`, for INSERT and MERGE: they
            advance with the commit; by default none.
        based_on: as for `write`, for INSERT; by default what the rows carry: the version that the
            query reads.
        publish: False stages what INSERT, DELETE, UPDATE and MERGE do: `Staged` opens it by
            `job_id` of what is returned; by default True.
        storage_options: what reaches the object stores of paths in the statement; by default the
            environment.

    Returns:
        For a query a Spark DataFrame, for a change the outcome.

    Raises:
        UsageError: the statement is not understood, changes a table that is not attached, or an
            argument does not belong to it.
        TableNotFoundError: there is no table at a path.
        VersionNotFoundError: there is no such version or tag.

    Example:
        `sql(spark, "INSERT INTO flights SELECT * FROM staged", key="flights:2013-01-02")`

    Spec: SP47, SP48, SP49, CK5.
    """
    from ..table.reading import check_meaning
    from .execution import Execution, Names  # late: pyspark is an extra
    from .statements import Select, parse

    declared: dict[str, Any] = {"key": key, "watermarks": watermarks, "based_on": based_on}
    declared |= {"message": message, "metadata": metadata, "publish": None if publish else False}
    understood = parse(statement)
    if not isinstance(understood, Select):  # whose text is Spark's alone
        check_meaning("statement", [statement], spark)
    return Execution(spark, Names(spark, storage_options), declared).run(understood)


@checked()
def register(spark: SparkSession, storage_options: Mapping[str, Any] | None = None) -> None:
    """Register `format("manifestcommit")` with a Spark session, and its storage options.

    An installed package makes the format known by itself: the call is needed for `storage_options`
    only. Calling it again replaces what was given before.

    Args:
        spark: the session.
        storage_options: what reaches the object stores of this session's tables, credentials
            included; Spark's processes get it, and no plan, log or page of Spark shows it. By
            default the environment.

    Raises:
        UsageError: an argument is wrong.

    Spec: SE1.
    """
    from ..spark.datasource import register as register_in  # late: pyspark is an extra

    register_in(spark, storage_options)
