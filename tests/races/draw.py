"""What a round is, drawn from its seed: who takes part, what each tries, where it is killed or stopped, which clocks are wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from tests.chaos.schedule import MOODS, Window
from tests.kit.clocks import CLOCKS

from manifestcommit.format import object_names

StoreKind = Literal["local", "s3"]
Rows = list[list[Any]]  # [id, day] each

DAYS = ("a b", "%2F+=#'é🦆", "1=2", "", None, "..", 'Ω"/\\x', " ", "2013-01-01")
SOURCES = ("größe/Δ %20#0", "topic '2'\"-0")
TAGS = ("gut é", "v 1%", "'")
STEADY = ("right", "ahead", "behind")  # clocks by which ages are true


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a process tries. pause_s: how long it waits before."""

    operation: str
    arguments: dict[str, Any] = {}
    pause_s: float = 0.0


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Before the nth call of this kind ("": any) about a name that begins with `name`, within the step of that number."""

    step: int
    kind: str
    name: str = ""
    nth: int = 1


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """One process. name: its role, and a number; clock: one of CLOCKS, of the store as this process sees it; skew_s: by how much its own
    clock is wrong; page: how many names a list gives at a time; share: how many of its calls to the store are slow."""

    name: str
    steps: tuple[Step, ...]
    clock: str = "right"
    skew_s: float = 0.0
    page: int = 1000
    share: float = 0.0
    stop: Moment | None = None
    kill: Moment | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round. founding: what makes the table and its history, one after the other; adopted: the rows of files that lie in the folder
    before there is a table, by path; foreign: whether some gc deletes what no job wrote; tight: whether what takes thousands of commits
    elsewhere (manifests, runs, merges) happens at once; kills: at which second which actor is killed wherever it is."""

    seed: int
    number: int
    store: StoreKind
    tight: bool
    foreign: bool
    founding: tuple[Step, ...]
    actors: tuple[Actor, ...]
    adopted: dict[str, Rows] = {}
    kills: tuple[tuple[float, str], ...] = ()
    windows: tuple[Window, ...] = ()

    @property
    def gcs(self) -> list[Step]:
        """What the gcs of this round are asked for."""
        return [step for actor in self.actors for step in actor.steps if step.operation == "gc"]


def draw(seed: int, number: int, store: StoreKind) -> Round:
    """The round of that number."""
    return _Drawing(random.Random(f"{seed}/{number}/{store}"), seed, number, store).round()


class _Drawing:
    """The dice of one round, and what they have given so far."""

    def __init__(self, dice: random.Random, seed: int, number: int, store: StoreKind) -> None:
        self.dice, self.seed, self.number, self.store = dice, seed, number, store
        self.days = dice.sample(DAYS, 3)
        self.adopts = self.likely(0.12)
        self.tight = not self.adopts and self.likely(0.5)
        self.foreign = self.likely(0.35)
        self.clock = dice.choice(sorted(CLOCKS)) if self.likely(0.4) else "right"
        self.graces = (2.5, 4.0) if self.likely(0.12) else (0.0, 0.0, 0.0, 0.5, 2.0)
        self._ids, self._keys = 0, 0

    def likely(self, probability: float) -> bool:
        return self.dice.random() < probability

    def round(self) -> Round:
        adopted = {f"part é%/{number} +.parquet": self.of_one_day() for number in range(self.dice.randint(1, 5))}
        founding = () if self.adopts else (Step(operation="create"), *(self.change() for _ in range(self.dice.randint(1, 6))))
        cast = [self.armed(name, steps) for name, steps in self.cast()]
        kills = [(self.dice.uniform(0.05, 1.5), self.dice.choice(cast).name) for _ in range(self.dice.choice((0, 0, 1, 2)))]
        return Round(
            seed=self.seed,
            number=self.number,
            store=self.store,
            tight=self.tight,
            foreign=self.foreign,
            founding=founding,
            actors=tuple(cast),
            adopted=adopted if self.adopts else {},
            kills=tuple(sorted(kills)),
            windows=tuple(self.windows()) if self.store == "s3" else (),
        )

    def windows(self) -> Iterator[Window]:
        for _ in range(self.dice.choice((0, 1, 2))):
            mood, share = self.dice.choice(sorted(MOODS)), self.dice.choice((0.05, 0.2, 0.4))
            yield Window(at_s=self.dice.uniform(0, 1.5), for_s=self.dice.uniform(0.3, 1.5), mood=mood, share=share)

    # --- who takes part ---------------------------------------------------------------------------------------------------

    def cast(self) -> Iterator[tuple[str, list[Step]]]:
        """(name, steps) of each process. Fewer where each request is one to a server: it is slower by far."""
        remote = self.store == "s3"
        for number in range(self.dice.choice((2, 2, 3))):
            yield f"gc {number}", [self.gc() for _ in range(self.dice.randint(3, 6))]
        for number in range(self.dice.randint(1, 1 if remote else 3)):
            yield f"writer {number}", [self.change() for _ in range(self.dice.randint(1, 4))]
        for number in range(self.dice.randint(1, 1 if remote else 2)):
            yield f"sleeper {number}", [self.write() for _ in range(self.dice.randint(1, 2))]
        for number in range(self.dice.randint(1, 1 if remote else 2)):
            yield f"reader {number}", [self.read() for _ in range(self.dice.randint(2, 4))]
        if self.adopts:
            yield from ((f"adopter {number}", [self.step("adopt", 0.03)]) for number in range(2))
        for name, share, operations in _OTHERS:
            if self.likely(share / 2 if remote else share):
                yield name, [self.named(self.dice.choice(operations)) for _ in range(self.dice.randint(1, 4))]
        if self.likely(0.3):
            twin = [self.write(keyed=True) for _ in range(self.dice.randint(1, 2))]
            yield from ((f"twin {number}", twin) for number in range(2))

    def armed(self, name: str, steps: list[Step]) -> Actor:
        """The process with what goes wrong for it."""
        stops, kills = (0.25, 0.2) if name.startswith("gc") else (0.1, 0.15)
        if name.startswith("sleeper"):
            stops = 1.0
        return Actor(
            name=name,
            steps=tuple(steps),
            clock=self.dice.choice(sorted(CLOCKS)) if self.clock == "mad" else self.clock,
            skew_s=self.dice.choice((-36_000.0, -1.0, 1.0, 36_000.0)) if self.likely(0.2) else 0.0,
            page=self.dice.choice((1, 2, 5)) if self.likely(0.4) else 1000,
            share=self.dice.choice((0.0, 0.1, 0.4)),
            stop=self.moment(name, len(steps)) if self.likely(stops) else None,
            kill=self.moment(name, len(steps)) if self.likely(kills) else None,
        )

    def moment(self, name: str, steps: int) -> Moment:
        kind, begin, most = self.dice.choice(_GC_MOMENTS if name.startswith("gc") else _MOMENTS)
        return Moment(step=self.dice.randrange(steps), kind=kind, name=begin, nth=self.dice.randint(1, most))

    # --- what each tries ------------------------------------------------------------------------------------------------------

    def step(self, operation: str, longest_pause_s: float = 0.3, **arguments: Any) -> Step:
        return Step(operation=operation, arguments=arguments, pause_s=round(self.dice.uniform(0, longest_pause_s), 3))

    def named(self, operation: str) -> Step:
        """An operation with arguments of its own, if it has any."""
        made = getattr(self, operation, None)
        return made() if made is not None else self.step(operation)

    def change(self) -> Step:
        """Anything that a history is made of."""
        return self.named(self.dice.choices(("write", "tag", "rollback", "rewind", "replace", "untag", "add_files"), _WEIGHTS)[0])

    def rows(self, *, most: int = 4, least: int = 0, days: Sequence[str | None] | None = None) -> Rows:
        found = []
        for _ in range(self.dice.randint(least, most)):
            self._ids += 1
            found.append([self._ids, self.dice.choice(days or self.days)])
        return found

    def of_one_day(self) -> Rows:
        return self.rows(most=3, least=1, days=[self.dice.choice(self.days)])

    def write(self, *, keyed: bool = False) -> Step:
        scope, conflict, days = None, "serializable", None
        if self.likely(0.45):
            kind = self.dice.choice(("all", "dynamic", "day", "day"))
            scope, conflict = {"kind": kind}, self.dice.choice(("serializable", "serializable", "blind", "blind", "fail"))
            if kind == "day":
                days = [self.dice.choice(self.days)]
                scope["day"] = days[0]
        given: dict[str, Any] = {"rows": self.rows(days=days), "scope": scope, "conflict": conflict}
        if keyed or self.likely(0.4):
            self._keys += 1
            given["key"] = f"key %{self._keys} 'é"
            given["advance"] = [f"source of {given['key']}", None, 5] if self.likely(0.5) else None
        elif self.likely(0.4):
            given["source"] = self.dice.choice(SOURCES)
        given["slow_s"] = self.dice.choice((0.0, 0.0, 0.1, 0.5))
        return self.step("write", **given)

    def orphan(self) -> Step:
        return self.step("orphan", rows=self.rows(least=1), uploads=self.store == "s3" and self.likely(0.5))

    def prepare(self) -> Step:
        return self.step("prepare", rows=self.rows(), scope=None)

    def settle(self) -> Step:
        return self.step("settle", verb=self.dice.choice(("commit", "commit", "abort", "recover")))

    def add_files(self) -> Step:
        rows = [self.of_one_day() for _ in range(self.dice.randint(1, 2))]
        files = {f"von woanders %/{self.number}-{each[0][0]} +é.parquet": each for each in rows}
        return self.step("add_files", files=files, slow_s=self.dice.choice((0.0, 0.1, 0.5)))

    def tag(self) -> Step:
        return self.step("tag", name=self.dice.choice(TAGS), back=self.dice.choice((0, 0, 1, 3)))

    def untag(self) -> Step:
        return self.step("untag", name=self.dice.choice(TAGS))

    def rollback(self) -> Step:
        tag = self.dice.choice(TAGS) if self.likely(0.3) else None
        return self.step("rollback", back=self.dice.randint(1, 3), tag=tag)

    def rewind(self) -> Step:
        return self.step("rewind", source=self.dice.choice(SOURCES), by=self.dice.choice((1, 3, None)))

    def replace(self) -> Step:
        return self.step("replace", day=self.dice.choice(self.days))

    def read(self) -> Step:
        return self.step("read", back=self.dice.choice((0, 0, 1, 3)), slow_s=self.dice.choice((0.0, 0.05, 0.2)))

    def gc(self) -> Step:
        return self.step(
            "gc",
            0.4,
            grace_s=self.dice.choice(self.graces),
            keep_versions=self.dice.choice((1, 1, 2, 4)),
            keep_for_s=self.dice.choice((0.0, 0.0, 1.0)),
            foreign=self.foreign and self.likely(0.6),
            dry_run=self.likely(0.1),
        )


_WEIGHTS = (12, 2, 1, 1, 2, 1, 1)
_OTHERS = (
    ("tagger", 0.6, ("tag", "tag", "untag", "rollback")),
    ("undoer", 0.3, ("rollback", "rewind", "rewind")),
    ("preparer", 0.5, ("prepare", "prepare", "orphan")),
    ("settler 0", 0.5, ("settle",)),
    ("settler 1", 0.3, ("settle",)),
    ("adder", 0.5, ("add_files", "add_files", "add_again")),
    ("replacer", 0.4, ("replace", "replace", "orphan")),
    ("verifier", 0.3, ("verify",)),
)

# (kind of call, what its name begins with, the highest number of it): where a process is killed or stopped
_MOMENTS = (
    *[("put_if_absent", object_names.VERSIONS, 1)] * 5,
    *[("list", object_names.VERSIONS, 3)] * 4,
    ("put_if_absent", "", 3),
    ("close", "", 2),
    ("put", object_names.HINT, 1),
    *[("", "", 25)] * 3,
)
_GC_MOMENTS = (
    ("put_if_absent", object_names.VERSIONS, 1),
    ("list", object_names.VERSIONS, 4),
    *[("delete", "", 6)] * 3,
    *[("page", "", 4)] * 2,
    ("get", object_names.VERSIONS, 6),
    *[("", "", 40)] * 2,
)
