"""The rules for what one version may do to the one before it: an independent implementation of the specification. [CM17]

Pure.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from manifestcommit.format import object_names
from manifestcommit.format.object_names import writer_of
from manifestcommit.format.snapshot import Commit, Snapshot
from manifestcommit.testing.history.operation import Operation


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A version as the oracle holds it. keys: key -> the version that recorded it; jobs: as recorded in the chain; objects: everything that
    it lists besides data files."""

    snapshot: Snapshot
    digest: str
    files: dict[str, Any]
    keys: dict[str, int]
    jobs: dict[str, int | None]
    objects: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return self.snapshot.version

    @property
    def commit(self) -> Commit:
        """The commit to check; for a version as a whole, its creator's."""
        return self.snapshot.commits[-1]

    @property
    def is_void(self) -> bool:
        """Whether it is the state below an aborted member of a joint commit, in its place."""
        return self.version in self.snapshot.void

    @property
    def carried(self) -> frozenset[str]:
        """The jobs of all its commits."""
        return frozenset(commit.job for commit in self.snapshot.commits)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit to check. chain: all versions before its own; old: the state that it was applied to, the last of them or, if its version
    carries several commits, that with those before it; declared: what its job may have been asked, by each process that ran it; earlier:
    the same for every job."""

    chain: Sequence[State]
    old: State
    new: State
    declared: Sequence[Operation]
    earlier: dict[str, list[Operation]]

    @property
    def birth(self) -> int:
        return birth_of(self.new.commit.job)


def birth_of(job: str) -> int:
    """The base version of a job. [LY4]"""
    return object_names.parse_job_id(job).birth


def steps_of(chain: Sequence[State], new: State, declared: dict[str, list[Operation]]) -> Iterator[Step]:
    """The commits of a version, one after another, each applied to the result of those before it. [CM24]"""
    old, commits = chain[-1], new.snapshot.commits
    for number, commit in enumerate(commits):
        told = declared.get(commit.job, [])
        made = _alone(new, commit) if number == len(commits) - 1 else _with(old, new, commit, told)
        yield Step(chain=chain, old=old, new=made, declared=told, earlier=declared)
        # The next commit becomes part of the same version.
        stays = msgspec.structs.replace(made.snapshot, version=old.version, parent_digest=old.snapshot.parent_digest)
        old = msgspec.structs.replace(made, snapshot=stays, digest=old.digest)


def _alone(new: State, commit: Commit) -> State:
    return msgspec.structs.replace(new, snapshot=msgspec.structs.replace(new.snapshot, commits=(commit,)))


def _with(old: State, new: State, commit: Commit, told: Sequence[Operation]) -> State:
    """The state after an append in a group commit, as far as it was declared."""
    adds = told[0].adds if told else {}
    return msgspec.structs.replace(
        _alone(new, commit),
        files={**old.files, **adds},
        keys=old.keys if commit.key is None else {**old.keys, commit.key: new.version},
        jobs={**old.jobs, commit.job: new.version},
    )


def broken(step: Step) -> Iterator[str]:
    """Every rule that the step breaks, in words, with its clause."""
    for rule in RULES:
        if (said := rule(step)) is not None:
            yield said


def carried_wrongly(snapshot: Snapshot, declared: dict[str, list[Operation]]) -> str | None:
    """Why a version may not carry these jobs together, or does not record what each has advanced. [CM20] [CM24]"""
    for commit in snapshot.commits if len(snapshot.commits) > 1 else ():
        told = declared.get(commit.job)
        if commit.operation != "append" or not told or told[0].empties:
            return f"it carries job {commit.job} ({commit.operation}) beside others [CM20]"
        if commit.advanced != told[0].advances:
            return f"it says that job {commit.job} advanced {commit.advanced} [CM24]"
    return None


def _chain(step: Step) -> str | None:
    old, new = step.old.snapshot, step.new.snapshot
    if (new.version, new.parent_digest, new.table_id) != (old.version + 1, step.old.digest, old.table_id):
        return "it is not built on the version before it [IV1]"
    if object_names.parse_job_id(step.new.commit.job).table_id != new.table_id:
        return "its job is of another table [LY10]"
    return "its time is before that of its parent [CM14]" if new.committed_at < old.committed_at else None


def _fence(step: Step) -> str | None:
    old, new = step.old.snapshot, step.new.snapshot
    if not old.fence <= new.fence <= new.version or not old.expired <= new.expired <= new.fence:
        return f"fence {old.fence} -> {new.fence}, expired {old.expired} -> {new.expired} [GC2]"
    if step.new.commit.operation != "gc" and (old.fence, old.expired) != (new.fence, new.expired):
        return "fence or expired moved without a gc [CM17]"
    if step.birth < old.fence:
        return f"its job began at {step.birth}, below the fence {old.fence} [CM2]"
    for path in step.new.files.keys() - step.old.files.keys() if step.new.commit.restored is None else ():
        writer = writer_of(path, new.table_id)
        if writer is not None and birth_of(writer) < old.fence:
            return f"it lists {path}, which gc may take [CM2]"
    return None


def _jobs(step: Step) -> str | None:
    commit, old = step.new.commit, step.old
    if commit.job in old.jobs:
        return "its job was settled before: " + ("aborted [AB4]" if old.jobs[commit.job] is None else f"at {old.jobs[commit.job]} [CM1]")
    expected = {**old.jobs, commit.job: step.new.version}
    given_up = [job for job, version in step.new.jobs.items() if version is None and job not in old.jobs]
    if len(given_up) > (commit.operation == "give_up") or any(birth_of(job) < old.snapshot.fence for job in given_up):
        return f"it aborts {given_up} [AB4]"
    expected |= dict.fromkeys(given_up)
    if commit.operation == "gc":
        expected = {job: state for job, state in expected.items() if birth_of(job) >= old.snapshot.fence or job in step.new.jobs}
    return None if expected == step.new.jobs else "it changes what is recorded of other jobs [CM17] [GC8]"


def done_at(state: State, key: str | None) -> int | None:
    """The version at which this state holds a key, or the batch that it names, as committed. [KY3] [KY6]"""
    batches = {f"{record.query}, batch {record.batch}": record.version for record in state.snapshot.streams.values()}
    return None if key is None else batches.get(key, state.keys.get(key))


def _keys(step: Step) -> str | None:
    lost = step.old.keys.keys() - step.new.keys.keys() if step.new.commit.operation == "gc" else ()
    is_early = any(step.old.keys[key] >= step.new.snapshot.fence for key in lost)
    return "gc forgets a key that the fence has not passed [KY4]" if is_early else None


def _rollback(step: Step) -> str | None:
    restored = step.new.commit.restored
    if restored is None:
        return None
    # void: a member of a joint commit that was aborted; its state never was one [MT8]
    if any(later.version not in step.old.snapshot.void for later in step.chain[step.birth :]):
        return f"it rolls back over version {step.old.version}, which it has not seen [CF13]"
    return None if is_readable(step.old.snapshot, restored) else f"version {restored} could no longer be read [CF13]"


def _tags(step: Step) -> str | None:
    old, new = step.old.snapshot.tags, step.new.snapshot.tags
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if step.new.commit.operation == "gc":
        return "gc set a tag [GC10]" if any(name in new for name in changed) else None
    if len(changed) > (step.new.commit.operation in ("tag", "untag")):
        return f"tags changed: {sorted(changed)} [CM17]"
    gone = [name for name in changed if name in new and not is_readable(step.old.snapshot, new[name].version)]
    return f"{gone} tags a version that can no longer be read [CF12]" if gone else None


def refusing(day: object) -> str:
    """The condition of a constraint that no row of a day keeps. [CK1]"""
    doubled = str(day).replace("'", "''")
    return f"day <> '{doubled}'"


def is_readable(head: Snapshot, version: int) -> bool:
    """Whether readers may ask for a version at this head. [RD3] [MT8]"""
    is_kept = head.expired <= version <= head.version or any(tag.version == version for tag in head.tags.values())
    return is_kept and version not in head.void


Rule = Callable[[Step], str | None]
RULES: tuple[Rule, ...] = (_chain, _fence, _jobs, _keys, _rollback, _tags)
