"""The actors of a run, and what each may do: small worlds with as much concurrency as possible."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from tests.simulator.joint_workers import finish_together, prepare_together, publish_together, quarantine, read_together
from tests.simulator.workers import ADVANCING, DAYS, Edit, RowOperation, Work, Worker, World

from manifestcommit.protocol.retention import DAY_S, Policy
from manifestcommit.testing.faults import Died
from manifestcommit.testing.scheduler import Actor, Choices

Deed = Callable[[Worker], None]
JointDeed = Callable[[Sequence[Worker]], None]
KEYS = ADVANCING + 2
_LIVES = 3


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """actors: name -> the deeds from which it draws; deeds: how many it does at most; versions: how many exist before any actor begins, 0:
    no table; tight: budgets so small that everything spills; eager: a job that loses once asks for group commit; tables: how many; a
    deed in one of them chooses which, one in several is done in all."""

    actors: Mapping[str, tuple[str, ...]]
    deeds: int = 3
    versions: int = 7
    tight: bool = False
    eager: bool = False
    tables: int = 1


def program(world: World, theme: Theme, name: str) -> Callable[[Actor], None]:
    """The program of an actor of the theme, as the choices decide: a deed in which the actor dies is restarted so many times."""
    choices, deeds = world.scheduler.choices, theme.actors[name]

    def live(actor: Actor) -> None:
        actor.skew_us = (0, 3, -3)[choices.pick(f"clock {name}", 3, 0.3)] * round(DAY_S * 1e6)
        crew = [Worker(each, actor) for each in world.beside.values() or (world,)]
        for number in range(theme.deeds):
            plan = f"{name}.{number}"
            if chosen := choices.pick(f"plan {plan}", 1 + len(deeds), 0.9):
                name_of_deed = deeds[chosen - 1]
                if name_of_deed in _JOINT_DEEDS:
                    _do(crew, _JOINT_DEEDS[name_of_deed](choices, plan))
                else:
                    which = choices.pick(f"table {plan}", len(crew)) if len(crew) > 1 else 0
                    _do_alone(crew, which, _DEEDS[name_of_deed](choices, plan))

    return live


def _do_alone(crew: Sequence[Worker], which: int, deed: Deed) -> None:
    _do(crew, lambda workers: deed(workers[which]))


def _do(crew: Sequence[Worker], deed: JointDeed) -> None:
    for _ in range(_LIVES):
        try:
            deed(crew)
            return
        except Died:
            for worker in crew:
                worker.begin_life()


# --- Deeds: all draws happen before they begin, so that a restart does the same ------------------
def _work(choices: Choices, plan: str, **options: object) -> Work:
    given: dict[str, object] = {"day": choices.pick(f"day {plan}", len(DAYS)), "files": 1 + choices.pick(f"files {plan}", 2, 0.2)}
    return msgspec.convert({**given, **options}, Work)


def _keyed(choices: Choices, plan: str, **options: object) -> Work:
    number = choices.pick(f"key {plan}", KEYS)
    return msgspec.convert({**options, "number": number, "day": number % len(DAYS)}, Work)


def _in_range(work: Work) -> Work:
    """With a key of those that advance the source."""
    return msgspec.structs.replace(work, number=(work.number or 0) % ADVANCING)


def _of(method: Callable[..., None], *arguments: Any, **options: Any) -> Deed:
    return lambda worker: method(worker, *arguments, **options)


def _change_rows(operation: RowOperation, choices: Choices, plan: str) -> Deed:
    day = choices.pick(f"day {plan}", len(DAYS))
    edit = Edit(
        operation=operation, number=day if choices.pick(f"keyed {plan}", 2) else None, day=day, most=1 + choices.pick(f"most {plan}", 3)
    )
    return lambda worker: worker.change_rows(edit)


def _collect(choices: Choices, plan: str) -> Deed:
    policy = Policy(
        grace_s=(0.0, 3600.0, DAY_S)[choices.pick(f"grace {plan}", 3)],
        keep_for_s=0.0,
        keep_versions=1 + choices.pick(f"keep {plan}", 3),
        keep_keys=(10_000, 1)[choices.pick(f"forget {plan}", 2, 0.2)],
        prepared_grace_s=(0.0, 7 * DAY_S)[choices.pick(f"prepared {plan}", 2)],
    )
    return _gc(choices, plan, policy)


def _keep_keys(choices: Choices, plan: str, keep: int | None = None) -> Deed:
    keep = choices.pick(f"keep {plan}", 3) if keep is None else keep
    return _gc(choices, plan, Policy(grace_s=0.0, keep_for_s=0.0, keep_versions=4, keep_keys=keep, prepared_grace_s=0.0))


def _gc(choices: Choices, plan: str, policy: Policy) -> Deed:
    hours = (0, 2, 50)[choices.pick(f"hours {plan}", 3)]

    def deed(worker: Worker) -> None:
        if hours:
            worker.wait(hours)
        worker.collect(policy)

    return deed


def _collect_states(choices: Choices, plan: str) -> Deed:
    """A gc that forgets no keys: that would undo a joint key in one of its tables. [MT13]"""
    policy = Policy(
        grace_s=(0.0, DAY_S)[choices.pick(f"grace {plan}", 2)],
        keep_for_s=0.0,
        keep_versions=1 + choices.pick(f"keep {plan}", 3),
        prepared_grace_s=0.0,
    )
    return _gc(choices, plan, policy)


def _publish_together(choices: Choices, plan: str) -> JointDeed:
    keyed = choices.pick(f"keyed {plan}", 3)
    if keyed:
        work = Work(number=KEYS + choices.pick(f"key {plan}", 3), advances=False)
    else:
        replaces = ("", "", "day")[choices.pick(f"scope {plan}", 3)]
        work = _work(choices, plan, replaces=replaces, serializable=True)
    return lambda crew: publish_together(crew, work)


def _prepare_together(choices: Choices, plan: str) -> JointDeed:
    kind = choices.pick(f"kind {plan}", 3)
    if kind == 0:  # of those that single jobs advance
        work = _in_range(_keyed(choices, plan))
    elif kind == 1:
        work = Work(number=KEYS + choices.pick(f"key {plan}", 3), advances=False)
    else:
        replaces = ("", "day")[choices.pick(f"scope {plan}", 2)]
        work = _work(choices, plan, replaces=replaces, serializable=True)
    left_out = choices.pick(f"left out {plan}", 4)
    return lambda crew: prepare_together(_without(crew, left_out), work)


def _quarantine(choices: Choices, plan: str) -> JointDeed:
    number = choices.pick(f"key {plan}", 4)
    work = Work(number=KEYS + number if number else None, advances=False)
    return lambda crew: quarantine(crew, work)


def _without(crew: Sequence[Worker], left_out: int) -> Sequence[Worker]:
    """All but one of the tables; 0: all."""
    return [worker for number, worker in enumerate(crew, start=1) if number != left_out]


def _publish_in_some(choices: Choices, plan: str) -> JointDeed:
    deed, left_out = _publish_together(choices, plan), choices.pick(f"left out {plan}", 4)
    return lambda crew: deed(_without(crew, left_out))


_DEEDS: dict[str, Callable[[Choices, str], Deed]] = {
    "append": lambda c, plan: _of(Worker.publish, _work(c, plan)),
    "append_keyed": lambda c, plan: _of(Worker.publish, _keyed(c, plan)),
    "append_recoverable": lambda c, plan: _of(Worker.publish, _keyed(c, plan, recoverable=True)),
    "append_unplaced": lambda c, plan: _of(Worker.publish, _keyed(c, plan, advances=False)),
    "overwrite": lambda c, plan: _of(
        Worker.publish,
        _work(c, plan, replaces=("day", "dynamic", "all")[c.pick(f"scope {plan}", 3)], serializable=not c.pick(f"blind {plan}", 2)),
    ),
    "prepare": lambda c, plan: _of(Worker.prepare, (_keyed if c.pick(f"keyed {plan}", 2) else _work)(c, plan)),
    "finish": lambda c, plan: _of(Worker.finish, c.pick(f"which {plan}", 4), abort=bool(c.pick(f"abort {plan}", 2, 0.4))),
    "tag": lambda c, plan: _of(Worker.tag, f"t{c.pick(f'name {plan}', 2)} é", c.pick(f"back {plan}", 5)),
    "untag": lambda c, plan: _of(Worker.untag, f"t{c.pick(f'name {plan}', 2)} é"),
    "rollback": lambda c, plan: _of(Worker.rollback, c.pick(f"back {plan}", 4)),
    "rewind": lambda c, plan: _of(Worker.rewind, c.pick(f"to {plan}", ADVANCING)),
    "forget source": lambda c, plan: _of(Worker.rewind, None),
    "forget keys": functools.partial(_keep_keys, keep=1),
    "batch": lambda c, plan: _of(Worker.publish, _work(c, plan, batch=c.pick(f"batch {plan}", 3))),
    "read": lambda c, plan: _of(Worker.read, (None, *range(6))[c.pick(f"back {plan}", 7)]),
    "gc": _collect,
    "wait": lambda c, plan: _of(Worker.wait, (1, 30, 400)[c.pick(f"hours {plan}", 3)]),
}

_APPENDS = ("append", "append_keyed")
_WRITER = ("append", "append_keyed", "append_keyed", "overwrite")
_EVERYTHING = tuple(_DEEDS)
_ROWS = ("delete", "update", "merge", "overwrite where")
# In themes of their own.
_DEEDS |= {
    "delete": functools.partial(_change_rows, "delete"),
    "update": functools.partial(_change_rows, "update"),
    "merge": functools.partial(_change_rows, "merge"),
    "overwrite where": functools.partial(_change_rows, "overwrite"),
    "prepare range": lambda c, plan: _of(Worker.prepare, _in_range(_keyed(c, plan))),
    "audit": lambda c, plan: _of(Worker.audit, c.pick(f"which {plan}", 4)),
    "keep keys": _keep_keys,
    "gc states": _collect_states,
    "remake": lambda c, plan: _of(Worker.remake),
    "declare": lambda c, plan: _of(Worker.declare, c.pick(f"position {plan}", ADVANCING)),
    "constrain": lambda c, plan: _of(Worker.constrain, f"c{c.pick(f'name {plan}', 2)}", 2 * c.pick(f"refused {plan}", 2)),
    "unconstrain": lambda c, plan: _of(Worker.unconstrain, f"c{c.pick(f'name {plan}', 2)}"),
}
_JOINT_DEEDS: dict[str, Callable[[Choices, str], JointDeed]] = {
    "publish together": _publish_together,
    "publish in some": _publish_in_some,
    "prepare together": _prepare_together,
    "finish together": lambda c, plan: functools.partial(
        finish_together,
        which=c.pick(f"which {plan}", 3),
        first=c.pick(f"first {plan}", 3),
        abort=bool(c.pick(f"abort {plan}", 2, 0.3)),
        alone=bool(c.pick(f"alone {plan}", 2)),
    ),
    "quarantine": _quarantine,
    "read together": lambda c, plan: read_together,
}
_CONSTRAINTS = ("constrain", "constrain", "unconstrain")
_IN_FLIGHT = ("append_keyed", "append_unplaced", "append_recoverable", "prepare", "batch")


def _theme(*, versions: int = 7, tight: bool = False, eager: bool = False, tables: int = 1, **actors: tuple[str, ...]) -> Theme:
    return Theme(
        actors={name.replace("_", " "): deeds for name, deeds in actors.items()}, versions=versions, tight=tight, eager=eager, tables=tables
    )


THEMES: dict[str, Theme] = {
    "appends": _theme(a=("append_keyed", "append"), b=("append_keyed",), c=("append_keyed",), reader=("read",)),
    "overwrites": _theme(a=_WRITER, b=("overwrite",), c=("overwrite", "append"), reader=("read",)),
    "rows": _theme(a=_ROWS, b=_ROWS, c=(*_ROWS, "append", "overwrite"), d=("rollback", "append_keyed", "read", "tag"), gc=("gc", "read")),
    "rows tight": _theme(a=_ROWS, b=(*_ROWS, "append"), gc=("gc",), reader=("read",), tight=True, eager=True),
    "phases": _theme(a=("prepare", "append_keyed"), b=("prepare", "finish"), c=("finish",), gc=("gc", "finish")),
    "recoverable": _theme(a=("append_recoverable",), b=("append_recoverable",), c=("append_recoverable", "append_keyed"), gc=("gc",)),
    "gc": _theme(a=_WRITER, b=_WRITER, gc=("gc",), other_gc=("gc", "gc", "tag"), reader=("read",)),
    "tags": _theme(a=_WRITER, tagger=("tag", "untag", "read"), gc=("gc",), other_gc=("gc", "tag")),
    "back": _theme(a=("append_keyed", "append"), b=("rollback", "rewind", "append_keyed"), c=("rollback", "rewind", "tag"), gc=("gc",)),
    "set back": _theme(
        a=_IN_FLIGHT, b=_IN_FLIGHT, c=("rollback", "rewind", "forget source"), d=("rollback", "rewind", "finish", *_IN_FLIGHT),
        gc=("gc", "forget keys", "read"), eager=True,
    ),
    "first": _theme(a=_WRITER, b=_WRITER, c=("append_keyed", "prepare", "append_recoverable"), d=("declare",), versions=0),
    "order": _theme(
        a=("prepare range",), b=("prepare range",), c=("finish", "wait"), d=("finish", "declare"), e=("finish", "read", "append_keyed"),
        versions=2,
    ),
    "keys": _theme(
        a=("append_keyed", "append_unplaced"),
        b=("append_unplaced", "prepare", "finish"),
        c=("rewind", "rollback", "forget source"),
        gc=("keep keys",),
    ),
    "remade": _theme(
        a=(*_IN_FLIGHT, "append", "overwrite"), b=(*_IN_FLIGHT, "append", "overwrite"), c=("remake", "append"),
        d=("read", "finish", "rewind", "rollback", "tag", "append"), versions=2,
    ),
    "tight": _theme(a=_WRITER, b=("append_keyed", "overwrite", "rollback", "rewind"), gc=("gc",), reader=("read",), tight=True),
    "crowd": _theme(a=_APPENDS, b=_APPENDS, c=_APPENDS, d=_APPENDS, e=("append_keyed", "rewind"), gc=("gc",), eager=True),
    "joint": _theme(
        a=("publish together",), b=("publish together", "append", "overwrite"), c=("append_keyed", "append", "read", "rewind"),
        reader=("read together",), versions=3, tables=3,
    ),
    "joint gc": _theme(
        a=("publish together",), b=("publish together", "overwrite"), gc=("gc states",), reader=("read together", "read", "tag"),
        versions=3, tables=2, tight=True,
    ),
    "joint prepared": _theme(
        a=("prepare together",), b=("prepare together", "finish together", "publish in some"),
        c=("finish together", "append_keyed", "overwrite"), d=("finish together", "read together"), gc=("gc states", "finish together"),
        versions=3, tables=3,
    ),
    "gate": _theme(
        a=(*_IN_FLIGHT, "append", "overwrite"), b=(*_IN_FLIGHT, *_ROWS), c=_CONSTRAINTS, d=(*_CONSTRAINTS, "rollback", "rewind", "finish"),
        gc=("gc", "read"), versions=1, eager=True,
    ),
    "staged": _theme(
        a=("prepare", "append_keyed"), b=("prepare", "audit"), c=("audit", "finish"),
        d=("append", "overwrite", "delete", "update", "finish"), gc=("gc",), versions=3,
    ),
    "gate joint": _theme(
        a=("publish together", "prepare together"), b=("publish together", "append", "overwrite", "constrain"),
        c=(*_CONSTRAINTS, "finish together"), d=(*_CONSTRAINTS, "finish together", "read together", "read"), versions=1, tables=2,
        tight=True,
    ),
    "quarantine": _theme(
        a=("quarantine",), b=("quarantine", "append", "delete", "merge"), c=(*_CONSTRAINTS, "quarantine"),
        d=(*_CONSTRAINTS, "gc states", "read together", "read"), versions=1, tables=2,
    ),
    "everything": _theme(a=_EVERYTHING, b=_EVERYTHING, c=_EVERYTHING, d=_EVERYTHING, gc=("gc",)),
}  # fmt: skip
