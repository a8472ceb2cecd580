"""Before keys are dropped or sources set back: what others have published for that work is given up, or it would be committed in place of
the rerun. [CM21] [WM5] [CF13]

Not here: which keys and sources a rewind (engine.lineage) or a rollback (engine.rollback) undoes.
"""

from __future__ import annotations

from collections.abc import Collection

from ..core import intent
from ..errors import CorruptMetadataError
from .commit import enter_given_up
from .head import Head, list_above
from .intents import read_intent
from .lookup import find_job
from .session import Session


def give_up_published(session: Session, head: Head, *, keys: Collection[str], sources: Collection[str]) -> bool:
    """No intent that waits under one of these keys, or advances one of these sources, is carried any more; whether there were some:
    then the head is another one. [CM21]

    While the key is recorded, or the source stands behind its range, such a job does not apply, and nobody carries it. One list; one get
    for each intent that waits. What cannot be read now, or is of a later release, may be one of them: it is raised.
    """
    if not keys and not sources:
        return False
    found = False
    for job in list_above(session.store, head.version, most_intents=None).intents:
        if not intent.may_ever_be_carried(head.snapshot, job):
            continue  # to be given up it would have to be of this table, and above the fence: what is not is never gone for that
        try:
            waiting = read_intent(session.store, job)
        except CorruptMetadataError:
            continue  # nobody can carry it
        if waiting is None or find_job(session, head.snapshot, job)[0] is not None:
            continue
        if waiting.change.key in keys or any(each.source in sources for each in waiting.change.advances):
            enter_given_up(session, job)
            found = True
    return found
