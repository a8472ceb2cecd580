"""`Table.holders`: every object of a table that holds rows for which a condition is true, or may.
[ER1]

Objects are looked at, not versions: also those that no version lists, and those that an expired
version has left. What metadata say of a file counts as long as the file holds such rows, or is gone
so that nobody knows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..commits.two_phase import list_jobs
from ..errors import CorruptMetadataError, DataFileMissingError, UnsupportedFormatError
from ..export.avro import read_rows
from ..files.foreign_footer import FooterJudge
from ..filter.predicate import columns_of, may_match
from ..format import codec, manifest_table, object_names
from ..format.entries import Entry, ManifestRef
from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..log.exports import is_export
from ..log.table_context import TableContext
from ..log.version_chain import Head, read_object
from ..protocol.retention import horizon_of, job_in
from ..rows.where import understood_here
from ..runtime.concurrency import map_in_batches
from ..scan.arrow_dataset import is_damage, open_dataset
from ..scan.planning import EntrySource, entries_table
from ..store import KeepsUnfinished

FOUND = pa.schema(
    [
        ("table", pa.string()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("rows", pa.int64()),
        ("why", pa.string()),
    ]
)
_MOST_BYTES = 1 << 30  # of an object of an export
_UNDECIDED = ("prepared", "staged", "published", "running")
_NO_DIGEST = "sha256:" + "0" * 64
_OF_METADATA = (".parquet", ".avro")  # what names in metadata end with that are objects


class Holder(NamedTuple):
    """An object that holds such rows. rows: how many; None: it may hold some, or tells of them."""

    name: str
    kind: str
    rows: int | None
    why: str


def find_holders(ctx: TableContext, condition: Any) -> pa.Table:
    """Every object below the table path that holds such rows, or may. [ER1]"""
    with FooterJudge() as judge:
        found = list(_Search(ctx, condition, judge).run())
    rows = [{"table": ctx.store.url, **each._asdict()} for each in found]
    return pa.Table.from_pylist(rows, FOUND)


class _Search:
    """One look at all objects of a table."""

    def __init__(self, ctx: TableContext, condition: Any, judge: FooterJudge) -> None:
        self._ctx, self._head, self._judge = ctx, ctx.open().snapshot, judge
        self._schema = self._head.schema or Schema(fields=())
        self._wanted = understood_here(condition, self._schema, "where")
        self._sizes = {info.name: info.size_bytes for info in ctx.store.list("")}
        self._there = {name.rpartition("/")[2] for name in self._sizes}
        self._files: dict[str, int | None] = {}  # rows that match; None: it cannot be read
        self._gone: set[str] = set()
        self._listed: set[str] = set()  # by any version, whether it holds such rows or not
        self._manifests: dict[str, bool] = {}  # whether it tells of such rows
        self._bad: set[str] = set()  # last parts of the names of what was found

    def run(self) -> Iterator[Holder]:
        """Data files first: what metadata say is judged by them."""
        names = sorted(self._sizes)
        versions = list(self._of_versions(names))
        self._look_at_unlisted(names)
        self._bad |= {path.rpartition("/")[2] for path, rows in self._files.items() if rows != 0}
        files = list(self._of_files())
        yield from files
        yield from versions
        left = [name for name in names if name.startswith(object_names.MANIFESTS)]
        for name in (each for each in left if each not in self._manifests):
            self._manifests[name] = self._tells(name, self._in_manifest)
        for name in (name for name, tells in self._manifests.items() if tells):
            self._bad.add(name.rpartition("/")[2])
            yield Holder(name, "manifest", None, "it lists files with such rows, or did")
        handed = list(self._of_jobs(names))
        yield from handed
        yield from self._undecided({job_in(each.name) for each in (*files, *handed)})
        yield from self._of_exports(names)
        yield from self._others(names)

    # --- versions, their manifests and their files

    def _of_versions(self, names: list[str]) -> Iterator[Holder]:
        tags: dict[int, list[str]] = {}
        for tag, kept in sorted(self._head.tags.items()):
            tags.setdefault(kept.version, []).append(tag)
        numbers = [each for each in map(object_names.parse_version, names) if each is not None]
        for head in map_in_batches(self._ctx.store, partial(read_object, self._ctx.store), numbers):
            if head is None or not self._version_tells(head):
                continue
            version = head.version
            is_readable = version >= self._head.expired or version in tags
            why = "a readable version" if is_readable else "an expired version, which gc deletes"
            yield Holder(object_names.version_name(version), "version", None, why)
            for tag in tags.get(version, ()):
                yield Holder(tag, "tag", None, "it keeps a version that tells of such rows")

    def _version_tells(self, head: Head) -> bool:
        """Whether a version lists such files, or did, or says of a commit that it changed a
        partition that is made of such rows."""
        snapshot = head.snapshot
        if snapshot.table_id != self._head.table_id:
            return True
        if snapshot.schema is None:
            return False
        at = self._as_now(snapshot)
        told = [self._manifest_tells(ref, at) for ref in at.manifests]
        return any((self._hold(self._ctx.manifests.inlined(at), at), self._touched(at), *told))

    def _as_now(self, snapshot: Snapshot) -> Snapshot:
        """The version, with the columns of now, by which the condition was understood."""
        assert snapshot.schema is not None
        known = {field.id for field in self._schema.fields}
        former = [
            msgspec.structs.replace(field, name=f"#{field.id}", physical=field.file_name)
            for field in snapshot.schema.fields
            if field.id in snapshot.partition_by and field.id not in known
        ]
        schema = Schema(fields=(*self._schema.fields, *former))
        return msgspec.structs.replace(snapshot, schema=schema)

    def _manifest_tells(self, ref: ManifestRef, at: Snapshot) -> bool:
        if ref.path not in self._manifests:
            if not any(self._ctx.store.list(ref.path)):
                return True  # its bounds of partitions are in the version
            table = self._ctx.manifests.live(ref, at, 0, keep=False)
            self._manifests[ref.path] = self._hold(table, at)
        return self._manifests[ref.path]

    def _matching(self, entries: pa.Table, at: Snapshot) -> pa.Table:
        predicate = self._wanted.predicate
        source = EntrySource(entries, at.schema or self._schema, at.partition_by, predicate)
        return entries.filter(may_match(predicate, source))

    def _hold(self, entries: pa.Table, at: Snapshot) -> bool:
        """Whether one of these files holds such rows, or is gone, and could by its bounds."""
        self._listed.update(entries.column("path").to_pylist())
        chosen = self._matching(entries, at)
        paths = chosen.column("path").to_pylist()
        for row, path in enumerate(paths):
            if path not in self._files and path not in self._gone:
                self._count(path, chosen.slice(row, 1), at)
        return any(path in self._gone or self._files[path] != 0 for path in paths)

    def _touched(self, at: Snapshot) -> bool:
        """Whether a commit of this version says that it changed a partition, all rows of which are
        such rows."""
        ids = {field.name: field.id for field in self._schema.fields}
        named = {ids.get(path[0]) for path in columns_of(self._wanted.predicate)}
        if not named or not named <= {*at.partition_by}:
            return False
        touched = [
            Entry(path=f"{number}", partition=values, rows=1, bytes=1, job="")
            for commit in at.commits
            for number, touch in enumerate(commit.touched)
            if named <= touch.keys()
            for values in [tuple(touch.get(each) for each in at.partition_by)]
        ]
        entries = manifest_table.to_table(
            touched, schema=at.schema or self._schema, partition_by=at.partition_by
        )
        return bool(self._matching(entries, at).num_rows)

    def _count(self, path: str, entries: pa.Table, at: Snapshot) -> None:
        """Count the rows of a file that match."""
        self._files[path] = None
        try:
            dataset = open_dataset(self._ctx, at, entries)
            self._files[path] = dataset.count_rows(filter=self._wanted.form)
        except (DataFileMissingError, FileNotFoundError):
            del self._files[path]
            self._gone.add(path)
        except CorruptMetadataError:
            pass
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise

    def _look_at_unlisted(self, names: list[str]) -> None:
        """The files of jobs that did not commit, or not yet, and of other programs."""
        at = msgspec.structs.replace(self._head, schema=self._schema, partition_by=())
        columns = {path[0] for path in columns_of(self._wanted.predicate)}
        for name in names:
            if name in self._listed or not _is_data(name):
                continue
            if object_names.job_of_data_file(name) is None and not self._is_sound(name, columns):
                self._files[name] = None
                continue
            entry = Entry(path=name, rows=1, bytes=self._sizes[name], digest=_NO_DIGEST, job="")
            entries = manifest_table.to_table([entry], schema=self._schema, partition_by=())
            self._count(name, entries, at)

    def _is_sound(self, name: str, columns: set[str]) -> bool:
        """Whether another program's file can be read, and none of these columns is only in the
        names of its folders."""
        folders = {unquote(part.partition("=")[0]) for part in name.split("/")[:-1]}
        try:
            with self._ctx.store.open_input(name) as stream:
                held = self._judge.open(stream)[0].schema_arrow.names
        except FileNotFoundError:
            return True  # it is gone
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            return False
        return not (columns - {*held}) & folders

    def _of_files(self) -> Iterator[Holder]:
        live: set[str] = set()
        if self._head.schema is not None:
            entries = entries_table(self._ctx, self._head, self._wanted.predicate, in_order=False)
            live.update(entries.column("path").to_pylist())
        own = horizon_of(self._head).own
        for path, rows in self._files.items():
            if rows == 0:
                continue
            job = object_names.job_of_data_file(path)
            if path in live:
                why = "the newest version lists it"
            elif path in self._listed:
                why = "older versions list it"
            elif job is not None and object_names.parse_job_id(job).table_id in own:
                why = "no version lists it: it is of a job that has not committed"
            else:
                why = "no version lists it, and something else wrote it: gc needs foreign=True"
            yield Holder(path, "data file", rows, why)

    # --- other objects

    def _of_jobs(self, names: list[str]) -> Iterator[Holder]:
        handed = (object_names.JOBS, object_names.INTENTS)
        for name in (name for name in names if name.startswith(handed)):
            if self._tells(name, self._in_job):
                yield Holder(name, "job object", None, "it names files with such rows")

    def _undecided(self, jobs: set[str | None]) -> Iterator[Holder]:
        for each in list_jobs(self._ctx) if jobs - {None} else ():
            if each.job in jobs and each.state in _UNDECIDED:
                yield Holder(each.job, "job", None, f"it is {each.state}, and may still commit")

    def _of_exports(self, names: list[str]) -> Iterator[Holder]:
        exported = [name for name in names if is_export(name)]
        # the metadata that name other metadata come last
        for name in sorted(exported, key=lambda name: (name.endswith(".json"), "/snap-" in name)):
            if self._tells(name, self._in_export):
                self._bad.add(name.rpartition("/")[2])
                yield Holder(name, "export", None, "it names such files, or ones that are gone")

    def _others(self, names: list[str]) -> Iterator[Holder]:
        for name in names:
            inner = name.startswith(f"{object_names.ROOM}/")
            if not (inner or is_export(name) or _is_data(name)) and self._sizes[name]:
                yield Holder(name, "other", None, "it is no file of this table, and no Parquet")
        if isinstance(self._ctx.store, KeepsUnfinished):
            for each in self._ctx.store.unfinished():
                if _is_data(each.name) or each.temporary:
                    yield Holder(each.temporary or each.name, "unfinished", None, "of a writer")

    def _tells(self, name: str, strings: Any) -> bool:
        """Whether an object names what holds such rows, or an object that is gone; what cannot be
        read may."""
        try:
            return any(map(self._is_bad, strings(name)))
        except FileNotFoundError:
            return False
        except (CorruptMetadataError, UnsupportedFormatError, ValueError, RecursionError):
            return True

    def _is_bad(self, text: str) -> bool:
        last = text.rpartition("/")[2]
        if last in self._bad or unquote(last) in self._bad:
            return True
        return last.endswith(_OF_METADATA) and not {last, unquote(last)} & self._there

    def _in_manifest(self, name: str) -> Iterator[str]:
        """The paths in a manifest that no version lists; a run of keys or jobs has none."""
        data = self._ctx.store.get(name)
        footer = pq.read_metadata(pa.BufferReader(data))
        if "path" in footer.schema.names:
            size = {"files": footer.num_rows, "rows": 0, "data_bytes": 0, "bytes": len(data)}
            ends: dict[str, Any] = {"first_path": "", "last_path": "", **size}
            ref = ManifestRef(path=name, digest=codec.digest(data), **ends)
            yield from self._ctx.manifests.paths(ref)

    def _in_job(self, name: str) -> Iterator[str]:
        data = self._ctx.store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
        return _strings(json.loads(codec.decompress(data, name=name)))

    def _in_export(self, name: str) -> Iterator[str]:
        data = self._ctx.store.get(name, 0, _MOST_BYTES)
        if name.endswith(".avro"):
            yield from _strings(read_rows(data))
        elif name.endswith(".checkpoint.parquet"):
            file = self._judge.open(io.BytesIO(data))[0]
            yield from _strings(file.read(columns=["add.path"]).to_pylist())
        elif not name.endswith(".parquet"):
            for line in data.decode().splitlines():
                yield from _strings(json.loads(line) if line.startswith("{") else line)


def _strings(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(name)
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)


def _is_data(name: str) -> bool:
    inner = name.startswith(f"{object_names.ROOM}/") or is_export(name)
    return not inner and name.endswith(".parquet")
