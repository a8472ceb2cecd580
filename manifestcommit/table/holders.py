"""`Table.holders`: every object of a table that holds rows for which a condition is true, or may.
[ER1]

Objects are looked at, not versions: also those that no version lists, and those that an expired
version has left. What metadata say of a file counts as long as the file holds such rows, or is gone
so that nobody knows.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from ..commits.two_phase import list_jobs
from ..errors import CorruptMetadataError, DataFileMissingError, UnsupportedFormatError, UsageError
from ..export.avro import read_rows
from ..files.foreign_file import open_foreign
from ..filter.predicate import columns_of, may_match
from ..format import codec, manifest_table, object_names
from ..format.entries import Entry, ManifestRef
from ..format.fields import Schema
from ..format.snapshot import Snapshot
from ..log.table_context import TableContext, is_export
from ..log.version_chain import Head, read_object
from ..protocol.retention import classify, horizon_of, job_in
from ..rows.clauses import Condition
from ..rows.where import understood_here
from ..runtime.environment import map_in_batches
from ..scan.arrow_dataset import is_damage, open_dataset
from ..scan.planning import EntrySource, entries_table, leaf_fields

_TEXT = pa.string()
FOUND = pa.schema([("table", _TEXT), ("name", _TEXT), ("kind", _TEXT), ("rows", pa.int64())])
FOUND = FOUND.append(pa.field("why", _TEXT))
_MOST_BYTES = 1 << 30  # of an object of an export
_UNDECIDED = ("prepared", "published", "running")
_NO_DIGEST = "sha256:" + "0" * 64
_OF_METADATA = (".parquet", ".avro")  # what names in metadata end with that are objects


class View(NamedTuple):
    """The condition over the columns of one schema: of the newest version, or of an older one in
    which columns of these names were others. ids: of these."""

    ids: frozenset[Any]
    wanted: Condition
    schema: Schema


class Holder(NamedTuple):
    """An object that holds such rows. rows: how many; None: it may hold some, or tells of them."""

    name: str
    kind: str
    rows: int | None
    why: str


def find_holders(ctx: TableContext, condition: Any) -> pa.Table:
    """Every object below the table path that holds such rows, or may. [ER1]"""
    found = list(_Search(ctx, condition).run())
    rows = [dict(zip(FOUND.names, (ctx.store.url, *each), strict=True)) for each in found]
    return pa.Table.from_pylist(rows, FOUND)


class _Search:
    """One look at all objects of a table."""

    def __init__(self, ctx: TableContext, condition: Any) -> None:
        self._ctx, self._head = ctx, ctx.open().snapshot
        schema = self._head.schema
        self._condition = condition
        self._now = View(frozenset(), understood_here(condition, schema, "where"), schema)
        self._views: dict[frozenset[Any], View | None] = {self._now.ids: self._now}
        if (former := _former(schema)) is not None:
            ids = frozenset(schema.retired)
            wanted = understood_here(condition, former, "where")
            self._views[ids] = View(ids, wanted, former)
        self._columns = {path[0] for path in columns_of(self._now.wanted.predicate)}
        self._sizes = {info.name: info.size_bytes for info in ctx.store.list("")}
        self._there = {name.rpartition("/")[2] for name in self._sizes}
        self._files: dict[str, int | None] = {}  # rows that match; None: it cannot be read
        self._gone: set[str] = set()
        self._listed: set[str] = set()  # by any version, whether it holds such rows or not
        self._counted: set[tuple[str, frozenset[Any]]] = set()
        self._read: dict[tuple[str, frozenset[Any]], bool] = {}
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
        if any(self._folder_tells(name) for name in snapshot.condemned):
            return True  # gc forgets these names in time
        told = []  # of all: each manifest is read, and each file looked at
        former = self._views.get(frozenset(self._now.schema.retired))
        views = filter(None, (self._now, self._view_of(snapshot.schema), former))
        for view in {view.ids: view for view in views}.values():
            at = self._through(view, snapshot)
            told.append(self._hold(self._ctx.manifests.inlined(at), at, view))
            told.append(self._touched(at, view))
            told += [self._manifest_tells(ref, at, view) for ref in at.manifests]
        return any(told)

    def _view_of(self, schema: Schema) -> View | None:
        """The condition over columns that have the names of present ones, and are others; None: it
        cannot be evaluated there."""
        now = leaf_fields(self._now.schema)
        others = frozenset(
            (path, field.id)
            for path, field in leaf_fields(schema).items()
            if path in now and now[path].id != field.id
        )
        if others not in self._views:
            self._views[others] = None
            with contextlib.suppress(UsageError):
                wanted = understood_here(self._condition, schema, "where")
                self._views[others] = View(others, wanted, schema)
        return self._views[others]

    def _through(self, view: View, snapshot: Snapshot) -> Snapshot:
        """The version, with the columns of the view."""
        known = {field.id for field in view.schema.fields}
        former = [
            msgspec.structs.replace(field, name=f"#{field.id}", physical=field.file_name)
            for field in snapshot.schema.fields
            if field.id in snapshot.partition_by and field.id not in known
        ]
        schema = Schema(fields=(*view.schema.fields, *former))
        return msgspec.structs.replace(snapshot, schema=schema)

    def _manifest_tells(self, ref: ManifestRef, at: Snapshot, view: View) -> bool:
        key = ref.path, view.ids
        if key not in self._read:
            if not any(self._ctx.store.list(ref.path)):
                return True  # its bounds of partitions are in the version
            self._read[key] = self._hold(self._ctx.manifests.live(ref, at, 0, keep=False), at, view)
            told = self._read[key] or self._manifests.get(ref.path, False)
            self._manifests[ref.path] = told
        return self._read[key]

    def _hold(self, entries: pa.Table, at: Snapshot, view: View) -> bool:
        """Whether one of these files holds such rows, or is gone, and could by its bounds."""
        self._listed.update(entries.column("path").to_pylist())
        chosen = _matching(entries, at, view)
        paths = chosen.column("path").to_pylist()
        for row, path in enumerate(paths):
            if (path, view.ids) not in self._counted and path not in self._gone:
                self._count(path, chosen.slice(row, 1), at, view)
        return any(path in self._gone or self._files[path] != 0 for path in paths)

    def _touched(self, at: Snapshot, view: View) -> bool:
        """Whether a commit of this version says that it changed a partition of such rows only."""
        ids = {field.name: field.id for field in view.schema.fields}
        named = {ids.get(path[0]) for path in columns_of(view.wanted.predicate)}
        if not named or not named <= {*at.partition_by}:
            return False
        touched = [
            Entry(path=f"{number}", partition=values, rows=1, bytes=1, job="")
            for commit in at.commits
            for number, touch in enumerate(commit.touched)
            if named <= touch.keys()
            for values in [tuple(touch.get(each) for each in at.partition_by)]
        ]
        entries = manifest_table.to_table(touched, at)
        return bool(_matching(entries, at, view).num_rows)

    def _count(self, path: str, entries: pa.Table, at: Snapshot, view: View) -> None:
        """Count the rows of a file that match, through this view or another one."""
        self._counted.add((path, view.ids))
        before = self._files.get(path, 0)
        self._files[path] = None
        try:
            found = open_dataset(self._ctx, at, entries).count_rows(filter=view.wanted.form)
            self._files[path] = None if before is None else max(found, before)
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
        for name in names:
            if name in self._listed or not _is_data(name):
                continue
            if object_names.job_of_data_file(name) is None and not self._is_sound(name):
                self._files[name] = None
                continue
            entry = Entry(path=name, rows=1, bytes=self._sizes[name], digest=_NO_DIGEST, job="")
            for view in filter(None, self._views.values()):
                at = msgspec.structs.replace(self._head, schema=view.schema, partition_by=())
                entries = manifest_table.to_table([entry], at)
                if name not in self._gone:
                    self._count(name, entries, at, view)

    def _is_sound(self, name: str) -> bool:
        """Whether another program's file can be read, and has what its folders are named after."""
        try:
            with self._ctx.store.open_input(name) as stream:
                held = open_foreign(stream)[0].schema_arrow.names
        except FileNotFoundError:
            return True  # it is gone
        except (pa.ArrowException, OSError) as error:
            if not is_damage(error):
                raise
            return False
        return not self._folder_tells(name, *held)

    def _folder_tells(self, name: str, *held: str) -> bool:
        """Whether a folder is named after a column of the condition that is not held otherwise."""
        folders = {unquote(part.partition("=")[0]) for part in name.split("/")[:-1]}
        return bool((self._columns - {*held}) & folders)

    def _of_files(self) -> Iterator[Holder]:
        entries = entries_table(self._ctx, self._head, self._now.wanted.predicate, in_order=False)
        live = {*entries.column("path").to_pylist()}
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
        horizon, judged = horizon_of(self._head), (object_names.JOBS, object_names.MANIFESTS)
        for name in (name for name in names if self._sizes[name] and not is_export(name)):
            is_known = _is_data(name) or name.startswith((*judged, f"{object_names.ROOM}/clone"))
            if not is_known and name.startswith(f"{object_names.ROOM}/"):
                verdict = classify(name, horizon, lambda _: True, is_old=False)
                is_known = verdict.kind != "unknown"
            if not is_known:
                yield Holder(name, "other", None, "it is no file of this table, and no Parquet")
        for each in self._ctx.store.unfinished():
            if _is_data(each.name) or each.temporary:
                yield Holder(each.temporary or each.name, "unfinished", None, "of a writer")

    def _tells(self, name: str, strings: Any) -> bool:
        """Whether an object names what holds or held such rows; what cannot be read may."""
        try:
            return any(map(self._is_bad, strings(name)))
        except FileNotFoundError:
            return False
        except (CorruptMetadataError, UnsupportedFormatError, ValueError, RecursionError):
            pass
        except OSError as error:
            if not is_damage(error):
                raise
        return True

    def _is_bad(self, text: str) -> bool:
        last = text.rpartition("/")[2]
        if last in self._bad or unquote(last) in self._bad:
            return True
        return last.endswith(_OF_METADATA) and not {last, unquote(last)} & self._there

    def _in_manifest(self, name: str) -> Iterator[str]:
        """The paths in a manifest that no version lists; a run of keys or jobs has none."""
        data = self._ctx.store.get(name)
        footer = open_foreign(io.BytesIO(data))[0].metadata
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
            file = open_foreign(io.BytesIO(data))[0]
            yield from _strings(file.read(columns=["add.path"]).to_pylist())
        elif not name.endswith(".parquet"):
            for line in data.decode().splitlines():
                yield from _strings(json.loads(line) if line.startswith("{") else line)


def _former(schema: Schema) -> Schema | None:
    """The columns as files have them that were written before a column was dropped, of whose name
    there is another one now; None: there is none."""
    retired = {name.lower(): name for name in schema.retired}
    unused = itertools.count(1 + max((field.id for field in schema.fields), default=0))
    fields = tuple(
        msgspec.structs.replace(field, id=next(unused), physical=name)
        if (name := retired.get(field.name.lower())) is not None
        else field
        for field in schema.fields
    )
    return None if fields == schema.fields else Schema(fields=fields)


def _matching(entries: pa.Table, at: Snapshot, view: View) -> pa.Table:
    """The entries of files that may hold such rows."""
    predicate = view.wanted.predicate
    source = EntrySource(entries, at.schema, at.partition_by)
    return entries.filter(may_match(predicate, source))


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
