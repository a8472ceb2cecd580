"""Erasure, what `Table.erase` and `Table.erasure` do: rows are to be gone for good. [ER1]-[ER4]

Internal: import from `manifestcommit`. It is made of operations that the table has, and keeps no
state but two idempotency keys, so that a call may be killed and repeated.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from .. import errors
from ..commits.two_phase import give_up, list_jobs
from ..display import ReprMixin, counted
from ..errors import KeyReusedError, ManifestCommitError, UsageError
from ..format import object_names
from ..format.object_names import REFUSED, parse_job_id, parse_version
from ..format.snapshot import is_standby
from ..log.table_context import TableContext, find_key
from ..log.version_chain import read_version
from ..operations import gc as gc_engine
from ..operations.compaction import drop_removed
from ..operations.rollback import untag
from ..operations.upkeep_properties import retention_of
from ..rows.clauses import text_of
from ..runtime.outcome import committed_or_raise
from ..runtime.validation import to_datetime
from ..store import StorageOptions, open_store
from .holders import find_holders
from .row_changes import RowChanges

if TYPE_CHECKING:
    from ..job import Path

_begun = "erase:{}".format  # the key of a reason that is committed once the rows are deleted
_done = "erased:{}".format  # and the one once nothing holds them
_MOST_RUNS = 8  # of gc: each may leave something to the next
_MOST_ROUNDS = 4  # of gc and a look at what is left


class Erasure(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """How far the rows of one `Table.erase` are gone.

    Attributes:
        url: the table path.
        reason: the reason, by which it is found again.
        state: "unknown": nothing is recorded under this reason; "planned": of a dry run; "open":
            something still holds such rows, or nobody has looked since; "done": nothing does.
        version: the version from which on no version tells of the rows: tables and streams that
            follow this one need those below, so let them pass it; None: there is none yet.
        rows: how many rows this call deleted, or would delete; None: it did not get there.
        at: when it was found that the last byte was gone, at the latest; None: it is not done.
        ends: from when on gc may delete the last byte; None: it is done, or was not begun.
        waiting: what still holds such rows, or has to come first.

    Spec: ER2, ER3.
    """

    url: str
    reason: str
    state: Literal["unknown", "planned", "open", "done"]
    version: int | None = None
    rows: int | None = None
    at: dt.datetime | None = None
    ends: dt.datetime | None = None
    waiting: tuple[str, ...] = ()


class Eraser(RowChanges):
    """Makes rows of one table be gone for good. Its commits carry the note of the context."""

    def __init__(self, ctx: TableContext, options: StorageOptions) -> None:
        self._ctx, self._storage_options, self.url = ctx, options, ctx.store.url

    def erase(
        self,
        where: Any,
        reason: str,
        *,
        drop_tags: bool,
        abort_jobs: bool,
        followers: Iterable[Path] = (),
        clones: Iterable[Path] = (),
        grace: str | dt.timedelta | None,
        foreign: bool,
        dry_run: bool = False,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Erasure:
        """As `Table.erase`. [ER2] [ER3] [ER4]"""
        head = self._ctx.open().snapshot
        if is_standby(head):
            raise UsageError(
                f"{self.url} is a clone, and a commit would make a table of its own of it; nothing "
                "was done. Erase the rows in its source, and name this one in `clones`"
            )
        begun = find_key(self._ctx, head, _begun(reason)) is not None
        if begun:
            self._check_condition(reason, where)
        if find_key(self._ctx, head, _done(reason)) is not None:
            return self._after_it_was_done(reason, self.found(where))
        retention_of(head, {"grace": grace})  # UsageError where it is none, as of the next line
        self._behind(0, followers, clones)
        found = self.found(where)
        needed = _needed(found, drop_tags=drop_tags, abort_jobs=abort_jobs)
        if dry_run:
            count = self.delete(where, dry_run=True).rows_deleted
            told = (*self._told(found), *(f"it needs {each}" for each in needed))
            plan = {"state": "planned", "rows": 0 if begun else count, "waiting": told}
            return msgspec.structs.replace(self.erasure(reason), **plan)
        if needed:
            raise UsageError(f"this erasure needs {', and '.join(needed)}; nothing was done")
        beside = self._beside()
        how: dict[str, Any] = {"drop_tags": drop_tags, "abort_jobs": abort_jobs}
        inner = beside and beside.erase(where, reason, grace=grace, foreign=foreign, **how)
        rows = self._delete(found, where, reason, is_begun=begun)
        clean, behind = self._clean(reason, found), list[str]()
        for _ in range(_MOST_ROUNDS):
            behind = self._behind(clean, followers, clones)
            if not behind:
                self._collect(clean, grace, progress, foreign=foreign)
            before, found = found, self.found(where)
            clean = self._clean(reason, found)
            if behind or not found.num_rows or found.equals(before):
                break
        waiting = [*behind, *(inner.waiting if inner else ()), *self._told(found, clean)]
        for copy in map(self._other, clones):
            told = self._told(copy.found(where), clean)
            waiting += [f"{text}; {self._remedy(copy)}" for text in told]
        if not waiting:
            self._record(_done(reason), where, reason)
            return msgspec.structs.replace(self.erasure(reason), rows=rows)
        told = (*waiting, *self._holding_the_fence(clean))
        return msgspec.structs.replace(self.erasure(reason), rows=rows, version=clean, waiting=told)

    def erasure(self, reason: str) -> Erasure:
        """As `Table.erasure`. [ER3]"""
        snapshot = self._ctx.open().snapshot
        begun, done = (find_key(self._ctx, snapshot, key(reason)) for key in (_begun, _done))
        known = Erasure(url=self.url, reason=reason, state="unknown")
        if begun is None:
            return known
        clean = begun.version
        if done is not None:
            at = self._time_of(done.version)
            return msgspec.structs.replace(known, state="done", version=clean, at=at)
        waiting = []
        if snapshot.expired < clean:
            waiting.append(f"versions {snapshot.expired} to {clean - 1} can be read until gc runs")
        waiting += [
            f"tag {name} keeps version {tag.version}, which is older than the deletion"
            for name, tag in snapshot.tags.items()
            if tag.version < clean
        ]
        waiting += self._holding_the_fence(clean)
        waiting.append("`erase` looks again at every object, and records that it is done")
        grace = dt.timedelta(seconds=retention_of(snapshot).grace_s)
        ends = self._time_of(clean) + grace
        found = {"state": "open", "version": clean, "ends": ends, "waiting": tuple(waiting)}
        return msgspec.structs.replace(known, **found)

    # --- the steps

    def found(self, condition: Any) -> pa.Table:
        """What holds such rows, here and in the table beside. [ER1]"""
        beside = self._beside()
        tables = [self._ctx, *([] if beside is None else [beside._ctx])]
        return pa.concat_tables([find_holders(each, condition) for each in tables])

    def _beside(self) -> Eraser | None:
        """The table of refused rows, if there is one."""
        if self.url.endswith(REFUSED):
            return None
        try:
            url = object_names.companion_url(self.url, REFUSED, "")
        except UsageError:
            return None
        beside = self._other(url)
        with contextlib.suppress(errors.TableNotFoundError):
            beside._ctx.open()
            return beside
        return None

    def _other(self, path: Path) -> Eraser:
        options = self._storage_options
        return Eraser(TableContext(open_store(path, options), note=self._ctx.note), options)

    def _after_it_was_done(self, reason: str, found: pa.Table) -> Erasure:
        """Rows that came later are not of this erasure: open, and why. [ER3]"""
        known = self.erasure(reason)
        if not found.num_rows:
            return known
        later = "such rows came after it was done: erase them under another reason"
        return msgspec.structs.replace(known, state="open", waiting=(*self._told(found), later))

    def _check_condition(self, reason: str, where: Any) -> None:
        try:
            self._record(_begun(reason), where, reason)
        except KeyReusedError as error:
            raise KeyReusedError(
                f"{self.url}: the reason {reason!r} was given with another condition before; "
                "nothing was done. Give the same condition, or a reason of its own"
            ) from error

    def _delete(self, found: pa.Table, condition: Any, reason: str, *, is_begun: bool) -> int:
        """Delete the rows, once, and what keeps them; returns how many. [ER2]"""
        mine = [row for row in found.to_pylist() if row["table"] == self.url]
        for row in mine:
            if row["kind"] == "job":
                give_up(self._ctx, row["name"])
        count = 0
        if not is_begun:
            count = self.delete(condition, reason=reason).rows_deleted or 0
        known = self._ctx.open().snapshot.tags
        for row in mine:
            if row["kind"] == "tag" and row["name"] in known:
                committed_or_raise(untag(self._ctx, row["name"]), self.url)
        if not is_begun:
            drop_removed(self._ctx)
            self._record(_begun(reason), condition, reason)
        return count

    def _record(self, key: str, condition: Any, reason: str) -> None:
        """Commit a key without a change. It is declared with a hash that is slow to guess. [ER2]"""
        said = f"{text_of(condition)}".encode()
        told = hashlib.scrypt(said, salt=key.encode(), n=1 << 14, r=8, p=1, dklen=16).hex()
        self.delete(pc.scalar(False), key=key, fingerprint=told, reason=reason)

    def _clean(self, reason: str, found: pa.Table) -> int:
        """The version from which on none tells of the rows, and none that gc might have to keep:
        also a later one may, as of rows that came later and were erased for another reason."""
        head = self._ctx.open()
        begun = find_key(self._ctx, head.snapshot, _begun(reason))
        told = [
            parse_version(row["name"]) or 0
            for row in found.to_pylist()
            if row["kind"] == "version" and row["table"] == self.url
        ]
        clean = begun.version if begun else 0
        return clean if head.version in told else max([clean, *(version + 1 for version in told)])

    def _behind(self, clean: int, followers: Iterable[Path], clones: Iterable[Path]) -> list[str]:
        """Which of these tables still need a version that is to go. [ER4]"""
        found = []
        for each in map(self._other, followers):
            ends = each._ctx.open().snapshot.watermarks
            at = [end for name, end in ends.items() if self._is_source(name)]
            if not at:
                raise self._stranger(each, "followers", "has no watermark of")
            if any(not isinstance(end, int) or end < clean for end in at):
                found.append(f"{each.url} has followed up to version {min(at)}, not to {clean}")
        for each in map(self._other, clones):
            copy = each._ctx.open().snapshot
            table_id = self._ctx.open().snapshot.table_id
            if table_id not in copy.cloned or not is_standby(copy):
                raise self._stranger(each, "clones", "is a table of its own, or no clone of")
            if copy.version < clean:
                lag = f"{each.url} is a clone up to version {copy.version}, not to {clean}"
                found.append(f"{lag}; {self._remedy(each)}")
        return found

    def _remedy(self, copy: Eraser) -> str:
        """What lets a clone go on, which deletes nothing that an older tag may bring back. [CN5]"""
        there, tags = copy._ctx.open().snapshot, self._ctx.open().snapshot.tags
        older = [name for name in tags.keys() - there.tags if tags[name].version < there.expired]
        first = f"drop tag {min(older)}, whose version the clone lacks, and " if older else ""
        return f"{first}call `manifestcommit clone {self.url} {copy.url}`"

    def _stranger(self, other: Eraser, argument: str, why: str) -> UsageError:
        return UsageError(
            f"{other.url} {why} {self.url}; nothing was done. Leave it out, and erase the rows "
            "there by a call of its own",
            argument=argument,
        )

    def _holding_the_fence(self, clean: int) -> list[str]:
        """The jobs for which gc keeps versions below the clean one. [AB5]"""
        return [
            f"job {each.job} is prepared and holds the fence: commit or abort it"
            for each in list_jobs(self._ctx)
            if each.state == "prepared" and parse_job_id(each.job).birth < clean
        ]

    def _is_source(self, name: str) -> bool:
        """Whether a source is this table: as `follow` names it, or by its path."""
        path = name.removeprefix("table:").partition("#")[0]
        with contextlib.suppress(ManifestCommitError):
            is_near = path.rstrip("/").endswith(self.url.rpartition("/")[2])
            return is_near and open_store(path, self._storage_options).url == self.url
        return False

    def _collect(
        self, clean: int, grace: Any, progress: Callable[[str], None], *, foreign: bool
    ) -> None:
        """Let gc expire all versions below the clean one, and delete what it may, until it finds
        nothing more but exports, of which each commit leaves another one. [ER2]"""
        for _ in range(_MOST_RUNS):
            snapshot = self._ctx.open().snapshot
            void = sum(each >= clean for each in snapshot.void)
            kept = max(1, snapshot.version - clean + 1 - void)
            asked = {"grace": grace, "keep_versions": kept, "keep_for": "0s"}
            policy = retention_of(snapshot, asked)
            done = gc_engine.run(self._ctx, policy, foreign=foreign, progress=progress)
            if not done.deleted.keys() - {"export"}:
                return

    def _told(self, found: pa.Table, clean: int = 0) -> tuple[str, ...]:
        """What was found, by kind; not what jobs are writing that began after the deletion."""
        counts = Counter(
            (row["table"], row["kind"], row["why"])
            for row in found.to_pylist()
            if row["kind"] != "unfinished" or not 0 < clean <= _birth(row["name"])
        )
        return tuple(
            f"{'' if table == self.url else f'{table}: '}{counted(count, kind)}: {why}"
            for (table, kind, why), count in counts.items()
        )

    def _time_of(self, version: int) -> dt.datetime:
        """When a version was committed; of an expired one, at the latest."""
        head = self._ctx.open()
        known = [(head.version, head.snapshot.committed_at), *head.snapshot.dated]
        with contextlib.suppress(errors.SnapshotExpiredError):
            known = [(version, read_version(self._ctx.store, head, version).snapshot.committed_at)]
        return to_datetime(min(time for number, time in known if number >= version))


def _needed(found: pa.Table, *, drop_tags: bool, abort_jobs: bool) -> list[str]:
    """What has to be given for the tags and undecided jobs that hold such rows. [ER4]"""
    needed = []
    for kind, is_given, option in (
        ("tag", drop_tags, "drop_tags=True, which deletes"),
        ("job", abort_jobs, "abort_jobs=True, which aborts"),
    ):
        held = (row for row in found.to_pylist() if row["kind"] == kind)
        names = [f"{kind} {row['name']} of {row['table']}" for row in held]
        if names and not is_given:
            more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
            needed.append(f"{option} {', '.join(names[:5])}{more}")
    return needed


def _birth(name: str) -> int:
    """The version at which the job of a data file began; 0: of no job."""
    job = object_names.job_of_data_file(name)
    return 0 if job is None else parse_job_id(job).birth
