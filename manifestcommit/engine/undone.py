"""Before keys are dropped: what others have published under them is given up, or it would be committed in place of the rerun. [CM21] [WM5]

Not here: which keys a rewind (engine.lineage) or a rollback (engine.rollback) drops.
"""

from __future__ import annotations

from collections.abc import Collection

from ..errors import CorruptMetadataError
from .commit import enter_given_up
from .head import Head, list_above
from .intents import read_intent
from .lookup import find_job
from .session import Session


def give_up_published(session: Session, head: Head, keys: Collection[str]) -> bool:
    """No intent that waits under one of these keys is carried any more; whether there were some: then the head is another one. [CM21]

    While the key is recorded such a job is already done by another attempt, and nobody carries it. One list, where keys are dropped;
    one get for each intent that waits. What cannot be read now, or is of a later release, may wait under one of them: it is raised.
    """
    if not keys:
        return False
    found = False
    for job in list_above(session.store, head.version, most_intents=None).intents:
        try:
            waiting = read_intent(session.store, job)
        except CorruptMetadataError:
            continue  # nobody can carry it
        if waiting is not None and waiting.change.key in keys and find_job(session, head.snapshot, job)[0] is None:
            enter_given_up(session, job)
            found = True
    return found
