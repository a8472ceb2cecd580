"""A job from begin to outcome: what it declares, the files it gathers, and its one commit. [CM1] [KY3] [SC3]

No Spark here: `plan_write` says how files must be written, `add_written` takes what came of it. Not here: the commit loop (engine.commit).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec
import pyarrow as pa

from ..core import arrow, format, partition
from ..core.change import Change, ConflictChoice, Overwrite, StreamBatch, declaration
from ..core.conflict import find_conflict
from ..core.evolution import assign_new_ids
from ..core.layout import Layout, check_inside, lay_out, replaced
from ..core.manifest import Entry, ManifestRef, SourceRange
from ..core.schema import Schema, relaxed
from ..core.snapshot import KeyRecord
from ..core.touch import Touch, of_partition, once
from ..core.watermark import Advance, find_misfit
from ..errors import ManifestCommitError, TableNotFoundError, UsageError
from . import files
from .commit import commit, create_table, key_outcome, measured
from .figures import Figures, Intake, Ledger, Meter
from .given import Ranges, advance_of, advances_of, check_work
from .head import Head
from .inspect import footer_schema, inspect_file
from .lookup import find_job_at, find_key_at
from .outcome import Outcome, error_of
from .prepare import put_prepared, seal
from .recovery import Recovery, intake_of
from .roots import open_or_free
from .session import Session
from .survey import survey

LOG = logging.getLogger("manifestcommit.jobs")
Progress = Callable[[int, int], None]  # rows, files so far


class Job:
    """One attempt to change a table. Nothing of it is visible before `commit` returns a committed outcome. [DF1] [CM10]

    key: the caller's name for this unit of work, the same on every rerun; fingerprint: anything else that makes it the same work.
    """

    def __init__(self, session: Session, *, key: str | None = None, fingerprint: str | None = None, recoverable: bool = False) -> None:
        check_work(key=key, fingerprint=fingerprint)
        self._session = session
        self._key = None if key is None else str(key)
        self._fingerprint = None if fingerprint is None else str(fingerprint)
        self.recovery = Recovery(session, self._key, self._fingerprint) if recoverable else None
        self._ledger = Ledger(session.tally, session.env.now_us)
        self._meter: Meter | None = None
        self._head: Head | None = None
        self._id: str | None = None
        self._record: KeyRecord | None = None
        self._mode = "append"
        self._overwrite: Mapping[str, Any] | Literal["dynamic"] | None = None
        self._conflict: ConflictChoice = "serializable"
        self._layout = Layout()
        self._entries: list[Entry] = []
        self._manifests: list[ManifestRef] = []
        self._touched: list[Touch] = []
        self._advances: list[Advance] = []
        self._stream: StreamBatch | None = None
        self._change: Change | None = None
        self._tasks = 0
        self._finished = self._failed = 0  # writes
        self._writing = False
        self._over = ""
        self._tried = self._may_be_published = False
        self._sealed: bytes | None = None
        self._head = open_or_free(session)
        if self._head is not None:
            self._begin()

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run committed this key, so that there is nothing to write. [KY3]"""
        return self._record is not None

    @property
    def id(self) -> str:
        """The job's id; a table that does not exist yet is created for it. [LY4]"""
        self._table(None, ())
        assert self._id is not None
        return self._id

    @property
    def key(self) -> str | None:
        return self._key

    @property
    def known_id(self) -> str:
        """The job's id, or "" while there is no table that it could be a job of."""
        return self._id or ""

    @property
    def figures(self) -> Figures:
        """The job in numbers: as it ended, or as it stands. [OB10]"""
        if self._meter is not None and self._meter.ended is not None:
            return self._meter.ended
        return self._session.meter(self.known_id, self._mode, self._ledger.summary(self._tasks)).figures("running")

    @property
    def was_tried(self) -> bool:
        """Whether it was to be committed before, so that some of it may have landed: `commit_again` counts that. [CM6]"""
        return self._tried

    @property
    def is_over(self) -> bool:
        """Whether it was committed, refused or given up."""
        return bool(self._over)

    @property
    def url(self) -> str:
        return self._session.store.url

    # --- what it declares ----------------------------------------------------------------------------------------------

    def overwrite(self, overwrite: Mapping[str, Any] | Literal["dynamic"] | None, *, conflict: str = "serializable") -> None:
        """Replace the whole table (None), the partitions that the job writes ("dynamic"), or those given. [CF3] [CF4] [CF5]"""
        self._check_open()
        if overwrite is not None and overwrite != "dynamic" and not isinstance(overwrite, Mapping):
            raise UsageError(
                f'overwrite is None for the whole table, "dynamic", or a mapping such as {{"day": "2013-01-01"}}, not {overwrite!r}'
            )
        if conflict not in get_args(ConflictChoice):
            raise UsageError(f"conflict is one of {', '.join(get_args(ConflictChoice))}, not {conflict!r}")
        if overwrite == {}:
            raise UsageError("overwrite={} names no partition; give None to replace the whole table")
        if self._mode == "overwrite" and self._overwrite != overwrite:
            raise UsageError(f"this job overwrites {self._overwrite!r} already; one job replaces one set of partitions. Use a second job.")
        self._mode, self._overwrite, self._conflict = "overwrite", overwrite, cast(ConflictChoice, conflict)

    def advance(self, source: str, start: int | str | None, end: int | str) -> None:
        """Move a source's watermark from `start` to `end` together with the data. [WM2]"""
        self._check_open()
        self._advances.append(advance_of(source, start, end))

    def take_batch(self, batch: StreamBatch) -> None:
        """This job is one batch of a streaming query: committed at most once, and after the one before it. [KY6]"""
        self._check_open()
        self._stream = batch

    def resume(self, planned: Change, *, began_us: int) -> None:
        """Go on under the id of a job that planned one write in another process, before anything was written: take over its plan. [SP7]

        Only for jobs without a key that append or replace the whole table, as a streaming query's batches do.
        """
        if self._head is None:
            raise TableNotFoundError(f"the table at {self.url} was removed while this job ran; nothing was committed. Run it again.")
        self._id, self._ledger = planned.job, Ledger(self._session.tally, self._session.env.now_us, began_us=began_us)
        self._layout = Layout(schema=planned.schema, partition_by=planned.partition_by, initial=planned.initial, edits=planned.edits)
        if planned.overwrite is not None:
            self.overwrite(None, conflict=planned.overwrite.conflict)

    # --- what it writes ------------------------------------------------------------------------------------------------

    def plan_write(
        self,
        data: Schema,
        *,
        partition_by: Sequence[str] | str | None = None,
        merge_schema: bool = False,
        target_file_size: int | None = None,
        sources: Ranges | None = None,
    ) -> files.WritePlan:
        """How tasks must write data of this schema; SchemaMismatchError before any of them starts. [SC3] [SC5] [PT1]

        sources: the ranges that the rows come from, kept with every file. [OB8]
        """
        self._check_open()
        names = [partition_by] if isinstance(partition_by, str) else partition_by
        head = self._table(data, tuple(names or ()))
        if head.snapshot.schema is None:
            head = self._first_schema(head, data, tuple(names or ()))
        self._check_early(head)
        new_id = self._session.new_field_id
        if self.recovery is not None:
            self._failed += self._writing
            new_id = self.recovery.start(self.id, finished=self._finished, failed=self._failed)
        layout = lay_out(self._layout, head.snapshot, data, names, merge=merge_schema, new_id=new_id, url=self.url)
        assert layout.schema is not None and layout.partition_by is not None
        self._layout, self._writing = layout, True
        return files.plan_for(
            head.snapshot,
            url=self.url,
            job=self.id,
            schema=layout.schema,
            partition_by=layout.partition_by,
            target_file_size=target_file_size,
            sources=_source_ranges(sources),
        )

    def add_written(
        self,
        entries: Iterable[Entry],
        manifests: Sequence[ManifestRef] = (),
        *,
        touched: Sequence[Touch] = (),
        tasks: int = 1,
        intake: Intake | None = None,
    ) -> None:
        """Take over what tasks wrote; it is this job's from now on, and still invisible. No entry of a manifest is held. [SP2] [CM26]

        touched: the partitions of what is in the manifests; left out, they are looked for there. intake: what the tasks were handed.
        """
        self._check_open()
        self._finished, self._writing = self._finished + 1, False
        entries = list(entries)
        self._ledger.take(entries, manifests, intake)
        self._entries += entries
        self._manifests += manifests
        schema, partition_by = self._layout.schema, self._layout.partition_by
        if schema is not None and partition_by is not None:
            touched = touched or self._session.manifests.touched(manifests, schema=schema, partition_by=partition_by)
            self._touched = list(once([*self._touched, *touched]))
        self._tasks += tasks

    def write_stream(
        self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, progress: Progress | None = None, **options: Any
    ) -> None:
        """Write an Arrow stream in this process, through the path that Spark's tasks take. options: as for `plan_write`. [DF1] [DF2]"""
        if self.already_committed:
            return
        plan = self.plan_write(arrow.from_arrow(schema, self._session.new_field_id), **options)
        work = None
        same = self.recovery.fingerprint if self.recovery is not None else None
        if self.recovery is not None and same is not None:
            work = self.recovery.work(plan, tasks=1, same=same)
            if done := work.finished(self._session.store).get(0):
                self.add_written(done.entries, done.manifests, intake=intake_of(done))
                return
        elif self.recovery is not None:
            LOG.warning(
                "job %s: nothing of it can be taken over by a rerun, which could not know that its data is the same. If you know, say so "
                "with fingerprint=…",
                self.id,
            )
        attempt = self._session.env.randomness(8).hex()
        rows = 0
        with files.DataFileWriter(self._session.store, plan, task=self._tasks, attempt=attempt) as writer:
            for batch in batches:
                writer.write(batch)
                rows += batch.num_rows
                if progress is not None:
                    progress(rows, 0)
            entries = writer.close()
            if work is None:
                self.add_written(entries, intake=writer.intake)
            else:
                done = work.finish(self._session.store, self._session.env, 0, entries, intake=writer.intake)
                self.add_written(done.entries, done.manifests, intake=intake_of(done))

    def add_files(self, paths: Iterable[str], *, sources: Ranges | None = None) -> None:
        """List files that something else wrote below the root; each is checked now and left where it is. [AF1] [OB8]"""
        self._check_open()
        ranges = _source_ranges(sources)
        if isinstance(paths, str):
            raise UsageError("add_files takes a list of paths relative to the table's root, not one text")
        if self.already_committed:
            return
        for path in paths:
            head = self._table(None, ())
            if (self._layout.schema or head.snapshot.schema) is None:
                self.plan_write(arrow.from_arrow(footer_schema(self._session.store, path), self._session.new_field_id))
                self._writing = False
            schema = self._layout.schema or head.snapshot.schema
            assert schema is not None
            if any(entry.path == path for entry in self._entries):
                raise UsageError(f"{path!r} is added twice by this job; its rows would be doubled")
            self._check_settled(path, head)
            chosen = self._layout.partitioning(head.snapshot)
            entry = inspect_file(
                self._session.store,
                path,
                schema=schema,
                partition_by=chosen,
                job=self.id,
                bounds_columns=files.bounds_columns_of(head.snapshot),
            )
            self._layout = msgspec.structs.replace(self._layout, schema=schema, partition_by=chosen)
            self._entries.append(msgspec.structs.replace(entry, sources=ranges) if ranges else entry)
            self._ledger.take([entry], (), Intake(rows=entry.rows, bytes=entry.bytes))

    # --- how it ends ---------------------------------------------------------------------------------------------------

    def commit(self, *, publishing: bool = True) -> Outcome:
        """Everything that the job declared and wrote becomes visible at once, or nothing does. [CM1]-[CM8]

        publishing: whether other writers may be asked to commit it, after which nobody but a head can say that it has failed. [CM19]
        """
        self._check_open()
        self._over, self._tried = "was committed or refused", True
        self._may_be_published = publishing
        self._change = change = self.change()
        self._meter = meter = self._session.meter(change.job, change.operation, change.summary)
        if self._record is not None:
            return measured(key_outcome(change, self._record), meter)
        assert self._head is not None
        known = self._session.known
        base = known if known is not None and known.version > self._head.version else self._head
        return self._commit(base, change, meter, publishing=publishing)

    def commit_again(self) -> Outcome:
        """The same change once more, where the store failed or did not say: whatever of the first try landed counts. [CM1] [CM6]"""
        if self._change is None or self._record is not None:  # nothing was sent
            self._over = ""
            return self.commit()
        change = self._change
        self._meter = meter = self._session.meter(change.job, change.operation, change.summary, "second")
        return self._commit(self._session.open(), change, meter, shared=True, published=self._may_be_published)

    def _commit(
        self, base: Head, change: Change, meter: Meter, *, shared: bool = False, publishing: bool = False, published: bool = False
    ) -> Outcome:
        if self.recovery is not None:
            return self.recovery.judged(change, commit(self._session, base, change, shared=True, meter=meter))
        return commit(self._session, base, change, shared=shared, publishing=publishing, published=published, meter=meter)

    def prepare(self) -> str:
        """Make the job durable, so that any process can commit it or give it up; returns its id. Nothing is visible yet. [AB3]

        May be called again where it failed: from the first request on the job is sealed, since that may have landed.
        """
        if self._sealed is None:
            self._check_open()
            self._meter = self._session.meter(self.id, self._mode, self._ledger.summary(self._tasks), "first")
            self._sealed = seal(self._session, self.change(), self._record)
        self._over = "may have been prepared, and others may finish it: prepare it again to be sure"
        put_prepared(self._session, self.id, self._sealed)
        self._over = "was prepared: commit it or give it up by its id"
        if self._meter is not None and self._meter.ended is None:
            self._meter.end("prepared")
        return self.id

    def abandon(self) -> None:
        """Stop. Nothing is deleted: what was written stays unlisted, and gc collects it. [AB1] [AB2]"""
        if self._sealed is not None:
            raise UsageError(f"this job {self._over}; abort({self.url!r}, {self.id!r}) gives it up")
        if not self._over:
            self._meter = self._session.meter(self.known_id, self._mode, self._ledger.summary(self._tasks))
            self._meter.end("abandoned" if self.recovery is None else "left")
        self._over = self._over or "was given up"

    def change(self) -> Change:
        """What would be committed now."""
        head = self._table(None, ())
        layout, overwrite = self._layout, None
        if self._mode == "overwrite":
            overwrite = replaced(self._overwrite, layout, head.snapshot, self._conflict)
        advances = tuple(self._advances)
        by_id = layout.partitioning(head.snapshot)
        touched = once([*self._touched, *(of_partition(by_id, entry.partition) for entry in self._entries)])
        check_inside(overwrite, touched, layout.schema or head.snapshot.schema, self._overwrite)
        return Change(
            job=self.id,
            birth=format.parse_job_id(self.id).birth,
            operation=self._mode,
            key=self._key,
            declared=declaration(mode=self._mode, scope=_declared_scope(overwrite), advances=advances, fingerprint=self._fingerprint),
            schema=layout.schema,
            partition_by=by_id if layout.schema is not None else None,  # a job that lays out no file fits any partitioning
            edits=layout.edits,
            initial=layout.initial,
            add=tuple(self._entries),
            add_manifests=tuple(self._manifests),
            touched=touched,
            overwrite=overwrite,
            advances=advances,
            stream=self._stream,
            summary=self._ledger.summary(self._tasks),
        )

    def _check_settled(self, path: str, head: Head) -> None:
        """A file of a job that may still commit would be listed twice: a job does not look for its own paths. [CF10] [AF1]"""
        writer = format.job_of_data_file(path)
        if writer is None or format.parse_job_id(writer).table_id != head.snapshot.table_id:
            return
        if find_job_at(self._session, head, writer)[1][0] != "committed":
            raise UsageError(f"{path!r} was written by job {writer}, which has not committed and may still do so. Nothing was added.")

    def _begin(self) -> None:
        assert self._head is not None
        if self._key is not None:
            self._head, self._record = find_key_at(self._session, self._head, self._key)
        self._id = self._session.new_job(self._head)
        if self.recovery is not None and self._record is None:
            self._id = self.recovery.find(self._head.snapshot) or self._id

    def _table(self, data: Schema | None, partition_by: tuple[str, ...]) -> Head:
        """The head that this job was born under; where there is no table yet, it is created first. [CM13] [ST12]"""
        if self._head is None:
            # What happens to hold no null in the first data may well hold one in the next: only create_table binds columns.
            schema = assign_new_ids(relaxed(data), self._session.new_field_id) if data is not None else None
            chosen = partition.check_partition_by(schema, partition_by) if schema is not None else ()
            self._head = create_table(self._session, schema=schema, partition_by=chosen, properties={}, provisional=True)
            self._begin()
        self._session.prove(self._head.snapshot.proven)
        return self._head

    def _first_schema(self, head: Head, data: Schema, partition_by: tuple[str, ...]) -> Head:
        """Give a table its first schema in a commit of its own; whoever loses that race fits the winner's. [CF8]"""
        schema = assign_new_ids(relaxed(data), self._session.new_field_id)
        job = self._session.new_job(head)
        change = Change(
            job=job,
            birth=head.version,
            operation="schema",
            initial=schema,
            partition_by=partition.check_partition_by(schema, partition_by),
        )
        commit(self._session, head, change)
        found = self._session.open()
        if found.snapshot.schema is None:
            raise ManifestCommitError(f"{self.url}: the table's first schema could not be set; run the job again")
        self._head = found  # the job's birth stays what its id says
        return found

    def _check_early(self, head: Head) -> None:
        """Refuse now, before any task starts, what no later commit of others can make right. [SC3] [WM2] [CF5]

        A gap may close while this job runs; an overlap stays. What holds files already will not be empty.
        """
        misfit = find_misfit(head.snapshot.watermarks, head.snapshot.origins, self._advances)
        change = self.change() if misfit is not None or self._conflict == "fail" else None
        if change is None:
            return
        conflict = find_conflict(head.snapshot, change, (), survey(self._session, head, change))
        if conflict is not None and conflict.rule in ("watermark_overlap", "partition_is_filled"):
            error = error_of(Outcome(kind="conflict", job_id=self.id, conflict=conflict), self.url)
            assert error is not None
            raise error

    def _check_open(self) -> None:
        if self._over:
            raise UsageError(f"this job {self._over}; begin a new one")


def _declared_scope(overwrite: Overwrite | None) -> object:
    if overwrite is None:
        return None
    return "dynamic" if overwrite.dynamic else [sorted((str(k), v) for k, v in touch.items()) for touch in overwrite.scope]


def _source_ranges(sources: Ranges | None) -> tuple[SourceRange, ...]:
    """The ranges of a file's rows, well-formed as advances are. [OB8] [WM3]"""
    return tuple(SourceRange(source=each.source, start=each.start, end=each.end) for each in advances_of(sources))
