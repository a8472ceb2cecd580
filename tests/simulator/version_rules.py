"""The rules for what one version may do to the one before it: an independent implementation of the specification. [CM17]

Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from manifestcommit.format import object_names
from manifestcommit.format.change import StreamBatch
from manifestcommit.format.snapshot import Commit, Snapshot, StreamRecord
from manifestcommit.format.watermark import Advance, Position
from manifestcommit.protocol.retention import writer_of

Partition = tuple[object, ...]


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor has asked its job to do. adds: path -> partition; replaces: the partitions that it empties, None: none, (): all;
    removes: the files that a row change takes out; serializable: whether a concurrent change of `replaces` conflicts; reads: the
    partitions that a row change has read, whose concurrent changes always do; shared: whether other actors can finish the job."""

    job: str
    key: str | None = None
    batch: StreamBatch | None = None
    advances: tuple[Advance, ...] = ()
    adds: dict[str, Partition] = {}
    replaces: tuple[Partition, ...] | None = None
    removes: frozenset[str] = frozenset()
    serializable: bool = False
    reads: tuple[Partition, ...] = ()
    shared: bool = False

    @property
    def table_id(self) -> str:
        return object_names.parse_job_id(self.job).table_id


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A version as the oracle holds it. keys: key -> the version that recorded it; jobs: as recorded in the chain; objects: everything that
    it lists besides data files."""

    snapshot: Snapshot
    digest: str
    files: dict[str, Partition]
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
    declared: Sequence[Declared]
    earlier: dict[str, list[Declared]]

    @property
    def birth(self) -> int:
        return birth_of(self.new.commit.job)


def birth_of(job: str) -> int:
    """The base version of a job. [LY4]"""
    return object_names.parse_job_id(job).birth


def steps_of(chain: Sequence[State], new: State, declared: dict[str, list[Declared]]) -> Iterator[Step]:
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


def _with(old: State, new: State, commit: Commit, told: Sequence[Declared]) -> State:
    """The state after an append in a group commit, as far as it was declared."""
    made, adds = _alone(new, commit), told[0].adds if told else {}
    moved = {advance.source: advance.end for advance in told[0].advances} if told else {}
    began = {advance.source: advance.start for advance in told[0].advances} if told else {}
    return msgspec.structs.replace(
        made,
        snapshot=msgspec.structs.replace(
            made.snapshot, watermarks={**old.snapshot.watermarks, **moved}, origins={**began, **old.snapshot.origins}
        ),
        files={**old.files, **adds},
        keys=old.keys if commit.key is None else {**old.keys, commit.key: new.version},
        jobs={**old.jobs, commit.job: new.version},
    )


def broken(step: Step, rules: Sequence[Rule]) -> Iterator[str]:
    """Every rule that the step breaks, in words, with its clause."""
    for rule in rules:
        if (said := rule(step)) is not None:
            yield said


def carried_wrongly(snapshot: Snapshot, declared: dict[str, list[Declared]]) -> str | None:
    """Why a version may not carry these jobs together, or does not record what each has advanced. [CM20] [CM24]"""
    for commit in snapshot.commits if len(snapshot.commits) > 1 else ():
        told = declared.get(commit.job)
        if commit.operation != "append" or not told or told[0].replaces is not None:
            return f"it carries job {commit.job} ({commit.operation}) beside others [CM20]"
        if commit.advanced != {advance.source: (advance.start, advance.end) for advance in told[0].advances}:
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


def _files(step: Step) -> str | None:
    commit, old, new = step.new.commit, step.old, step.new
    if commit.restored is not None:
        return None if new.files == step.chain[commit.restored - 1].files else "it does not restore the files of its target [CF13]"
    if not step.declared:
        return None if new.files == old.files else f"{commit.operation} changes files [CM17]"
    if not any(_after(old.files, declared) == new.files for declared in step.declared):
        return "its files are not those before it, less what it replaces, and its own [CM17] [AB6]"
    told = step.declared[0]
    if told.replaces is not None and told.serializable:
        by = _toucher(step, told.replaces)
        if by is not None:
            return f"version {by} touched what it overwrites, since its birth at {step.birth} [CF3]"
    if told.reads and (by := _toucher(step, told.reads)) is not None:
        return f"version {by} touched what it has read, since its birth at {step.birth} [CF16]"
    return None


def _toucher(step: Step, partitions: tuple[Partition, ...]) -> int | None:
    """The first version since the job's birth that changed files of these partitions."""
    for before, after in zip(step.chain[step.birth - 1 :], step.chain[step.birth :], strict=False):
        touched = before.files.items() ^ after.files.items()
        if any(_is_in(partition, partitions) for _, partition in touched):
            return after.version
    return None


def _after(files: dict[str, Partition], told: Declared) -> dict[str, Partition]:
    kept = {
        path: partition
        for path, partition in files.items()
        if path not in told.removes and (told.replaces is None or not _is_in(partition, told.replaces))
    }
    return {**kept, **told.adds}


def _is_in(partition: Partition, replaced: tuple[Partition, ...]) -> bool:
    return not replaced or partition in replaced


def _watermarks(step: Step) -> str | None:
    commit, old, new = step.new.commit, step.old.snapshot, step.new.snapshot
    if commit.restored is not None:
        target = step.chain[commit.restored - 1].snapshot
        fresh = _begun(step.chain[commit.restored :], target.origins)
        placed = {source: at for source, at in fresh.items() if at is not None}
        is_restored = (new.watermarks, new.origins) == ({**target.watermarks, **placed}, {**target.origins, **fresh})
        return None if is_restored else "it does not restore the watermarks of its target [CF13]"
    if commit.operation == "rewind":
        return None
    expected: dict[str, int | str] = dict(old.watermarks)
    for advance in step.declared[0].advances if step.declared else ():
        is_known, at = (advance.source in expected or advance.source in old.origins, expected.get(advance.source))
        if is_known and at != advance.start:
            return f"{advance.source} was at {at}, not at {advance.start} [WM2]"
        expected[advance.source] = advance.end
    return None if new.watermarks == expected else f"watermarks {old.watermarks} -> {new.watermarks}, not {expected} [WM4]"


def _begun(since: Sequence[State], known: Mapping[str, Position]) -> dict[str, Position]:
    """The sources that have begun since, and where each first did, including those that a rewind removed. [CF13]"""
    began: dict[str, list[Position]] = {}
    for before, after in zip(since, [*since[1:], None], strict=True):
        for source, origin in before.snapshot.origins.items():
            if source not in known and (after is None or source not in after.snapshot.origins):
                began.setdefault(source, []).append(origin)
    first: dict[str, Position] = {}
    for source, origins in began.items():
        whole = [start for start in origins if isinstance(start, int)]
        first[source] = None if None in origins else min(whole) if len(whole) == len(origins) else origins[0]
    return first


def _rewind(step: Step) -> str | None:
    if step.new.commit.operation != "rewind":
        return None
    moved = _moved(step.old, step.new)
    if len(moved) != 1 or step.new.snapshot.origins.keys() - step.old.snapshot.origins.keys():
        return f"a rewind moved {sorted(moved)} [WM5]"
    source = next(iter(moved))
    to = step.new.snapshot.watermarks.get(source)
    stood = {str(earlier.snapshot.watermarks.get(source)) for earlier in step.chain[step.birth - 1 :]}
    if len(stood) > 1:
        return f"{source} has been moved since the rewind looked at it [WM5]"
    undone = set()
    for key, version in step.old.keys.items():
        told = step.earlier.get(next(record.job for record in step.chain[version - 1].snapshot.commits if record.key == key), ())
        ranges = [advance for advance in (told[0].advances if told else ()) if advance.source == source]
        if any(to is None or (isinstance(moved.end, int) and isinstance(to, int) and moved.end > to) for moved in ranges):
            undone.add(key)
    dropped = step.old.keys.keys() - step.new.keys.keys()
    return None if dropped == undone else f"a rewind to {to} drops {sorted(dropped)}, not {sorted(undone)} [WM5]"


def _places(state: State) -> dict[str, Position]:
    """The position of each known source; null before its first advance. [WM1]"""
    return {source: state.snapshot.watermarks.get(source) for source in state.snapshot.origins}


def _moved(before: State, after: State) -> set[str]:
    """The sources whose position differs afterwards, known or forgotten."""
    old, new = _places(before), _places(after)
    return {source for source in old.keys() | new.keys() if (source in old, old.get(source)) != (source in new, new.get(source))}


def _batches(state: State) -> dict[str, tuple[int, int]]:
    """Each query's last batch, and the version that holds it."""
    last: dict[str, tuple[int, int]] = {}
    for record in state.snapshot.streams.values():
        batch = (record.batch, record.version if record.batch >= 0 else 0)
        last[record.query] = max(batch, last.get(record.query, batch))
    return last


def _is_void(step: Step, version: int) -> bool:
    """Whether it was a member of a joint commit that was aborted: its state never was one. [MT8]"""
    return version in step.old.snapshot.void


def _set_back(step: Step) -> str | None:
    """What a rewind or a rollback has undone belongs to jobs that began after it. [WM6] [KY7]"""
    commit = step.new.commit
    advanced = {advance.source for told in step.declared for advance in told.advances}
    queries = {told.batch.query for told in step.declared if told.batch is not None}
    seen = [state for state in step.chain if not _is_void(step, state.version)]
    for before, after in itertools.pairwise(seen):
        if after.version <= step.birth or after.commit.operation not in SETTING_BACK:
            continue
        since = f"version {after.version} set it back, and the job began at {step.birth}"
        if undone := advanced & _moved(before, after):
            return f"it advances {min(undone)}: {since} [WM6]"
        if commit.key in before.keys and commit.key not in after.keys:
            return f"it commits the key {commit.key!r}: {since} [KY7]"
        if any(_batches(before).get(query) != _batches(after).get(query) for query in queries):
            return f"it commits a batch of {min(queries)}: {since} [KY7]"
    return None


def done_at(state: State, told: Declared) -> int | None:
    """The version at which this state holds the key of a job, or its batch, as committed. [KY3] [KY6]"""
    if told.batch is None:
        return None if told.key is None else state.keys.get(told.key)
    records = [record for record in state.snapshot.streams.values() if _is_of(record, told.batch)]
    return records[0].version if records else None


def _is_of(record: StreamRecord, batch: StreamBatch) -> bool:
    return (record.query, record.batch) == (batch.query, batch.batch)


def _keys(step: Step) -> str | None:
    commit, old, new = step.new.commit, step.old.keys, step.new.keys
    if commit.restored is not None:
        return None if new == step.chain[commit.restored - 1].keys else "it does not restore the keys of its target [CF13]"
    if commit.operation == "rewind":
        return None
    if commit.key is not None and commit.key in old:
        return f"the key {commit.key!r} was committed at {old[commit.key]} [KY3] [KY5]"
    expected = dict(old) if commit.key is None else {**old, commit.key: step.new.version}
    if commit.operation == "gc":
        if any(version >= step.new.snapshot.fence for key, version in old.items() if key not in new):
            return "gc forgets a key that the fence has not passed [KY4]"
        expected = {key: version for key, version in expected.items() if key in new}
    return None if new == expected else f"keys {sorted(old)} -> {sorted(new)}, not {sorted(expected)} [CM17]"


def _rollback(step: Step) -> str | None:
    restored = step.new.commit.restored
    if restored is None:
        return None
    if any(not _is_void(step, later.version) for later in step.chain[step.birth :]):
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


def _constraints(step: Step) -> str | None:
    """A version keeps the constraints before it, but for one that its commit adds or drops, and no row of it violates one. [CK1] [CK3]
    [CK4]"""
    commit, old, new = step.new.commit, step.old.snapshot, step.new.snapshot
    before = (old if commit.restored is None else step.chain[commit.restored - 1].snapshot).constraints
    names = before.keys() | new.constraints.keys()
    changed = [name for name in names if before.get(name) != new.constraints.get(name)]
    is_one = len(changed) == 1 and (changed[0] in before) != (changed[0] in new.constraints)
    if changed and not (is_one and commit.operation == "constraint"):
        return f"it changes the constraints {', '.join(sorted(changed))} [CK3] [CK4]"
    refused = {each.condition: name for name, each in new.constraints.items()}
    for day in {partition[0] for partition in step.new.files.values()}:
        if day is not None and refusing(day) in refused:
            return f"rows of {day!r} violate the constraint {refused[refusing(day)]!r} [CK1]"
    return None


def is_readable(head: Snapshot, version: int) -> bool:
    """Whether readers may ask for a version at this head. [RD3] [MT8]"""
    is_kept = head.expired <= version <= head.version or any(tag.version == version for tag in head.tags.values())
    return is_kept and version not in head.void


Rule = Callable[[Step], str | None]
SETTING_BACK = ("rewind", "rollback")
RULES_OF_ANY_TABLE: tuple[Rule, ...] = (_chain, _fence, _jobs, _keys, _rollback, _tags, _set_back)
# if it is known what every job was asked to do
RULES: tuple[Rule, ...] = (*RULES_OF_ANY_TABLE, _files, _watermarks, _rewind, _constraints)
