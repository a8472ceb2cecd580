"""A pyarrow dataset that checks the footers of other programs' files before it reads their rows.
[AF3] [RD2]

pyarrow trusts a footer, and a forged one crashes the process. Not here: the checks of a footer
(core.format.parquet_footer), files that jobs of this table wrote (engine.scan.arrow_dataset).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ...errors import CorruptMetadataError
from ...store.base import missing_file
from ..runtime.checked_parquet import check_file
from ..runtime.concurrency import prefetch

_AT_ONCE = 8

Others = dict[str, tuple[str, int]]


class CheckedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """The files of a dataset. Those of other programs are checked, once each, before the first scan
    whose filter may match their partition.

    It wraps pyarrow's own dataset over the same fragments, and no Python runs during a scan. So it
    works with every consumer of datasets: DuckDB, Polars, joins, `Scanner.from_dataset`. Raises
    CorruptMetadataError or DataFileMissingError, which name the file.
    """

    def __init__(self, dataset: ds.FileSystemDataset, url: str, others: Others) -> None:
        """url: the table path; others: path in the filesystem -> (path below the table path, rows)
        of each file to check."""
        super().__init__(
            dataset.get_fragments(),
            dataset.schema,
            dataset.format,
            dataset.filesystem,
            dataset.partition_expression,
        )
        self._plain, self._url, self._others = dataset, url, dict(others)

    def __reduce__(self) -> Any:
        return CheckedDataset, (self._plain, self._url, self._others)

    def _scanner_options(self, options: dict[str, Any]) -> Any:
        """pyarrow calls it for every scan: of `scanner` and all its callers, of a join, a sort, a
        Scanner."""
        scanner_options = super()._scanner_options(options)
        self._check(scanner_options.get("filter"))
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


def _damaged(url: str, name: str, what: str) -> CorruptMetadataError:
    text = (
        f"{url}: data file {name}, which no job of this table wrote, is damaged: {what}. No row of "
        "it was read. Restore the file, or remove it from the table: overwrite its partition, or "
        "roll back to a version that does not list it."
    )
    return CorruptMetadataError(text, object_name=name)
