"""A table as a stream of files: each that was added is given once, in the order of versions; one small offset says how far. [SP8]

Not here: the rules themselves (core.feed), reading rows and Spark's calls (spark.stream_reader).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..core.feed import Offset, OnOverwrite, unreadable_columns, verdict
from ..core.schema import Field, Schema
from ..core.snapshot import Commit, Snapshot
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    SchemaMismatchError,
    SnapshotExpiredError,
    TableNotFoundError,
    UsageError,
    VersionNotFoundError,
)
from .constants import Constants, constants_in
from .head import Head, missing_version, newest_above, read_object
from .plan import entries_table
from .session import Session

File = tuple[str, int]  # path relative to the root, size in bytes


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one version in their order; constants: what only their entries say; refusal: why a stream must not go on."""

    files: tuple[File, ...] = ()
    constants: Constants = Constants()
    refusal: ManifestCommitError | None = None


class Feed:
    """What one stream is given of one table, from any offset on, the same whenever it is asked. [SP8]

    columns: those that the stream shows, of version `pinned`. A call costs one list, for a head that is new a get and another list, and one
    get for each version that it is the first to look at, besides the manifests which that version wrote; the first opens the table.
    """

    def __init__(self, session: Session, *, columns: Sequence[Field], pinned: int, on_overwrite: OnOverwrite = "fail") -> None:
        self._session = session
        self._columns = tuple(columns)
        self._pinned = pinned
        self._on_overwrite = on_overwrite
        self._head: Head | None = None
        self._last: int | None = None  # no version above it is given
        self._beginning: Offset | None = None
        self._given: dict[tuple[int, bool], Given] = {}
        self._unconfirmed: set[int] = set()  # versions that were read and may have expired before that

    def beginning(self, starting_version: int | None = None) -> Offset:
        """Where a new stream stands: before all live files, or before those that `starting_version` added; the same at each call. [SP8]"""
        if self._beginning is None:
            head = self._head or self._look()
            version = head.version if starting_version is None else starting_version
            if not 1 <= version <= head.version + 1:
                raise VersionNotFoundError(
                    f"a stream of {self._url} cannot start at version {version}: the table has {head.snapshot.expired} to {head.version}; "
                    f"{head.version + 1} would be the next. Nothing was read."
                )
            self._check_readable(head, [version])
            self._beginning = Offset(table=head.snapshot.table_id, began=version, whole=starting_version is None, version=version)
        return self._beginning

    def stop_at_head(self) -> None:
        """From now on nothing is given that a version above the present head adds. [SP8]"""
        self._last = self._look().version

    def advance(self, start: Offset, limit: int | None = None) -> Offset:
        """The offset after at most `limit` more files; `start` where there are none. Looks at no version beyond those. [SP8]

        A version that must not be given raises here, but what comes before it is given first.
        """
        self._given = {(version, whole): found for (version, whole), found in self._given.items() if version >= start.version}
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
        return at

    def between(self, start: Offset, end: Offset) -> list[File]:
        """The files from one offset to another, in order: the same at each call, in each process. [SP8]"""
        if start == start.start():
            # The first batch is repeated in a new process, and `start` is where a stream would begin now.
            start = end.start()
        self._enter(start)
        at, files = start, list[File]()
        while (at.version, at.files) < (end.version, end.files):
            given = self._find(at)
            if given.refusal is not None:
                raise given.refusal
            if at.version == end.version:
                if end.files > len(given.files):
                    raise UsageError(
                        f"{self._session.store.url}: this batch was planned with files of version {end.version} that the stream is not "
                        "given now; nothing was read. Start the query with the onOverwrite that it had."
                    )
                files += given.files[at.files : end.files]
                break
            files += given.files[at.files :]
            at = at.next_version()
        self._confirm(start)
        return files

    def constants(self, files: Iterable[File]) -> Constants:
        """What stands only in the entries of these files, which `between` has just given. [DF4]"""
        wanted, found = tuple(files), Constants()
        for given in self._given.values():
            part = given.constants.of(wanted)
            if part.values:
                found = Constants(columns=part.columns, values={**found.values, **part.values})
        return found

    # --- one version ------------------------------------------------------------------------------------------------------

    def _find(self, at: Offset) -> Given:
        key = (at.version, at.is_whole)
        if key not in self._given:
            snapshot = self._snapshot(at)
            try:
                self._given[key] = self._whole(snapshot) if at.is_whole else self._added(snapshot)
            except CorruptMetadataError:
                self._confirm(at)  # a manifest that is gone may have expired with its version
                raise
        return self._given[key]

    def _whole(self, snapshot: Snapshot) -> Given:
        """All live files, by the version that added them, then by path."""
        entries = entries_table(self._session, snapshot, in_order=False)
        table = entries.select(["added", "path", "bytes"]).sort_by([("added", "ascending"), ("path", "ascending")])
        files = zip(table.column("path").to_pylist(), table.column("bytes").to_pylist(), strict=True)
        return self._checked(snapshot, files, [entries])

    def _added(self, snapshot: Snapshot) -> Given:
        """The files that the version itself added, by path, without those of commits that are no data."""
        verdicts = {commit.job: verdict(commit, self._on_overwrite) for commit in snapshot.commits}
        if refused := [commit for commit in snapshot.commits if verdicts[commit.job] == "refused"]:
            return Given(refusal=self._removed_rows(snapshot, refused[0]))
        if verdicts and all(each == "passed over" for each in verdicts.values()):
            return Given()
        tables = list(self._entries(snapshot))
        rows = (zip(*(table.column(name).to_pylist() for name in ("path", "bytes", "job")), strict=True) for table in tables)
        found = [(path, size) for path, size, job in itertools.chain.from_iterable(rows) if verdicts.get(job) != "passed over"]
        return self._checked(snapshot, sorted(found), tables)

    def _entries(self, snapshot: Snapshot) -> Iterable[pa.Table]:
        """The entries that the version added. They are inlined, or in manifests that it wrote: no older one
        can hold them, and a merged one of its own holds older entries too."""
        version = snapshot.version
        if any(entry.added == version for entry in snapshot.added):
            inlined = self._session.manifests.inlined(snapshot)
            yield inlined.filter(pc.equal(inlined.column("added"), version))
        references = [ref for ref in snapshot.manifests if ref.added == version]
        removed = self._session.manifests.removed(snapshot) if references else {}
        for ref in references:
            table = self._session.manifests.live(ref, snapshot, removed.get(ref.path, 0))
            yield table.filter(pc.equal(table.column("added"), version))

    def _checked(self, snapshot: Snapshot, files: Iterable[File], tables: Sequence[pa.Table]) -> Given:
        given = tuple(files)
        there = snapshot.schema.fields if snapshot.schema else ()
        reasons = unreadable_columns(self._columns, there, later=snapshot.version > self._pinned) if given else []
        if not reasons:
            known = [constants_in(table, snapshot.schema or Schema(fields=()), snapshot.partition_by) for table in tables]
            values = {path: value for each in known for path, value in each.values.items()}
            columns = next((each.columns for each in known if each.columns), ())
            return Given(files=given, constants=Constants(columns=columns, values=values))
        return Given(
            refusal=SchemaMismatchError(
                f"version {snapshot.version} of {self._url} added files that the stream cannot read as the columns with which it was "
                f"loaded: {'; '.join(reasons)}. Nothing of them was given. Load the stream again with the same checkpoint: it takes the "
                "columns that the table has by then, and goes on here."
            )
        )

    def _removed_rows(self, snapshot: Snapshot, commit: Commit) -> UsageError:
        return UsageError(
            f"version {snapshot.version} of {self._url} ({commit.operation} by job {commit.job}) removed {commit.summary.removed_rows} "
            f"rows in {commit.summary.removed_files} files, which a stream cannot take back; nothing of it was given. Restart the stream "
            'with option("onOverwrite", "files") to be given the files that such versions add, or with "skip" to pass them over.'
        )

    # --- the chain --------------------------------------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self._session.store.url

    def _look(self) -> Head:
        """The head as of this call; one list where it is still the one that is known. [RD1]"""
        if self._head is None:
            self._head = self._session.open()
            return self._head
        # What a list shows may be deleted before the get, and brought back by a stalled writer: so look again.
        self._head = newest_above(self._session.store, self._head.version, self._head) or self._session.open()
        return self._head

    def _enter(self, at: Offset) -> Head:
        """The head that is known, where the stream can go on from this offset."""
        head = self._head or self._look()
        if head.snapshot.table_id != at.table:
            raise self._other_table(head.snapshot.table_id, at.table)
        if at.version > head.version + 1:
            raise VersionNotFoundError(
                f"{self._url} has no version above {head.version}, but this stream has read up to {at.version - 1}: an older state of "
                "the table was put back. Nothing was read. Start with a new checkpoint."
            )
        if at.version <= head.version:
            self._check_readable(head, [at.version])
        return head

    def _snapshot(self, at: Offset) -> Snapshot:
        assert self._head is not None
        if at.version == self._head.version:
            return self._head.snapshot
        self._unconfirmed.add(at.version)
        found = read_object(self._session.store, at.version)
        if found is None:
            self._confirm(at)
            raise missing_version(at.version)
        return found.snapshot

    def _confirm(self, at: Offset) -> None:
        """What was read below the head was readable, as the head says that is looked at afterwards. [RD3]"""
        if self._unconfirmed:
            head = self._look()
            if head.snapshot.table_id != at.table:
                raise self._other_table(head.snapshot.table_id, at.table)
            self._check_readable(head, sorted(self._unconfirmed))
            self._unconfirmed.clear()

    def _check_readable(self, head: Head, versions: Sequence[int]) -> None:
        tagged = {tag.version for tag in head.snapshot.tags.values()}
        oldest = head.snapshot.expired
        for version in versions:
            if version < oldest and version not in tagged:
                raise SnapshotExpiredError(
                    f"the stream needs version {version} of {self._url}, which was expired, and its files may be gone; the oldest readable "
                    f'version is {oldest}. Nothing was skipped. Start with a new checkpoint: option("startingVersion", {oldest}) gives '
                    "what that version and later ones added, without it the stream begins with all files that are live now."
                )

    def _other_table(self, there: str, wanted: str) -> TableNotFoundError:
        return TableNotFoundError(
            f"the stream's checkpoint is of the table {wanted}, but at {self._url} there is the table {there}. Nothing was read. "
            "Check the path, or start with a new checkpoint."
        )
