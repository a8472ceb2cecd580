"""What one version may do to the one before it: a second reading of the specification, by someone who does not apply changes. [CM17]

Pure. Not here: when it is asked, and what else must hold (oracle).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ..core import format
from ..core.retention import writer_of
from ..core.snapshot import Commit, Snapshot
from ..core.watermark import Advance

Partition = tuple[object, ...]


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What an actor has told its job to do. adds: path -> partition; replaces: the partitions that it empties, None: none, (): all;
    serializable: whether others may have touched those; shared: whether other actors can finish the job."""

    job: str
    key: str | None = None
    advances: tuple[Advance, ...] = ()
    adds: dict[str, Partition] = {}
    replaces: tuple[Partition, ...] | None = None
    serializable: bool = False
    shared: bool = False


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A version as the oracle holds it. keys: key -> the version that recorded it; jobs: as the chain has them; objects: all that it
    lists besides data files."""

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
        """The one that is judged; of a version as a whole, its creator's."""
        return self.snapshot.commits[-1]

    @property
    def carried(self) -> frozenset[str]:
        """The jobs of all its commits."""
        return frozenset(each.job for each in self.snapshot.commits)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A commit about to be judged. chain: all versions before its own; old: what it was applied to, the last of them or, where its version
    carries several, that with those before it; declared: what its job may have been told, by whoever runs it; earlier: what every job was
    told."""

    chain: Sequence[State]
    old: State
    new: State
    declared: Sequence[Declared]
    earlier: dict[str, list[Declared]]

    @property
    def birth(self) -> int:
        return birth_of(self.new.commit.job)


def birth_of(job: str) -> int:
    """The version under which a job began. [LY4]"""
    return format.parse_job_id(job).birth


def steps_of(chain: Sequence[State], new: State, declared: dict[str, list[Declared]]) -> Iterator[Step]:
    """The commits of a version, one after another, each on what those before it have made of the version before. [CM24]"""
    old, commits = chain[-1], new.snapshot.commits
    for number, commit in enumerate(commits):
        told = declared.get(commit.job, [])
        made = _alone(new, commit) if number == len(commits) - 1 else _with(old, new, commit, told)
        yield Step(chain=chain, old=old, new=made, declared=told, earlier=declared)
        # What comes next becomes the same version.
        stays = msgspec.structs.replace(made.snapshot, version=old.version, parent_digest=old.snapshot.parent_digest)
        old = msgspec.structs.replace(made, snapshot=stays, digest=old.digest)


def _alone(new: State, commit: Commit) -> State:
    return msgspec.structs.replace(new, snapshot=msgspec.structs.replace(new.snapshot, commits=(commit,)))


def _with(old: State, new: State, commit: Commit, told: Sequence[Declared]) -> State:
    """What an append that is carried makes of the state before it, as far as it was declared."""
    made, adds = _alone(new, commit), told[0].adds if told else {}
    moved = {each.source: each.end for each in told[0].advances} if told else {}
    return msgspec.structs.replace(
        made,
        snapshot=msgspec.structs.replace(made.snapshot, watermarks={**old.snapshot.watermarks, **moved}),
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
    """Why a version may not carry these jobs together, or does not say what each has advanced. [CM20] [CM24]"""
    for commit in snapshot.commits if len(snapshot.commits) > 1 else ():
        told = declared.get(commit.job)
        if commit.operation != "append" or not told or told[0].replaces is not None:
            return f"it carries job {commit.job} ({commit.operation}) beside others [CM20]"
        if commit.advanced != {each.source: (each.start, each.end) for each in told[0].advances}:
            return f"it says that job {commit.job} advanced {commit.advanced} [CM24]"
    return None


def _chain(step: Step) -> str | None:
    old, new = step.old.snapshot, step.new.snapshot
    if (new.version, new.parent_digest, new.table_id) != (old.version + 1, step.old.digest, old.table_id):
        return "it is not built on the version before it [IV1]"
    return "its time is before that of its parent [CM14]" if new.committed_at < old.committed_at else None


def _fence(step: Step) -> str | None:
    old, new = step.old.snapshot, step.new.snapshot
    if not old.fence <= new.fence <= new.version or not old.expired <= new.expired <= new.fence:
        return f"fence {old.fence} -> {new.fence}, expired {old.expired} -> {new.expired} [GC2]"
    if step.new.commit.operation != "gc" and (old.fence, old.expired) != (new.fence, new.expired):
        return "fence or expired moved without a gc [CM17]"
    if step.birth < old.fence:
        return f"its job was born at {step.birth}, below the fence {old.fence} [CM2]"
    for path in step.new.files.keys() - step.old.files.keys() if step.new.commit.restored is None else ():
        writer = writer_of(path, new.table_id)
        if writer is not None and birth_of(writer) < old.fence:
            return f"it lists {path}, which gc may take [CM2]"
    return None


def _jobs(step: Step) -> str | None:
    commit, old = step.new.commit, step.old
    if commit.job in old.jobs:
        return "its job was settled before: " + ("given up [AB4]" if old.jobs[commit.job] is None else f"at {old.jobs[commit.job]} [CM1]")
    expected = {**old.jobs, commit.job: step.new.version}
    given_up = [job for job, version in step.new.jobs.items() if version is None and job not in old.jobs]
    if len(given_up) > (commit.operation == "give_up") or any(birth_of(job) < old.snapshot.fence for job in given_up):
        return f"it gives up {given_up} [AB4]"
    expected |= dict.fromkeys(given_up)
    if commit.operation == "gc":
        expected = {job: each for job, each in expected.items() if birth_of(job) >= old.snapshot.fence or job in step.new.jobs}
    return None if expected == step.new.jobs else "it changes what is recorded of other jobs [CM17] [GC8]"


def _files(step: Step) -> str | None:
    commit, old, new = step.new.commit, step.old, step.new
    if commit.restored is not None:
        return None if new.files == step.chain[commit.restored - 1].files else "it does not restore the files of its target [CF13]"
    if not step.declared:
        return None if new.files == old.files else f"{commit.operation} changes files [CM17]"
    if not any(_after(old.files, each) == new.files for each in step.declared):
        return "its files are not those before it, less what it replaces, and its own [CM17] [AB6]"
    told = step.declared[0]
    if told.replaces is not None and told.serializable:
        for before, after in zip(step.chain[step.birth - 1 :], step.chain[step.birth :], strict=False):
            touched = before.files.items() ^ after.files.items()
            if any(_is_in(partition, told.replaces) for _, partition in touched):
                return f"version {after.version} touched what it overwrites, since its birth at {step.birth} [CF3]"
    return None


def _after(files: dict[str, Partition], told: Declared) -> dict[str, Partition]:
    kept = {path: each for path, each in files.items() if told.replaces is None or not _is_in(each, told.replaces)}
    return {**kept, **told.adds}


def _is_in(partition: Partition, replaced: tuple[Partition, ...]) -> bool:
    return not replaced or partition in replaced


def _watermarks(step: Step) -> str | None:
    commit, old, new = step.new.commit, step.old.snapshot, step.new.snapshot
    if commit.restored is not None:
        target = step.chain[commit.restored - 1].snapshot
        fresh = {each: at for each, at in old.origins.items() if at is not None and each not in target.watermarks}
        return None if new.watermarks == {**target.watermarks, **fresh} else "it does not restore the watermarks of its target [CF13]"
    if commit.operation == "rewind":
        return None
    expected: dict[str, int | str] = dict(old.watermarks)
    for advance in step.declared[0].advances if step.declared else ():
        if advance.source in expected and expected[advance.source] != advance.start:
            return f"{advance.source} stood at {expected[advance.source]}, not at {advance.start} [WM2]"
        expected[advance.source] = advance.end
    return None if new.watermarks == expected else f"watermarks {old.watermarks} -> {new.watermarks}, not {expected} [WM4]"


def _rewind(step: Step) -> str | None:
    if step.new.commit.operation != "rewind":
        return None
    old, new = step.old.snapshot.watermarks, step.new.snapshot.watermarks
    moved = [source for source in old if old[source] != new.get(source)]
    if len(moved) != 1 or new.keys() - old.keys():
        return f"a rewind moved {moved} [WM5]"
    source, to = moved[0], new.get(moved[0])
    stood = {str(each.snapshot.watermarks.get(source)) for each in step.chain[step.birth - 1 :]}
    if len(stood) > 1:
        return f"{source} has been moved since the rewind looked at it [WM5]"
    undone = set()
    for key, version in step.old.keys.items():
        told = step.earlier.get(next(each.job for each in step.chain[version - 1].snapshot.commits if each.key == key), ())
        ranges = [each for each in (told[0].advances if told else ()) if each.source == source]
        if any(to is None or (isinstance(each.end, int) and isinstance(to, int) and each.end > to) for each in ranges):
            undone.add(key)
    dropped = step.old.keys.keys() - step.new.keys.keys()
    return None if dropped == undone else f"a rewind to {to} drops {sorted(dropped)}, not {sorted(undone)} [WM5]"


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
    if step.birth != step.old.version:
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


def is_readable(head: Snapshot, version: int) -> bool:
    """Whether readers may ask for a version at this head. [RD3]"""
    return head.expired <= version <= head.version or any(tag.version == version for tag in head.tags.values())


Rule = Callable[[Step], str | None]
RULES_OF_ANY_TABLE: tuple[Rule, ...] = (_chain, _fence, _jobs, _keys, _rollback, _tags)
RULES: tuple[Rule, ...] = (*RULES_OF_ANY_TABLE, _files, _watermarks, _rewind)  # where it is known what every job was told
