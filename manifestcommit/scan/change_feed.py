"""A table as a stream of files, each once, in the order of versions; a small offset records the
position. [SP8]"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
    UsageError,
    VersionNotFoundError,
)
from ..format.fields import Field
from ..format.snapshot import Commit, Snapshot
from ..log.table_context import TableContext
from ..log.version_chain import Head, missing_version, newest_above, read_object
from ..protocol.change_feed import (
    Offset,
    OnOverwrite,
    brings_back,
    reaches_back,
    unreadable_columns,
    verdict,
)
from ..protocol.conflict import first_expired
from .arrow_dataset import Constants, constants_in, united
from .planning import entries_table

File = tuple[str, int]  # path relative to the table path, size in bytes
T = TypeVar("T")


class Given(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What one version gives, in its order: files, or changes of them; constants: values that only
    the files' entries hold; refusal: why a stream must stop here."""

    files: tuple[T, ...] = ()
    constants: Constants = Constants()
    refusal: ManifestCommitError | None = None


class VersionFeed(ABC, Generic[T]):
    """What a stream gets from the versions of one table, from any offset on; the same for every
    call. columns: those that it shows, of version `pinned`. A call costs one list request, more for
    a new latest version; a version that is read for the first time a get, and the manifests that it
    wrote. The first call opens the table. [SP8]"""

    _back = 0  # how many versions before a version are needed to know what it brought
    _gives = "added"

    def __init__(self, ctx: TableContext, *, columns: Sequence[Field], pinned: int) -> None:
        self._ctx = ctx
        self._columns = tuple(columns)
        self._pinned = pinned
        self._head: Head | None = None
        self._last: int | None = None  # no version above it is delivered
        self._beginning: Offset | None = None
        self._given: dict[tuple[int, bool, int], Given[T]] = {}
        # versions that were read and may have expired before that
        self._unconfirmed: set[int] = set()

    def beginning(self, starting_version: int | None = None) -> Offset:
        """Where a new stream begins, the same for every call; None: before all live files. [SP8]"""
        if self._beginning is None:
            head = self._head or self._look()
            version = head.version if starting_version is None else starting_version
            if not 1 <= version <= head.version + 1:
                raise VersionNotFoundError(
                    f"a stream of {self._url} cannot start at version {version}: the table "
                    f"has {head.snapshot.expired} to {head.version}; "
                    f"{head.version + 1} would be the next. Nothing was read."
                )
            beginning = Offset(
                table=head.snapshot.table_id,
                began=version,
                whole=starting_version is None,
                version=version,
            )
            self._check_readable(head, self._needed(beginning))
            self._beginning = beginning
        return self._beginning

    def stop_at_head(self) -> None:
        """From now on, deliver nothing from versions above the present latest one. [SP8]"""
        self._last = self._look().version

    def advance(self, start: Offset, limit: int | None = None) -> Offset:
        """The offset after at most `limit` more files; `start` if there are none. Reads no version
        beyond those. One that must not be delivered raises an error here, but only after everything
        before it was delivered. [SP8]"""
        self._given = {key: each for key, each in self._given.items() if key[0] >= start.version}
        if self._last is None:
            self._look()
        head = self._enter(start)
        last = head.version if self._last is None else self._last
        at, room = start, limit
        while at.version <= last and room != 0:
            given = self._find(at)
            if given.refusal is not None:
                if at == start:
                    raise given.refusal
                break
            count = max(len(given.files) - at.files, 0)
            if room is not None and count > room:
                at, room = at.after(room), 0
            else:
                at, room = at.next_version(), None if room is None else room - count
        self._confirm(start)
        return at if at == start else msgspec.structs.replace(at, table=head.snapshot.table_id)

    def between(self, start: Offset, end: Offset) -> list[T]:
        """The files from one offset to another, in an order that is always the same. [SP8]"""
        if start == start.start():
            # The first batch is repeated in a new process, where `start` is the position of a new
            # stream.
            start = end.start()
        self._check_table(self._enter(start), end)
        at, files = start, list[T]()
        while (at.version, at.files) < (end.version, end.files):
            given = self._find(at)
            if given.refusal is not None:
                raise given.refusal
            if at.version == end.version:
                if end.files > len(given.files):
                    raise UsageError(
                        f"{self._ctx.store.url}: this batch was planned with files of version "
                        f"{end.version} that the stream is not given now; nothing was read. Start "
                        "the query with the onOverwrite that it had."
                    )
                files += given.files[at.files : end.files]
                break
            files += given.files[at.files :]
            at = at.next_version()
        self._confirm(start)
        return files

    # --- one version ------------------------------------------------------------------------------

    @abstractmethod
    def _whole(self, snapshot: Snapshot) -> Given[T]:
        """All that is live at a version with which a stream begins."""

    @abstractmethod
    def _added(self, snapshot: Snapshot, at: Offset) -> Given[T]:
        """What a version itself brought."""

    def _needed(self, at: Offset) -> Sequence[int]:
        """The versions that must be readable to go on at this offset."""
        return range(max(1, at.version if at.is_whole else at.version - self._back), at.version + 1)

    def _find(self, at: Offset) -> Given[T]:
        key = (at.version, at.is_whole, at.seen)
        if key not in self._given:
            assert self._head is not None
            if at.version in self._head.snapshot.void:  # was never a state of the table [MT8]
                return Given()
            snapshot = self._snapshot(at.version, at)
            try:
                self._given[key] = (
                    self._whole(snapshot) if at.is_whole else self._added(snapshot, at)
                )
            except CorruptMetadataError:
                self._confirm(at)  # a missing manifest may have expired with its version
                raise
        return self._given[key]

    def _unreadable(self, snapshot: Snapshot) -> SchemaMismatchError | None:
        """Why files of this version cannot be read as the stream's columns."""
        later = snapshot.version > self._pinned
        if not (reasons := unreadable_columns(self._columns, snapshot.schema.fields, later=later)):
            return None
        return SchemaMismatchError(
            f"version {snapshot.version} of {self._url} {self._gives} files that the stream cannot "
            f"read as the columns with which it was loaded: {'; '.join(reasons)}. Nothing of "
            "them was given. Load the stream again with the same checkpoint: it takes the "
            "columns that the table has by then, and goes on here."
        )

    # --- the chain --------------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._ctx.store.url

    def _look(self) -> Head:
        """The latest version now; one list request if it is still the known one. [RD1]"""
        if self._head is None:
            self._head = self._ctx.open()
            return self._head
        # A listed version may be deleted before it is fetched, and created again by a stalled
        # writer: so list again.
        self._head = (
            newest_above(self._ctx.store, self._head.version, self._head) or self._ctx.open()
        )
        return self._head

    def _enter(self, at: Offset) -> Head:
        """The known latest version, if the stream can continue there from this offset."""
        head = self._head or self._look()
        self._check_table(head, at)
        if at.version > head.version + 1:
            raise VersionNotFoundError(
                f"{self._url} has no version above {head.version}, but this stream has read "
                f"up to {at.version - 1}: an older state of "
                "the table was put back. Nothing was read. Start with a new checkpoint."
            )
        if at.version <= head.version:
            self._check_readable(head, self._needed(at))
        return head

    def _version_before(self, version: int) -> int:
        """The last version below this one that was a state of the table. [MT8]"""
        assert self._head is not None
        void, version = self._head.snapshot.void, version - 1
        while version in void:
            version -= 1
        return version

    def _snapshot(self, version: int, at: Offset) -> Snapshot:
        assert self._head is not None
        if version == self._head.version:
            return self._head.snapshot
        self._unconfirmed.add(version)
        stored = read_object(self._ctx.store, version)
        if stored is None:
            self._confirm(at)
            raise missing_version(version)
        return stored.snapshot

    def _confirm(self, at: Offset) -> None:
        """Check that what was read was readable, by the latest version read afterwards. [RD3]"""
        if self._unconfirmed:
            head = self._look()
            self._check_table(head, at)
            self._check_readable(head, sorted(self._unconfirmed))
            self._unconfirmed.clear()

    def _check_readable(self, head: Head, versions: Sequence[int]) -> None:
        version, oldest = first_expired(head.snapshot, versions), head.snapshot.expired
        if version is not None:
            raise SnapshotExpiredError(
                f"the stream needs version {version} of {self._url}, which was expired, "
                "and its files may be gone; the oldest readable "
                f"version is {oldest}. Nothing was skipped. Start with a new checkpoint: "
                f'option("startingVersion", {oldest + self._back}) gives '
                f"what that version and later ones {self._gives}, without it the stream begins "
                "with all files that are live now."
            )

    def _check_table(self, head: Head, at: Offset) -> None:
        """TableNotFoundError unless the offset is of this table, or of one that it was cloned from,
        up to the last version that both have. [SP8] [CN3]"""
        there, origin = head.snapshot.table_id, head.snapshot.cloned.get(at.table)
        if there == at.table or (
            origin is not None and (at.version, at.files) <= (origin.version + 1, 0)
        ):
            return
        why = f", its clone up to version {origin.version} only" if origin else ""
        raise TableNotFoundError(
            f"the stream's checkpoint is of the table {at.table}, but at {self._url} there is the "
            f"table {there}{why}. Nothing was read. Check the path, or start with a new checkpoint."
        )


class Feed(VersionFeed[File]):
    """The files that a stream gets, each once. [SP8]"""

    def __init__(
        self,
        ctx: TableContext,
        *,
        columns: Sequence[Field],
        pinned: int,
        on_overwrite: OnOverwrite = "fail",
    ) -> None:
        super().__init__(ctx, columns=columns, pinned=pinned)
        self._on_overwrite = on_overwrite

    def constants(self, files: Iterable[File]) -> Constants:
        """What only these files' entries hold, which `between` just returned. [AF3] [DF4]"""
        wanted = tuple(files)
        return united(given.constants.of(wanted) for given in self._given.values())

    def _whole(self, snapshot: Snapshot) -> Given[File]:
        """All live files, by the version that added them, then by path."""
        entries = entries_table(self._ctx, snapshot, in_order=False)
        table = entries.select(["added", "path", "bytes"])
        table = table.sort_by([("added", "ascending"), ("path", "ascending")])
        columns = (table.column(name).to_pylist() for name in ("path", "bytes"))
        return self._checked(snapshot, zip(*columns, strict=True), [entries])

    def _added(self, snapshot: Snapshot, at: Offset) -> Given[File]:
        """The files that the version added, by path, without commits that bring no new data."""
        seen, commits = at.seen, snapshot.commits
        verdicts = {commit.job: verdict(commit, self._on_overwrite, seen) for commit in commits}
        for commit in commits:
            if verdicts[commit.job] == "refused":
                is_back = reaches_back(commit, seen)
                return Given(refusal=self._refusal(snapshot, commit, is_back=is_back))
        if verdicts and all(decision == "skipped" for decision in verdicts.values()):
            return Given()
        tables = list(self._entries(snapshot))
        jobs = Counter(job for table in tables for job in table.column("job").to_pylist())
        for commit in commits:
            count = jobs.total() if len(commits) == 1 else jobs[commit.job]
            if brings_back(commit, count):
                if self._on_overwrite != "skip":
                    return Given(refusal=self._refusal(snapshot, commit, is_back=True))
                verdicts[commit.job] = "skipped"
        added = list[File]()
        for table in tables:
            columns = (table.column(name).to_pylist() for name in ("path", "bytes", "job"))
            for path, size, job in zip(*columns, strict=True):
                added += [(path, size)] if verdicts.get(job) != "skipped" else []
        return self._checked(snapshot, sorted(added), tables)

    def _entries(self, snapshot: Snapshot) -> Iterable[pa.Table]:
        """The entries that the version added. They are inlined, or in manifests that it wrote: no
        older manifest can hold them, and a merged one of its own also holds older entries."""
        version = snapshot.version
        if any(entry.added == version for entry in snapshot.added):
            inlined = self._ctx.manifests.inlined(snapshot)
            yield inlined.filter(pc.equal(inlined.column("added"), version))
        references = [ref for ref in snapshot.manifests if ref.added == version]
        removed = self._ctx.manifests.removed(snapshot) if references else {}
        for ref in references:
            table = self._ctx.manifests.live(ref, snapshot, removed.get(ref.path, 0))
            yield table.filter(pc.equal(table.column("added"), version))

    def _checked(
        self, snapshot: Snapshot, files: Iterable[File], tables: Sequence[pa.Table]
    ) -> Given[File]:
        given = tuple(files)
        if given and (refusal := self._unreadable(snapshot)) is not None:
            return Given(refusal=refusal)
        schema, by = snapshot.schema, snapshot.partition_by
        known = [constants_in(table, schema, by, self._url) for table in tables]
        return Given(files=given, constants=united(known))

    def _refusal(self, snapshot: Snapshot, commit: Commit, *, is_back: bool) -> UsageError:
        who = f"version {snapshot.version} of {self._url} ({commit.operation} by job {commit.job})"
        if is_back:
            return UsageError(
                f"{who} brought back {commit.summary.files} files with {commit.summary.rows} rows "
                "from before the stream began, so that it may not have read them; no file of this "
                "version was delivered. Take what you need of them "
                f'(Table.changed_files({snapshot.version - 1}, {snapshot.version})["added"] lists '
                'them), then restart the stream with option("onOverwrite", "skip"), which skips '
                "such versions. Or start with a new checkpoint, and all live files come first."
            )
        return UsageError(
            f"{who} removed {commit.summary.removed_rows} rows in {commit.summary.removed_files} "
            "files, and a stream cannot retract rows; no file of this version was delivered. "
            'Restart the stream with option("onOverwrite", "files") to read the files that such '
            'versions add, or with "skip" to skip them.'
        )
