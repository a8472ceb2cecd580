"""Exports to other engines: `Table.export` and `Table.create_table_sql`. [EX1] [EX10]

Internal: import from `manifestcommit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..argument_checks import checked, part_of
from ..engine.metadata.table_context import TableContext
from ..engine.runtime.validation import one_of

if TYPE_CHECKING:
    from ..interop.export_result import Export


@part_of("Table")
class Exports:
    """The methods of a table by which other engines read it."""

    _session: TableContext

    @checked(to=one_of("iceberg", "delta", "spark-catalog"))
    def export(self, to: str, version: int | None = None) -> Export:
        """Export a version to other engines: as an Iceberg or Delta table, or to Spark's catalog.

        Metadata is put beside the data files, which are not copied. Readers see this version until
        the next export; the property `export.formats` exports each commit. They must only read.
        What an export shows as the newest never goes back.

        Args:
            to: "iceberg" (version 2 of the format), "delta", or "spark-catalog", for the table that
                `create_table_sql` makes.
            version: a readable version; by default the newest. Spark's catalog shows no other.

        Returns:
            The exported version, and where readers of the format find it.

        Raises:
            UsageError: the format cannot express the table, or shows a later version than the given
                one already.
            VersionNotFoundError: there is no such version.
            SnapshotExpiredError: the version was expired.
            UnsupportedTypeError: the format does not have a column's type.
            TableNotFoundError: there is no table at the path.
            StoreError: the store failed; export again.

        Example:
            `duckdb.sql(f"select * from iceberg_scan('{table.export('iceberg').location}')")`

        Spec: EX1, EX2, EX9, EX10.
        """
        from ..interop.exporter import export_format  # late: most programs do without

        return export_format(self._session, self._session.open(), to, version)

    @checked()
    def create_table_sql(self, name: str) -> str:
        """Export to "spark-catalog", and return the CREATE TABLE statement for Spark's catalog.

        `spark.sql` runs it, once: the export to "spark-catalog" changes what the table shows, and
        `REFRESH TABLE` makes a session see it. After a change of columns, drop the table in the
        catalog and make it again. Nothing is read through it that is not committed.

        Args:
            name: the table's name in the catalog, such as "flights" or "lake.flights".

        Returns:
            The statement, with the table's columns and the options that its reads need.

        Raises:
            UsageError: the name is none, or Spark's catalog cannot express the table.
            UnsupportedTypeError: it does not have a column's type.
            TableNotFoundError: there is no table at the path.
            StoreError: the store failed.

        Example:
            `spark.sql(mc.Table("s3://lake/flights").create_table_sql("flights"))`

        Spec: EX10.
        """
        from ..interop.exporter import create_table_sql  # late: most programs do without

        return create_table_sql(self._session, name)
