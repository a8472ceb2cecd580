"""The function: publishes the rows of an event, exactly once."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

import manifestcommit as mc


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Publish `event["rows"]` to the table that TABLE names.

    An event that is delivered again, or whose function is run again after an error, has the same
    id: its rows are in the table once.
    """
    outcome = mc.write(pa.Table.from_pylist(event["rows"]), os.environ["TABLE"], key=event["id"])
    return {"version": outcome.version, "rows": len(event["rows"])}
