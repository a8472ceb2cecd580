"""Recoverable jobs: finished tasks outlive their driver, and a rerun of the same key goes on under
the old job's id. [AB6] [LY5]

Every task has one output at most, however often it is computed: the first to create its
object has it, all others take that.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from ..errors import StoreError, UsageError
from ..files.writer import WritePlan
from ..format import codec, object_names
from ..format.change import Write
from ..format.entries import Entry, FinishedTask, ManifestRef
from ..format.snapshot import FORMAT_VERSION, Snapshot
from ..log.manifests import create_own
from ..log.table_context import TableContext, dropped_at, find_key_at
from ..protocol.conflict import FINAL
from ..runtime.environment import STARTS, Env, create, map_concurrently
from ..runtime.outcome import InputTotals, Outcome
from ..store import Store
from ..version import WRITER
from .prepared_job import key_outcome

LOG = logging.getLogger("manifestcommit.jobs")
_FETCHERS = 16  # there may be thousands of tasks


class TaskCheckpoints(msgspec.Struct, frozen=True, kw_only=True):
    """One write of a recoverable job, with a name that no other has: the same name is the same rows
    in each of its tasks. [AB6] It travels to tasks, as its plan does. name: 32 hex digits; tasks:
    how many there are."""

    plan: WritePlan
    name: str
    tasks: int

    def finished(self, store: Store) -> dict[int, FinishedTask]:
        """The tasks whose files are there, of any attempt. A list, and a request for each. [AB6]"""
        prefix = object_names.tasks_prefix(self.plan.job, self.name)
        listed = [info.name for info in store.list(prefix)]
        tasks = {name: object_names.parse_task(name, prefix) for name in listed}
        names = {name: task for name, task in tasks.items() if task is not None}
        objects = map_concurrently(store, partial(_read, store), list(names), limit=_FETCHERS)
        read = zip(names.values(), objects, strict=True)
        present = ((task, data) for task, data in read if data is not None and task < self.tasks)
        found = {task: self._decode(data, task) for task, data in present}
        files = {entry.path: entry.bytes for done in found.values() for entry in done.entries}
        files |= {ref.path: ref.bytes for done in found.values() for ref in done.manifests}
        are_there = map_concurrently(
            store, lambda path: _is_there(store, path, files[path]), list(files), limit=_FETCHERS
        )
        for path, is_there in zip(files, are_there, strict=True):
            if not is_there:
                url, job = store.url, self.plan.job
                raise StoreError(
                    f"{url}/{path}, which an earlier attempt of job {job} finished, is gone: "
                    "something else removed it. Nothing was committed. Abort that job, "
                    f"abort({url!r}, {job!r}), and run it again."
                )
        return found

    def finish(
        self,
        store: Store,
        env: Env,
        task: int,
        entries: tuple[Entry, ...],
        manifests: tuple[ManifestRef, ...] = (),
        intake: InputTotals | None = None,
    ) -> FinishedTask:
        """The output of this task that counts: this one, or that of the first attempt, and then
        this one's files stay unlisted. [AB6]"""
        finished = FinishedTask(
            format_version=FORMAT_VERSION,
            task=task,
            entries=entries,
            manifests=manifests,
            rows_read=None if intake is None else intake.rows,
            bytes_read=None if intake is None else intake.bytes,
            writer=WRITER,
        )
        name = object_names.task_name(self.plan.job, self.name, task)
        data = codec.encode_task(finished)
        for _ in range(STARTS):
            if create(store, name, data, env):
                return finished
            if (winner := _read(store, name)) is not None:
                return self._decode(winner, task)
        advice = "Nothing was committed; run the job again."
        raise StoreError(f"{store.url}/{name} is taken and gone, again and again. {advice}")

    def _decode(self, data: bytes, task: int) -> FinishedTask:
        name = object_names.task_name(self.plan.job, self.name, task)
        return codec.decode_task(data, self.plan, name=name, job=self.plan.job, task=task)


def intake_of(finished: FinishedTask) -> InputTotals | None:
    """What a finished task was handed; None where it did not say. [OB10]"""
    if finished.rows_read is None or finished.bytes_read is None:
        return None
    return InputTotals(rows=finished.rows_read, bytes=finished.bytes_read)


class Recovery:
    """What a recoverable job does that others do not; one for each job. fingerprint: the caller's
    promise that the same one is the same rows. [AB6]"""

    def __init__(self, ctx: TableContext, key: str | None, fingerprint: str | None) -> None:
        if key is None:
            why = "by it a rerun finds what an earlier run of the same work has finished"
            raise UsageError(f"recoverable=True needs a key: {why}")
        if fingerprint is None:
            raise UsageError(
                "recoverable=True needs a fingerprint: a text that names all that decides the "
                "rows, such as the input and the program's release. A rerun takes over what was "
                "finished under the same one; nothing was done"
            )
        self._ctx, self._key = ctx, key
        self.fingerprint = fingerprint
        self._marked = ""
        self._write = (0, 0)

    def find(self, snapshot: Snapshot) -> str | None:
        """The attempt at this key that a rerun goes on with: neither settled, fenced nor prepared,
        the youngest; None: there is none. None that began before the key, or any source, was set
        back: it could not commit what it has been set back to. [WM6] [KY7] One list of the marks of
        this key, and one more for each attempt that is looked into. [AB6]"""
        store = self._ctx.store
        marks = store.list(object_names.key_marks_prefix(self._key))
        lowest = max(dropped_at(self._ctx, snapshot, self._key), *snapshot.set_back.values(), 0)
        jobs = [object_names.job_of_handed(info.name) for info in marks]
        births = ((_birth(job, snapshot), job) for job in jobs)
        young = [(birth, job) for birth, job in births if birth is not None and birth >= lowest]
        for _, job in sorted(young, reverse=True):
            if self._ctx.manifests.job(snapshot, job)[0] is None and not any(
                store.list(object_names.prepared_name(job))
            ):
                self._marked = job
                return job
        return None

    def start(self, job: str, *, finished: int, failed: int) -> Callable[[], int]:
        """From here on a rerun can find the job. Returns what gives new columns their ids: the same
        to every run of it. [AB6] [SC1]

        finished, failed: how many writes of the job have been so far, which distinguish this one
        from the others. One that is repeated after it failed may be another one: its number is its
        own, and a rerun in which nothing fails does not take it for any.
        """
        if self._marked != job:
            name = object_names.key_mark_name(job, self._key)
            create_own(self._ctx.store, name, self._key.encode(), self._ctx.env)
            self._marked = job
        self._write, counter = (finished + 1, failed), itertools.count()
        return lambda: (int(_digest([job, self._write, next(counter)])[:8], 16) & 0x7FFFFFFF) or 1

    def work(self, plan: WritePlan, *, tasks: int, same: str) -> TaskCheckpoints:
        """The write that was planned last. same: what is equal in two runs only if each task has
        the same rows in both. [AB6]"""
        how = {**msgspec.to_builtins(plan, str_keys=True), "url": None, "shared": None}
        name = _digest([self._write, how, tasks, same])[:32]
        return TaskCheckpoints(plan=plan, tasks=tasks, name=name)

    def judged(self, change: Write, outcome: Outcome) -> Outcome:
        """The outcome, where another driver may have committed under the same id, and what follows
        from it for reruns. [KY2] [AB6]"""
        self.forget_if_final(outcome)
        if outcome.kind != "committed" or outcome.version is None:
            return outcome
        known = self._ctx.known
        head = known if known is not None and known.version >= outcome.version else self._ctx.open()
        _, record = find_key_at(self._ctx, head, self._key)
        # not another driver's create
        is_mine = outcome.metrics is None or outcome.metrics.kind == "committed"
        if record is None or (record.digest == change.declared and is_mine):
            return outcome
        told = key_outcome(change, record)
        said = {"kind": told.kind, "version": told.version, "reason": told.reason}
        return msgspec.structs.replace(outcome, **said)

    def forget_if_final(self, outcome: Outcome) -> None:
        """Let no rerun go on with a job whose conflict follows from its birth: that stays what it
        is, and so would the conflict. [AB6]"""
        if outcome.conflict is None or outcome.conflict.rule not in FINAL:
            return
        job = outcome.job_id
        try:
            self._ctx.store.delete([object_names.key_mark_name(job, self._key)])
        except StoreError as error:
            text = "the mark of job %s could not be removed, so that a rerun will go on with it: %s"
            LOG.warning(text, job, error)


def is_recoverable(ctx: TableContext, job: str) -> bool:
    """Whether a rerun may go on with this job. One list of all marks. [AB4] [AB6]"""
    marks = ctx.store.list(object_names.MARKS)
    return any(object_names.job_of_handed(info.name) == job for info in marks)


def _birth(job: str, snapshot: Snapshot) -> int | None:
    """The birth of a job that can still commit here; None: it cannot, or it is not a job."""
    if not object_names.is_job_id(job):
        return None
    name = object_names.parse_job_id(job)
    is_near = snapshot.fence <= name.birth <= snapshot.version
    return name.birth if is_near and name.table_id == snapshot.table_id else None


def _read(store: Store, name: str) -> bytes | None:
    try:
        return store.get(name, 0, codec.MAX_OBJECT_BYTES + 1)
    except FileNotFoundError:
        return None


def _is_there(store: Store, path: str, size_bytes: int) -> bool:
    """Whether the object is there in its length. [IV6]"""
    try:
        return len(store.get(path, size_bytes - 1, size_bytes + 1)) == 1
    except FileNotFoundError:
        return False


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
