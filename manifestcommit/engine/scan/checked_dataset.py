"""A pyarrow dataset that trusts no footer of other programs' files, and orders floats as Spark.
[AF3] [DF6] [RD2] [RD7]

pyarrow trusts footers: a forged one crashes the process, and rows are lost where statistics leave
out NaN, or were written in another order than that of the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ...core.filter.arrow_expression import columns_in, spark_order, split_terms
from ...errors import CorruptMetadataError
from ...store.base import missing_file
from ..runtime.checked_parquet import check_file
from ..runtime.concurrency import prefetch

_AT_ONCE = 8
_ADVICE = (
    "this filter is evaluated after reading, because statistics in files of other programs may be "
    "wrong about its columns: read the dataset with scanner(), to_table() or to_batches()"
)

Others = dict[str, tuple[str, int]]


class CheckedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """The files of a dataset. Those of other programs are checked, once each, before the first scan
    whose filter may match their partition; what a filter asks of their columns of doubtful
    statistics is evaluated after reading. In any filter NaN is above all numbers, as in Spark.

    It wraps pyarrow's own dataset over the same fragments, and no Python runs during a scan. So it
    works with every consumer of datasets: DuckDB, Polars, joins, `Scanner.from_dataset`. Raises
    CorruptMetadataError or DataFileMissingError, which name the file.
    """

    def __init__(
        self,
        dataset: ds.FileSystemDataset,
        url: str,
        others: Others,
        doubtful: frozenset[str] = frozenset(),
    ) -> None:
        """url: the table path; others: path in the filesystem -> (path below the table path, rows)
        of each file to check; doubtful: top-level columns by whose statistics no row may be left
        out."""
        super().__init__(
            dataset.get_fragments(),
            dataset.schema,
            dataset.format,
            dataset.filesystem,
            dataset.partition_expression,
        )
        self._plain, self._url, self._others = dataset, url, dict(others)
        self._doubtful = doubtful

    def __reduce__(self) -> Any:
        return CheckedDataset, (self._plain, self._url, self._others, self._doubtful)

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:
        # pyarrow's to_table, to_batches, head, count_rows and take call this method
        whole = super()._scanner_options({"filter": filter}).get("filter")
        free, rest = (whole, None) if whole is None else split_terms(whole, self._doubtful)
        if rest is None or not self._doubtful:
            return super().scanner(columns=columns, filter=filter, **options)
        self._check(free)
        inner = self._plain.scanner(
            columns=needed_columns(self.schema.names, columns, rest),
            filter=None if free is None else spark_order(free, self.schema),
            **options,
        )
        # Batches stay in C++: a Python iterator that is prefetched while the interpreter exits
        # would abort or hang the process.
        rest = spark_order(rest, self.schema)
        shown = self.schema.names if columns is None else columns
        return ds.Scanner.from_batches(inner.to_reader(), columns=shown, filter=rest, **options)

    def _scanner_options(self, options: dict[str, Any]) -> Any:
        """pyarrow calls it for every scan: of `scanner` and all its callers, of a join, a sort, a
        Scanner."""
        scanner_options = super()._scanner_options(options)
        whole = scanner_options.get("filter")
        if whole is not None:
            if split_terms(whole, self._doubtful)[1] is not None and self._doubtful:
                raise NotImplementedError(_ADVICE)
            scanner_options["filter"] = spark_order(whole, self.schema)
        self._check(whole)
        return scanner_options

    def get_fragments(self, filter: Any = None) -> Iterator[ds.Fragment]:
        # pyarrow refuses wrong options before anything is read
        fragments = super().get_fragments(filter)
        self._check(filter)
        return iter(fragments)

    def filter(self, expression: Any) -> Any:
        filtered = super().filter(expression)
        # checked files are shared by all datasets derived from this one
        filtered._plain, filtered._url, filtered._others = self._plain, self._url, self._others
        filtered._doubtful = self._doubtful
        return filtered

    def replace_schema(self, schema: pa.Schema) -> Any:
        self._check(None)
        return super().replace_schema(schema)

    def _check(self, filter: Any) -> None:
        if not self._others:
            return
        for path, checked in prefetch(
            self._check_one, self._chosen(filter), threads=_AT_ONCE, limit=2 * _AT_ONCE
        ):
            checked.result()
            self._others.pop(path, None)

    def _chosen(self, filter: Any) -> Iterable[str]:
        """The files that are not checked yet and may have rows for which the filter is true."""
        if filter is None:
            return list(self._others)
        return [
            fragment.path
            for fragment in self._plain.get_fragments(filter)
            if fragment.path in self._others
        ]

    def _check_one(self, path: str) -> None:
        known = self._others.get(path)
        if known is None:
            return  # another thread has checked it
        name, rows = known
        try:
            with self.filesystem.open_input_file(path) as source:
                footer = check_file(source)
        except FileNotFoundError:
            raise missing_file(self._url, name) from None
        except pa.ArrowInvalid as error:
            raise _damaged(self._url, name, str(error)) from None
        if footer.rows != rows:
            raise _damaged(
                self._url, name, f"its footer says {footer.rows} rows, the table lists {rows}"
            )


def doubtful_columns(schema: pa.Schema) -> frozenset[str]:
    """The top-level columns by whose statistics in files of other programs no row may be left out:
    of floats, which leave out NaN, and of decimals, which old programs compared as bytes. [DF6]"""
    return frozenset(field.name for field in schema if _is_doubtful(field.type))


def _is_doubtful(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_is_doubtful(member.type) for member in kind)
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def needed_columns(known: Sequence[str], columns: Any, filter: Any) -> list[str]:
    """The columns that a scan must read, so that the filter can be evaluated after it; all of them
    if that is unknown."""
    filtered = columns_in(filter) if filter is not None else frozenset()
    if not isinstance(columns, list) or filtered is None:
        return list(known)
    return list(dict.fromkeys([*columns, *(path[0] for path in filtered if path[0] in known)]))


def _damaged(url: str, name: str, what: str) -> CorruptMetadataError:
    text = (
        f"{url}: data file {name}, which no job of this table wrote, is damaged: {what}. No row of "
        "it was read. Restore the file, or remove it from the table: overwrite its partition, or "
        "roll back to a version that does not list it."
    )
    return CorruptMetadataError(text, object_name=name)
