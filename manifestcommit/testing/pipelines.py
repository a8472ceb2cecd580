"""Runs a user's own pipeline in the simulator: its code unchanged, over tables at `sim://…`, with
every possible interruption.

    def nightly() -> None:
        mc.write(rows, "sim://lake/flights", key="day 1")

    def check() -> None:
        assert mc.Table("sim://lake/flights").dataset().count_rows() == 2

    for seed in range(100):
        simulate({"nightly": nightly, "the same again": nightly}, seed, check=check)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from ..errors import ManifestCommitError, UsageError
from ..format import object_names
from ..store import Store, register_scheme
from .faults import Died
from .scheduler import Actor, Choices, Scheduler, Trace, onlooker
from .simulated_store import SimulatedStore, Space

Program: TypeAlias = Callable[[], object]  # the work of one process
_LIVES = 3
_CALM = 1000  # numbers of actors that run alone, at the end
_TOLD = 60
_running: list[_Pipelines] = []


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. violation: what went wrong, None: nothing did; choices: everything
    needed to repeat the run; versions: their number, of all tables; steps: turns that were
    taken."""

    seed: int | None
    violation: str | None
    choices: dict[str, int]
    trace: str
    versions: int
    steps: int


class PipelineViolationError(AssertionError):
    """A check did not hold, or a program failed, in a simulated run.

    Attributes:
        run: what led there: its `violation`, `trace`, and the `choices` that repeat it.

    Remedy: run `simulate` with the seed that the message names, or with `given=error.run.choices`:
    it takes the same steps.
    """

    def __init__(self, run: Run) -> None:
        lines = run.trace.splitlines()[-_TOLD:]
        after = f"after{'' if lines else ' no request at all'}"
        super().__init__("\n".join([f"{run.violation}; with seed {run.seed}, {after}", *lines]))
        self.run = run


def simulate(
    actors: Mapping[str, Program],
    seed: int | None = None,
    *,
    before: Program | None = None,
    check: Program | None = None,
    given: Mapping[str, int] | None = None,
) -> Run:
    """Run programs concurrently over simulated tables, with every possible interruption.

    A program is the work of one process, such as one run of a job. If it dies at a request, or ends
    with an error of this package, it is restarted up to three times, as by a scheduler. One that
    has not finished by then runs once more when all others have ended and nothing fails any more:
    then it must finish. Programs use this package's calls with tables at `sim://…`, which are empty
    before the run and gone after it, and no threads of their own. The same seed gives the same run,
    as long as the programs do the same.

    Args:
        actors: name -> program, a function without arguments.
        seed: decides the order of the steps and the faults; by default `given` does, and
            where that names nothing, no fault is injected.
        before: called first, alone, such as to fill a table; by default nothing is.
        check: called last, alone, to examine the result; by default nothing is.
        given: the choices of an earlier run, to repeat it; by default none.

    Returns:
        The run: its `trace`, `choices`, `steps` and `versions`.

    Raises:
        PipelineViolationError: `check` raised an error, or a program another one than this
            package's.
        UsageError: no program made a request, so that nothing was simulated; or a simulation runs
            already.

    Example:
        `simulate({"nightly": nightly, "the same again": nightly}, seed=7, check=check)`

    Spec: IV1, IV2, IV3, IV4, IV5, IV6, IV7, IV8.
    """
    if _running:
        raise UsageError("simulate runs one world at a time")
    world = _Pipelines(Scheduler(Choices(seed, given)), Trace(dict(enumerate(actors, start=1))))
    _running.append(world)
    try:
        world.run(actors, before, check)
    finally:
        _running.clear()
    failure = world.scheduler.failure
    names = [map(object_names.parse_version, space.objects) for space in world.tables.values()]
    run = Run(
        seed=seed,
        violation=None if failure is None else text_of(failure),
        choices=world.scheduler.choices.taken,
        trace=world.trace.text(),
        versions=sum(max((each or 0 for each in found), default=0) for found in names),
        steps=world.scheduler.steps,
    )
    if failure is not None:
        raise PipelineViolationError(run) from failure
    if actors and run.steps == 0:
        raise UsageError(
            "no program made a request to a table at sim://…, so that nothing was simulated: let "
            "the programs use tables there, and no threads of their own"
        )
    return run


def text_of(failure: BaseException) -> str:
    """The violation that ended a run."""
    return f"{type(failure).__name__}: {failure}".removesuffix(": ")


class _Pipelines:
    """The tables of one run, and their users."""

    def __init__(self, scheduler: Scheduler, trace: Trace) -> None:
        self.scheduler, self.trace = scheduler, trace
        self.tables: dict[str, Space] = {}
        self._alone: Actor | None = None

    def open(self, root: str) -> Store:
        """The caller's view."""
        url = f"sim://{root}"
        if url not in self.tables:
            self.tables[url] = Space(self.scheduler, self.trace)
        actor = self.scheduler.current or self._alone or onlooker(self.scheduler)
        return SimulatedStore(self.tables[url], actor, url, self.open)

    def run(
        self, programs: Mapping[str, Program], before: Program | None, check: Program | None
    ) -> None:
        ended: set[str] = set()
        try:
            if before is not None:
                self._alone = Actor(self.scheduler, "before", _CALM - 1)
                before()
            lives = {name: self._live(program, ended) for name, program in programs.items()}
            self.scheduler.run(lives)
            if self.scheduler.failure is None:
                left = [(name, each) for name, each in programs.items() if name not in ended]
                self._end(left, check)
        except Exception as error:
            self.scheduler.fail(error)

    def _live(self, program: Program, ended: set[str]) -> Callable[[Actor], None]:
        def live(actor: Actor) -> None:
            for _ in range(_LIVES):
                actor.is_dead = False
                try:
                    program()
                except (Died, ManifestCommitError) as error:
                    self.trace.note(actor.name, f"ended by {type(error).__name__}")
                else:
                    ended.add(actor.name)
                    return

        return live

    def _end(self, left: Sequence[tuple[str, Program]], check: Program | None) -> None:
        """Requests in progress arrive; unfinished programs finish."""
        while self.scheduler.pending:
            self.scheduler.pending.pop(0)()
        for number, (name, program) in enumerate(left, start=_CALM):
            self.trace.note(name, "once more, alone")
            self._alone = Actor(self.scheduler, name, number)
            program()
        self._alone = Actor(self.scheduler, "check", _CALM + len(left))
        if check is not None:
            check()


def _open(root: str) -> Store:
    if not _running:
        raise UsageError(
            f"sim://{root} is a table of a simulated run: open it in a program, or in the "
            "check, of manifestcommit.testing.simulate"
        )
    return _running[0].open(root)


register_scheme("sim", _open)
