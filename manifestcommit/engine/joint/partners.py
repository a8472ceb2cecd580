"""The tables that still ask this one what became of their newest versions. [MT10]

Not here: settling one (engine.operations.settle).
"""

from __future__ import annotations

from ...core.table.snapshot import Snapshot
from ...errors import ManifestCommitError, TableNotFoundError
from ...store import Store
from ...store.base import store_beside
from ..metadata.version_chain import open_object


def unsettled_partners(store: Store, snapshot: Snapshot) -> dict[str, str]:
    """Root of a table that took part in a joint commit that this one decided -> why it depends on
    this one, or may; without those that are settled or gone. Three requests for each. [MT10]"""
    found = {}
    for table_id, record in snapshot.joint.items():
        at = store_beside(store, record.root)
        try:
            newest = None if at is None else open_object(at).snapshot
        except TableNotFoundError:
            continue
        except ManifestCommitError as error:
            found[record.root] = f"it cannot be read: {error}"
            continue
        if newest is None:
            found[record.root] = "it is in another store"
        elif (
            newest.table_id == table_id
            and newest.pending is not None
            and newest.pending.table_id == snapshot.table_id
        ):
            found[record.root] = f"its version {newest.version} is what this table decided"
    return found
