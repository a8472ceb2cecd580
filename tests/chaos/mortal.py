"""Actors that are killed not only at random moments: also right before and after versions and prepared jobs are created."""

from __future__ import annotations

from typing import Any

from tests.chaos.world import Actor, World

from manifestcommit.core.table.object_names import JOBS, parse_version
from manifestcommit.store.backends.object_store import ObjectStore
from manifestcommit.store.local.local import LocalStore


def die_inside(actor: Actor) -> None:
    """From now on this process is killed at some creates of versions and of prepared jobs: before they are sent, or once they landed."""
    probability = 0.03 if actor.world.faulty else 0.012  # of so many requests fewer, where each takes longer
    for kind in (LocalStore, ObjectStore):
        create = kind.put_if_absent

        def put_if_absent(store: Any, name: str, data: bytes, create: Any = create) -> bool:
            what = "a version" if parse_version(name) is not None else "a prepared job" if name.startswith(JOBS) else None
            if what is not None:
                actor.maybe_die(f"before {what} is created", probability)
            created: bool = create(store, name, data)
            if what is not None:
                actor.maybe_die(f"{what} was created", probability)
            return created

        setattr(kind, "put_if_absent", put_if_absent)  # noqa: B010  # in this process only


class Mortal(Actor):
    """One of them."""

    def __init__(self, world: World, name: str, incarnation: int) -> None:
        super().__init__(world, name, incarnation)
        die_inside(self)
