"""`clone`: a copy of a table at another place, made and brought up to date alike. [CN1]-[CN7]"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ..display import ReprMixin, line
from ..errors import (
    CorruptMetadataError,
    DataFileMissingError,
    NotATableError,
    SnapshotExpiredError,
    StoreError,
    TableNotFoundError,
    UsageError,
)
from ..format import codec, object_names
from ..format.entries import Count, ManifestRef
from ..format.snapshot import FORMAT_VERSION, Commit, Origin, RunRef, Snapshot
from ..job import Path
from ..log.manifests import create_own
from ..log.table_context import (
    EXPORT_FORMATS,
    TableContext,
    export_after_commit,
    export_before_deletion,
    open_or_free,
)
from ..log.version_chain import Head, drop_marker, put_hint, put_marker, read_object, read_version
from ..operations import gc
from ..operations.upkeep_properties import retention_of
from ..runtime.environment import STARTS, create, map_in_batches
from ..runtime.validation import RULES, checked, root
from ..store import StorageOptions, open_store
from ..store.base import missing_file

CLAIM = f"{object_names.ROOM}/clone"  # there until the first version is
_MOST_CLAIM = 1024  # bytes
_CHUNK = 8 << 20
_COLUMNS = ("path", "bytes", "digest", "added")  # of an entry
Progress = Callable[[str], None]


class CloneReport(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one call of `clone` copied.

    Attributes:
        url: the path of the clone.
        table_id: the id of the clone.
        source: the path of the table that it is a clone of.
        source_id: the id of that table.
        version: the newest version that both have now.
        versions: how many versions were copied.
        files: how many data files were copied.
        bytes: how large these are.
        deleted: how many objects of the clone were deleted, as gc of the source had decided.

    Spec: CN1, CN5.
    """

    url: str
    table_id: str
    source: str
    source_id: str
    version: int
    versions: int = 0
    files: int = 0
    bytes: int = 0
    deleted: int = 0

    def __repr__(self) -> str:
        names = ("url", "version", "versions", "files", "bytes", "deleted")
        return line("CloneReport", [(name, getattr(self, name)) for name in names])


def other_options(name: str, value: Any) -> Any:
    """Storage options, of which an error names nothing but the argument. [SE1]"""
    if value is not None and not isinstance(value, Mapping):
        del value  # it may be the secret itself
        raise UsageError("expected a mapping of names to values", argument=name)
    return RULES["storage_options"](name, None if value is None else StorageOptions(value))


@checked(to=root, to_options=other_options)
def clone(
    path: Path,
    to: Path,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    to_options: Mapping[str, Any] | None = None,
) -> CloneReport:
    """Copy a table to another place, or bring the copy there up to date: a standby.

    The first call copies the newest version, each later one every version since, under the same
    numbers: rows, columns, watermarks, keys, batches of streams, properties, constraints and tags.
    Only files are copied that are not there yet. A version can be read there once all its files are
    there. The call may be killed and repeated, and several may run at once. A version whose commit
    of several tables is undecided is copied once it is decided, and only the one table's part.

    A commit in the clone makes a table of its own of it, as after a failover: it goes on exactly
    once from the watermarks and keys that it has. From then on this call refuses it.

    Args:
        path: the table.
        to: where the copy is, or is to be: an empty place, in any store.
        dry_run: only count what would be copied; by default False.
        progress: called with what is done next; by default nothing is.
        storage_options: what reaches the object store of the table; by default the environment.
        to_options: likewise of the copy; by default `storage_options`.

    Returns:
        What was copied.

    Raises:
        UsageError: at `to` is another table, or a clone that has had a commit of its own.
        NotATableError: at `to` are files, but no table.
        SnapshotExpiredError: gc of the table has expired versions that the clone lacks.
        TableNotFoundError: there is no table at `path`.
        StoreError: a store failed; repeat the call.

    Example:
        `mc.clone("s3://lake/orders", "s3://standby/orders")`

    Spec: CN1, CN2, CN3, CN4, CN5, CN6, CN7.
    """
    given = storage_options if to_options is None else to_options
    source = TableContext(open_store(path, storage_options))
    return _Cloning(source, TableContext(open_store(to, given)), progress, dry_run).run()


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Which version of which table the clone begins with: the same for all calls. [CN2]"""

    table_id: str
    source_id: str
    version: Count


class _Object(NamedTuple):
    """An object that a version lists. digest: None: it is not known; added: the version that added
    a data file; 0: the first one that is copied, or it is metadata."""

    name: str
    bytes: int
    digest: str | None
    added: int = 0

    @property
    def is_metadata(self) -> bool:
        return self.name.startswith(object_names.MANIFESTS)


class _Cloning:
    """One call."""

    def __init__(
        self, source: TableContext, to: TableContext, progress: Progress | None, is_dry: bool
    ) -> None:
        self._source, self._to, self._is_dry = source, to, is_dry
        self._say = progress or (lambda _: None)
        self._there: dict[str, int] | None = None  # what the clone has: name -> bytes
        self._newest = source.open()
        self._id = self._newest.snapshot.table_id
        self._fence = 0  # of the clone before the call
        self._counts = {"versions": 0, "files": 0, "bytes": 0, "deleted": 0}

    def run(self) -> CloneReport:
        own = self._opened()
        if own is not None:
            self._drop_claim(own)
            self._check_standby(own)
        if not self._is_dry:
            self._to.prove(own.snapshot.proven if own else ())
        own = own or self._first()
        self._fence = own.snapshot.fence
        while own.version < self._newest.version:
            own = self._next(own)
        if not self._is_dry:
            self._finish(own)
        return CloneReport(
            url=self._to.store.url,
            table_id=own.snapshot.table_id,
            source=self._source.store.url,
            source_id=self._id,
            version=own.version,
            **self._counts,
        )

    def _opened(self) -> Head | None:
        try:
            return self._to.open()
        except TableNotFoundError:
            return None

    def _check_standby(self, own: Head) -> None:
        """UsageError where what is there is no clone of this table, or one no more. [CN6]"""
        url, source = self._to.store.url, self._source.store.url
        if own.snapshot.table_id == self._id:
            raise UsageError(f"{url} is the table {source} itself; nothing was copied")
        origin = own.snapshot.cloned.get(self._id)
        if origin is None:
            raise UsageError(
                f"{url} is another table, and no clone of {source}; nothing was copied. Choose a "
                "place without a table"
            )
        if origin.version < own.version:
            raise UsageError(
                f"{url} was a clone of {source} up to version {origin.version}, and has had "
                f"commits of its own since, as after a failover: it is a table of its own at "
                f"version {own.version}. Nothing was copied. What {source} committed after version "
                f"{origin.version} is not in it. To have a standby again, clone one of the two to "
                "a new place"
            )
        if own.version > self._newest.version:
            self._newest = self._source.open()  # another call may have gone further
        if own.version > self._newest.version:
            raise UsageError(
                f"{url} has version {own.version} of {source}, whose newest one is "
                f"{self._newest.version}: it was restored to an earlier state. Nothing was copied. "
                "Clone it to a new place"
            )

    def _drop_claim(self, own: Head) -> None:
        """Of a clone that is there, also where it is one no more, or can no more be continued; a
        call that ended may have left it. [CN2]"""
        if not self._is_dry and self._id in own.snapshot.cloned:
            self._to.store.delete([CLAIM])

    # --- versions

    def _first(self) -> Head:
        """The first version of the clone, which all calls at once agree on by a claim. [CN2]"""
        claim, own = self._claimed(), self._opened()
        if own is None and claim is not None:
            made = self._made(self._version(claim.version), None, claim.table_id)
            if self._is_dry:
                return made
            put_marker(self._to.store, claim.table_id, self._to.env)
            own = self._opened()
            if own is None:
                own = self._create(made.snapshot)
            elif own.snapshot.table_id != claim.table_id:
                drop_marker(self._to.store, claim.table_id)
        if own is None:
            raise StoreError(f"{self._to.store.url}: a table was removed there; repeat the call")
        self._drop_claim(own)
        self._check_standby(own)  # another call may have been faster
        return own

    def _claimed(self) -> _Claim | None:
        """The claim; None: a table is there by now."""
        store, decode = self._to.store, partial(msgspec.json.decode, type=_Claim)
        for tried in range(STARTS):
            try:
                claim: _Claim = decode(store.get(CLAIM, 0, _MOST_CLAIM))
            except FileNotFoundError:
                try:
                    own = open_or_free(self._to)
                except NotATableError:
                    if tried:
                        raise
                    continue  # another call may have claimed the place, and begun to copy
                if own is not None:
                    return None
                claim = _Claim(
                    table_id=self._to.env.randomness(8).hex(),
                    source_id=self._id,
                    version=self._newest.version,
                )
                if self._is_dry:
                    return claim
                create(store, CLAIM, msgspec.json.encode(claim), self._to.env)
                continue
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise codec.damaged(CLAIM, error) from None
            if claim.source_id != self._id or not object_names.is_table_id(claim.table_id):
                raise UsageError(
                    f"{store.url} is to be a clone of another table, of which no version is there "
                    "yet; nothing was copied. Choose another place, or delete what is there"
                )
            return claim
        raise StoreError(f"{store.url}: {CLAIM} comes and goes; repeat the call")

    def _next(self, own: Head) -> Head:
        """The version above. A void one has the state below it until it is passed. [CN1] [CN3]"""
        version, newest = own.version + 1, self._newest.snapshot
        if version in newest.void:
            return self._create(_passed(own, self._id, self._to))
        head = self._version(version)
        known = own.snapshot.cloned[self._id].digest
        if head.snapshot.parent_digest != known and own.version not in newest.void:
            raise UsageError(
                f"version {version} of {self._source.store.url} was not built on the version "
                f"{own.version} that {self._to.store.url} has: one of the two was restored, or "
                "replaced. Nothing was copied. Clone it to a new place"
            )
        made = self._made(head, own, own.snapshot.table_id)
        return made if self._is_dry else self._create(made.snapshot)

    def _version(self, version: int) -> Head:
        try:
            return read_version(self._source.store, self._newest, version)
        except SnapshotExpiredError as error:
            raise SnapshotExpiredError(
                f"{self._to.store.url} lacks version {version}: {error}. It cannot be brought up "
                "to date. Clone the table to a new place, and more often than its gc expires "
                "versions (properties gc.keep-for and gc.keep-versions)"
            ) from None

    def _made(self, head: Head, own: Head | None, table_id: str) -> Head:
        """A version of the clone, once all that it lists is there. [CN1]"""
        self._say(f"version {head.version:,} of {self._newest.version:,}")
        try:
            self._copy_listed(head.snapshot, own.snapshot if own else None)
        except (CorruptMetadataError, DataFileMissingError):
            self._newest = self._source.open()
            self._version(head.version)  # it may have expired meanwhile
            raise
        self._counts["versions"] += 1
        snapshot = _carried(head, own, table_id, self._source.store.url, self._to)
        return Head(snapshot=snapshot, digest="")

    def _create(self, snapshot: Snapshot) -> Head:
        """Create a version, or take the same one that another call has created. [CN2]"""
        if self._is_dry:
            return Head(snapshot=snapshot, digest="")
        store = self._to.store
        name, data = object_names.version_name(snapshot.version), codec.encode_snapshot(snapshot)
        create(store, name, data, self._to.env)
        found = read_object(store, snapshot.version)
        if found is None:
            raise StoreError(f"{store.url}: {name} was removed; repeat the call")
        if found.snapshot.table_id != snapshot.table_id:
            raise StoreError(f"{store.url}: another table was created there; repeat the call")
        self._check_standby(found)
        return found

    def _finish(self, own: Head) -> None:
        store = self._to.store
        if self._counts["versions"]:
            put_hint(store, own.version, own.digest)
        newest = self._to.open()
        if newest.snapshot.table_id != own.snapshot.table_id:
            raise TableNotFoundError(f"the table at {store.url} was removed meanwhile")
        if self._counts["versions"]:
            export_after_commit(self._to)
        self._sweep(own.snapshot)

    def _sweep(self, own: Snapshot) -> None:
        """Delete what gc of the source has decided on since the call before, where the clone has
        every version that the source can go back to. [CN5]"""
        source = self._newest.snapshot
        if (own.expired, own.tags) != (source.expired, source.tags):
            return
        export_before_deletion(self._to, own)
        now_s, counts = self._to.env.now_us() / 1e6, gc.GcCounts()
        task = gc.GcTask(self._to, retention_of(own), now_s, progress=self._say)
        if own.fence != self._fence:
            gc.sweep(task, counts)
        if EXPORT_FORMATS in own.properties:
            gc.delete_exports(task, own, counts)
        self._counts["deleted"] = counts.objects.total()

    # --- objects

    def _copy_listed(self, snapshot: Snapshot, before: Snapshot | None) -> None:
        if self._there is None:
            self._there = {info.name: info.size_bytes for info in self._to.store.list("")}
        there = self._there
        far = self._source.store if self._source.store.is_remote else self._to.store
        listed = self._listed(snapshot, before)
        below = before.version if before else snapshot.version
        missing = (
            each for each in listed if there.get(each.name) != each.bytes or _is_other(each, below)
        )
        while some := list(itertools.islice(missing, 256)):
            if not self._is_dry:
                for each in map_in_batches(far, self._copy, some):
                    self._say(f"copied {each.name}, {each.bytes:,} bytes")
            there.update({each.name: each.bytes for each in some})
            data = [each for each in some if not each.is_metadata]
            self._counts["files"] += len(data)
            self._counts["bytes"] += sum(each.bytes for each in data)

    def _listed(self, snapshot: Snapshot, before: Snapshot | None) -> Iterator[_Object]:
        """What a version lists, without what the version before it lists the same way."""
        reader = self._source.manifests
        known = {entry.path for entry in before.added} if before else set()
        for entry in snapshot.added:
            if entry.path not in known:
                yield _Object(entry.path, entry.bytes, entry.digest, entry.added)
        removed = reader.removed(snapshot)
        gone = self._to.manifests.removed(before) if before else {}
        old = {ref.path for ref in before.manifests} if before else set()
        for ref in snapshot.manifests:
            now = removed.get(ref.path, 0)
            if ref.path not in old or gone.get(ref.path, 0) & ~now:  # some are back
                live = reader.live(ref, snapshot, now, keep=False)
                columns = (live.column(name).to_pylist() for name in _COLUMNS)
                yield from itertools.starmap(_Object, zip(*columns, strict=True))
        runs = (*snapshot.removed_runs, *snapshot.key_runs, *snapshot.job_runs)
        others: list[ManifestRef | RunRef] = [*snapshot.manifests, *runs]
        yield from (_Object(each.path, each.bytes, each.digest) for each in others)

    def _copy(self, each: _Object) -> _Object:
        """Copy one object, whose bytes are those that the version says. [CN1]"""
        if each.is_metadata:
            try:
                data = self._source.store.get(each.name, 0, each.bytes + 1)
            except FileNotFoundError:
                raise codec.damaged(each.name, "it is missing") from None
            _check_copied(each, len(data), hashlib.sha256(data))
            create_own(self._to.store, each.name, data, self._to.env)
            return each
        object_names.check_path(each.name)
        count, hashed = 0, hashlib.sha256()
        try:
            stream = self._source.store.open_input(each.name)
        except FileNotFoundError:
            raise missing_file(self._source.store.url, each.name) from None
        with stream:
            output = self._to.store.create_output(each.name)
            try:
                while data := stream.read(_CHUNK):
                    output.write(data)
                    hashed.update(data)
                    count += len(data)
                _check_copied(each, count, hashed)
            except BaseException:
                output.discard()
                raise
            output.close()
        return each


def _is_other(each: _Object, below: int) -> bool:
    """Whether it may have another content than what has its name and length: it was added above
    this version, and no job made its name."""
    return each.added > below and object_names.job_of_data_file(each.name) is None


def _check_copied(each: _Object, count: int, hashed: Any) -> None:
    digest = codec.digest_of(hashed)
    if count != each.bytes or each.digest not in (None, digest):
        reason = f"it has {count:,} bytes of {digest}, and is listed with {each.bytes:,} of "
        reason += f"{each.digest}"
        raise codec.damaged(each.name, reason)


def _carried(head: Head, own: Head | None, table_id: str, url: str, to: TableContext) -> Snapshot:
    """A version of the source as one of the clone: the same state under the same number, by jobs
    of the clone, without what binds it to other tables. [CN3]"""
    snapshot = head.snapshot
    source_id = snapshot.table_id
    oldest = snapshot.version if own is None else own.snapshot.expired
    expired = max(snapshot.expired, oldest)
    kept = {tag.version for tag in own.snapshot.tags.values()} if own else {snapshot.version}
    origin = Origin(version=snapshot.version, digest=head.digest, root=url)

    def renamed(job: str) -> str:
        return job.replace(f"-{source_id}-", f"-{table_id}-")

    return msgspec.structs.replace(
        snapshot,
        format_version=FORMAT_VERSION,
        table_id=table_id,
        parent_digest=own.digest if own is not None else snapshot.parent_digest,
        writer=to.writer,
        commits=tuple(
            msgspec.structs.replace(each, job=renamed(each.job), commit_id=renamed(each.commit_id))
            for each in snapshot.commits
        ),
        recent_jobs={renamed(job): at for job, at in snapshot.recent_jobs.items()},
        fence=max(snapshot.fence, expired),
        expired=expired,
        tags={
            name: tag
            for name, tag in snapshot.tags.items()
            if tag.version >= oldest or tag.version in kept
        },
        void=tuple(each for each in snapshot.void if each >= expired),
        cloned={**snapshot.cloned, source_id: origin},
        condemned={},
        proven=(to.store.identity,) if to.store.identity else (),
        pending=None,
        joint={},
        homes={},
    )


def _passed(own: Head, source_id: str, to: TableContext) -> Snapshot:
    """The state of the version below, under a number that is void in the source. [CN3]"""
    snapshot = own.snapshot
    version = snapshot.version + 1
    job = to.new_job(own)
    origin = msgspec.structs.replace(snapshot.cloned[source_id], version=version)
    return msgspec.structs.replace(
        snapshot,
        version=version,
        parent_digest=own.digest,
        commits=(Commit(job=job, commit_id=f"{job}.0", operation="clone"),),
        recent_jobs={**snapshot.recent_jobs, job: version},
        cloned={**snapshot.cloned, source_id: origin},
    )
