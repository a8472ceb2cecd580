"""A snapshot as a pyarrow Dataset, for pyarrow, DuckDB, Polars and pandas. [RD2] [RD7]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import reduce
from operator import and_
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from ..errors import ManifestCommitError
from ..files.foreign_file import damaged_file, footers_of, noted_footer
from ..filter.arrow_expression import columns_in, spark_order, split_terms
from ..format.entries import FooterRef
from ..format.fields import MAX_FIELD_ID, Field, Schema, WireValue
from ..format.snapshot import Snapshot
from ..format.transforms import partition_fields
from ..format.values import from_array, marked_schemas
from ..log.table_context import TableContext
from ..runtime.environment import prefetch
from ..store.arrow_filesystem import knowing_sizes
from ..store.base import missing_file

_AT_ONCE = 8
_FILTER_ADVICE = (
    "this filter is evaluated after reading, because statistics in files of other programs may be "
    "wrong about its columns: read the dataset with scanner(), to_table() or to_batches()"
)

Others = dict[str, tuple[str, int, FooterRef]]


class _NamingDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow ships no types
    """A dataset whose own methods read by its `scanner`, and name the file that is damaged."""

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:
        with self.naming_damage(filter):
            return self.scanner(columns, filter, **options).to_table()

    def to_batches(
        self, columns: Any = None, filter: Any = None, **options: Any
    ) -> Iterator[pa.RecordBatch]:
        # wrong options are refused here, not at the first batch
        return self._named(self.scanner(columns, filter, **options).to_batches(), filter)

    def _named(self, batches: Iterator[pa.RecordBatch], filter: Any) -> Iterator[pa.RecordBatch]:
        with self.naming_damage(filter):
            yield from batches

    def head(
        self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any
    ) -> pa.Table:
        with self.naming_damage(filter):
            return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        with self.naming_damage(filter):
            return int(self.scanner([], filter, **options).count_rows())

    def take(
        self, indices: Any, columns: Any = None, filter: Any = None, **options: Any
    ) -> pa.Table:
        with self.naming_damage(filter):
            return self.scanner(columns, filter, **options).take(indices)


class CheckedDataset(_NamingDataset):
    """The files of a dataset. Those of other programs are checked, once each, before the first scan
    whose filter may match their partition; what a filter asks of their columns of doubtful
    statistics is evaluated after reading. In any filter NaN is above all numbers, as in Spark.

    It wraps pyarrow's own dataset over the same fragments, and no Python runs during a scan, so
    that it works with every consumer of datasets. Errors name the file; where pages are damaged,
    that holds for its own methods only.
    """

    def __init__(
        self,
        dataset: ds.FileSystemDataset,
        url: str,
        base: str,
        others: Others,
        doubtful: frozenset[str],
    ) -> None:
        """url: the table path; base: that path in the filesystem; others: path in the filesystem ->
        (path below the table path, bytes, footer) of each file to check; doubtful: top-level
        columns by whose statistics no row may be left out."""
        given = (dataset.schema, dataset.format, dataset.filesystem, dataset.partition_expression)
        super().__init__(dataset.get_fragments(), *given)
        self._plain, self._url, self._others = dataset, url, dict(others)
        self._base, self._doubtful = base, doubtful

    def __reduce__(self) -> Any:
        given = (self._plain, self._url, self._base, self._others, self._doubtful)
        return CheckedDataset, given

    @contextmanager
    def naming_damage(self, filter: Any = None) -> Iterator[None]:
        """Inside this block, rows are read: CorruptMetadataError names the first file that cannot
        be decoded, where pyarrow says only what is wrong. [RD2]"""
        try:
            yield
        except (pa.ArrowInvalid, OSError) as error:
            if is_damage(error):
                self._raise_damage(filter)
            raise

    def _raise_damage(self, filter: Any) -> None:
        for fragment in self._plain.get_fragments(filter):
            try:
                for _ in fragment.to_batches(use_threads=False):
                    pass
            except (pa.ArrowException, OSError) as error:
                if not is_damage(error):
                    raise
                name = fragment.path.removeprefix(f"{self._base}/")
                raise damaged_file(self._url, name, error) from error

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
        """pyarrow calls it for every scan: by `scanner`, a join, a sort, a Scanner."""
        scanner_options = super()._scanner_options(options)
        whole = scanner_options.get("filter")
        if whole is not None:
            if split_terms(whole, self._doubtful)[1] is not None and self._doubtful:
                raise NotImplementedError(_FILTER_ADVICE)
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
        filtered._base, filtered._doubtful = self._base, self._doubtful
        return filtered

    def replace_schema(self, schema: pa.Schema) -> Any:
        self._check(None)
        return super().replace_schema(schema)

    def _check(self, filter: Any) -> None:
        if not self._others:
            return
        paths = self._chosen(filter)
        for path, checked in prefetch(self._check_one, paths, threads=_AT_ONCE, limit=2 * _AT_ONCE):
            checked.result()
            self._others.pop(path, None)

    def _chosen(self, filter: Any) -> Iterable[str]:
        """The files that are not checked yet and may have rows for which the filter is true."""
        if filter is None:
            return list(self._others)
        paths = (fragment.path for fragment in self._plain.get_fragments(filter))
        return [path for path in paths if path in self._others]

    def _check_one(self, path: str) -> None:
        known = self._others.get(path)
        if known is None:
            return  # another thread has checked it
        name, size_bytes, footer = known
        try:
            with self.filesystem.open_input_file(path) as source:
                noted_footer(source, size_bytes, footer)
        except FileNotFoundError:
            raise missing_file(self._url, name) from None
        except pa.ArrowInvalid as error:
            raise damaged_file(self._url, name, error) from None


def doubtful_columns(schema: pa.Schema) -> frozenset[str]:
    """The top-level columns by whose statistics in files of other programs no row may be left out:
    of floats, which leave out NaN, and of decimals, which old programs compared as bytes. [DF6]"""
    return frozenset(field.name for field in schema if _is_doubtful(field.type))


def _is_doubtful(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_is_doubtful(member.type) for member in kind)
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def needed_columns(known: Sequence[str], columns: Any, filter: Any) -> list[str]:
    """The columns that a scan must read for a filter after it; all if that is unknown."""
    filtered = columns_in(filter) if filter is not None else frozenset()
    if not isinstance(columns, list) or filtered is None:
        return list(known)
    return list(dict.fromkeys([*columns, *(path[0] for path in filtered if path[0] in known)]))


def is_damage(error: Exception) -> bool:
    """Whether an error of reading Parquet is the content's: not with an errno, nor ours."""
    return not isinstance(error, ManifestCommitError) and getattr(error, "errno", None) is None


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """What only the entries of adopted files hold: values of partition columns, which the files may
    lack, and their footers, both by path. columns: names in files. [AF3] [DF4]"""

    columns: tuple[str, ...] = ()
    values: dict[str, tuple[WireValue, ...]] = {}
    footers: dict[str, FooterRef] = {}

    def of(self, files: Iterable[tuple[str, int]]) -> Constants:
        """The constants of these files only."""
        paths = {path for path, _ in files}
        values = {path: value for path, value in self.values.items() if path in paths}
        footers = {path: footer for path, footer in self.footers.items() if path in paths}
        return Constants(columns=self.columns, values=values, footers=footers)


def united(parts: Iterable[Constants]) -> Constants:
    """The constants of all of these files."""
    known = list(parts)
    return Constants(
        columns=next((part.columns for part in known if part.columns), ()),
        values={path: value for part in known for path, value in part.values.items()},
        footers={path: footer for part in known for path, footer in part.footers.items()},
    )


def constants_in(
    entries: pa.Table, schema: Schema, partition_by: Sequence[int], url: str
) -> Constants:
    """The constants of every listed file of another program: it has no digest. [AF3] [DF4]"""
    foreign = entries.filter(pc.is_null(entries.column("digest")))
    footers = footers_of(foreign, url)
    fields = [each for each in partition_fields(schema, partition_by) if each.id <= MAX_FIELD_ID]
    if not fields or not footers:
        return Constants(footers=footers)
    columns = [from_array(foreign.column(f"partition.{field.id}"), field.type) for field in fields]
    values = dict(zip(foreign.column("path").to_pylist(), zip(*columns, strict=True), strict=True))
    names = tuple(field.file_name for field in fields)
    return Constants(columns=names, values=values, footers=footers)


def open_dataset(
    ctx: TableContext, snapshot: Snapshot, table: pa.Table, data: bytes | None = None
) -> ds.Dataset:
    """Open exactly the rows of these entries, with user-visible column names; a missing file is an
    error, and so is a link. No request is made before rows are read. pyarrow gets the partition
    values, so a filter on them opens no other file. data: the bytes of the only file, which was
    checked. [RD2] [SE2] [AF3]"""
    logical, physical = marked_schemas(
        snapshot.schema, snapshot.table_id, ctx.store.url, snapshot.version
    )
    if table.num_rows == 0:
        return ds.dataset(logical.empty_table())
    kind = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us")
    if data is not None:
        (known,) = _guarantees(table, snapshot)
        fragment = kind.make_fragment(pa.BufferReader(data), partition_expression=known)
        held = ds.FileSystemDataset([fragment], physical, kind, None, pc.scalar(True))
        return held if logical.equals(physical) else RenamedDataset(held, logical, physical)
    paths = table.column("path").to_pylist()
    ctx.store.check_files(paths, must_exist=True)
    filesystem, base = ctx.store.filesystem()
    if hasattr(filesystem, "handler"):  # it is none of pyarrow's own
        sizes = dict(zip(paths, table.column("bytes").to_pylist(), strict=True))
        filesystem = knowing_sizes(filesystem, sizes)
    dataset = ds.FileSystemDataset.from_paths(
        [f"{base}/{path}" for path in paths],
        schema=physical,
        format=kind,
        filesystem=filesystem,
        partitions=_guarantees(table, snapshot),
        root_partition=pc.scalar(True),
    )
    others = table.filter(pc.is_null(table.column("digest")))
    footers = footers_of(others, ctx.store.url) if others.num_rows else {}
    listed = zip(others.column("bytes").to_pylist(), footers.items(), strict=True)
    # a partition column has one value in a file: there is nothing that could be left out
    doubtful = doubtful_columns(physical) - {field.file_name for field in _columns_in(snapshot)}
    dataset = CheckedDataset(
        dataset,
        ctx.store.url,
        base,
        {f"{base}/{path}": (path, size, footer) for size, (path, footer) in listed},
        doubtful if others.num_rows else frozenset(),
    )
    return dataset if logical.equals(physical) else RenamedDataset(dataset, logical, physical)


_ADVICE = (
    "the columns of this table were renamed: read its dataset with scanner(), to_table() or "
    "to_batches()"
)


class RenamedDataset(_NamingDataset):
    """A dataset whose columns were renamed after their files were written: it shows the new names
    over the old files. [SC6]

    It supports what pyarrow's own consumers call (DuckDB: scanner; Polars: to_table). Columns that
    neither `columns` nor `filter` names are not read; filters apply after the renaming.
    """

    def __init__(self, dataset: ds.Dataset, logical: pa.Schema, physical: pa.Schema) -> None:
        # Code that bypasses Python for the C++ dataset below this object (Scanner.from_dataset, a
        # join) finds one fragment, which raises an error with the method to call instead. Without
        # any fragment, pyarrow would crash the process.
        parquet, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        super().__init__([parquet.make_fragment(_ADVICE, nowhere)], logical, parquet, nowhere)
        self._dataset = dataset
        self._logical = logical
        self._names = dict(zip(logical.names, physical.names, strict=True))

    def __reduce__(self) -> Any:
        physical = pa.schema([field.with_name(self._names[field.name]) for field in self._logical])
        return RenamedDataset, (self._dataset, self._logical, physical)

    @property
    def schema(self) -> pa.Schema:
        return self._logical

    @property
    def files(self) -> list[str]:
        files: list[str] = self._dataset.files
        return files

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:
        needed = needed_columns(list(self._names), columns, filter)
        if not set(needed) <= self._names.keys():
            needed = list(self._names)  # Arrow names the unknown one
        inner = self._dataset.scanner(
            columns={name: pc.field(self._names[name]) for name in needed}, **options
        )
        if filter is None and (columns is None or needed == columns):
            return inner
        # Batches stay in C++: a Python iterator that is prefetched while the interpreter exits
        # would abort or hang the process.
        if filter is not None:
            filter = spark_order(filter, self._logical)
        return ds.Scanner.from_batches(inner.to_reader(), columns=columns, filter=filter, **options)

    def naming_damage(self, filter: Any = None) -> AbstractContextManager[None]:
        """As that of the dataset below."""
        below = self._dataset
        return below.naming_damage() if isinstance(below, CheckedDataset) else nullcontext()

    def take(
        self, indices: Any, columns: Any = None, filter: Any = None, **options: Any
    ) -> pa.Table:
        return self.to_table(columns, filter, **options).take(indices)

    def get_fragments(self, filter: Any = None) -> Any:
        raise NotImplementedError(_ADVICE)  # fragments show a file's own column names

    def filter(self, expression: Any) -> Any:
        raise NotImplementedError(_ADVICE)

    def replace_schema(self, schema: pa.Schema) -> Any:
        raise NotImplementedError(_ADVICE)


def _guarantees(table: pa.Table, snapshot: Snapshot) -> Sequence[ds.Expression]:
    fields = _columns_in(snapshot)
    columns = [(each.file_name, table.column(f"partition.{each.id}")) for each in fields]
    if not columns:
        return [pc.scalar(True)] * table.num_rows

    def of_row(row: int) -> ds.Expression:
        values = ((pc.field(name), column[row]) for name, column in columns)
        return reduce(and_, (c == each if each.is_valid else c.is_null() for c, each in values))

    return list(map(of_row, range(table.num_rows)))


def _columns_in(snapshot: Snapshot) -> list[Field]:
    """The partition columns that files hold: no transforms, which say less of a row than they."""
    by = snapshot.partition_by
    fields = partition_fields(snapshot.schema, by) if by else ()
    return [field for field in fields if field.id <= MAX_FIELD_ID]
