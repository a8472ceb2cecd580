"""Rules for commits that need the call of the actor that made them: a gc with its policy, a
`recover`. [KY4] [WM7]
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ...core.table import object_names
from .scheduler import Actor
from .version_rules import Declared, Step, birth_of


class Act(msgspec.Struct, kw_only=True):
    """One call of an actor. number: the actor's; began, ended: how many random draws it had made by
    then, which identify its commits, however late they land; since: the latest version at its
    beginning; keeps: of a gc, how many keys to keep; waiting: of a `recover`, the jobs that were
    prepared when it began."""

    number: int
    began: int
    since: int
    ended: int | None = None
    keeps: int = 0
    waiting: tuple[str, ...] = ()

    @classmethod
    def begin(
        cls, actor: Actor, since: int, *, keeps: int = 0, waiting: tuple[str, ...] = ()
    ) -> Act:
        return cls(
            number=actor.number, began=actor.drawn, since=since, keeps=keeps, waiting=waiting
        )

    def made(self, commit_id: str) -> bool:
        """Whether this call drew the id of that commit."""
        drawn = bytes.fromhex(commit_id.rpartition(".")[2])
        number, count = int.from_bytes(drawn[:2], "big"), int.from_bytes(drawn[2:], "big")
        return (
            number == self.number
            and self.began < count
            and (self.ended is None or count <= self.ended)
        )


def forgets_too_much(act: Act, step: Step) -> str | None:
    """gc keeps that many of the last keys whose work exists; invalidated ones do not count.
    [KY4]"""
    if step.new.commit.operation != "gc":
        return None
    for key in sorted(step.old.keys.keys() - step.new.keys.keys()):
        recorded = step.old.keys[key]
        # It may have chosen at any latest version since its beginning.
        newer = max(
            sum(version > recorded for version in state.keys.values())
            for state in (*step.chain[step.birth - 1 :], step.old)
        )
        if newer < act.keeps:
            return (
                f"gc forgets the key {key!r}, is to keep {act.keeps}, and {newer} keys at most "
                "were newer [KY4]"
            )
    return None


def out_of_turn(act: Act, step: Step, names: Collection[str]) -> str | None:
    """`recover` does not commit a range of a source before an earlier, uncommitted range of it.
    [WM7]

    names: the objects that exist.
    """
    mine = [
        advance
        for advance in (step.declared[0].advances if step.declared else ())
        if advance.source not in step.old.snapshot.origins
    ]
    for job in act.waiting if mine else ():
        told = step.earlier.get(job, [Declared(job=job)])[0]
        if job == step.new.commit.job or not _is_uncommitted(act, step, told, names):
            continue
        for moved in mine:
            if any(
                other.source == moved.source and _is_below(other.end, moved.start)
                for other in told.advances
            ):
                return (
                    f"it makes {moved.source} begin at {moved.start}, while job {job}, with an "
                    "earlier range, waits to be recovered [WM7]"
                )
    return None


def _is_uncommitted(act: Act, step: Step, told: Declared, names: Collection[str]) -> bool:
    """Whether the job was certainly there to be recovered, with work that nobody has committed."""
    if (
        told.job in step.old.jobs
        or birth_of(told.job) < step.old.snapshot.fence
        or object_names.prepared_name(told.job) not in names
    ):
        return False
    done = told.key is not None and any(
        told.key in state.keys for state in (*step.chain[max(act.since, 1) - 1 :], step.old)
    )
    return bool(told.adds) and not done  # without files: it had found its key committed


def _is_below(end: object, start: object) -> bool:
    return isinstance(end, int) and isinstance(start, int) and end <= start
