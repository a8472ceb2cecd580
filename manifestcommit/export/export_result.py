"""What an export has made, for its caller. [EX1]"""

from __future__ import annotations

import msgspec

from ..display import ReprMixin


class Export(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one export has put beside the table.

    Attributes:
        format: "iceberg", "delta" or "spark-catalog".
        version: the newest version that readers of the format see.
        location: what to give them: the folder that holds the format's metadata.

    Spec: EX1.
    """

    format: str
    version: int
    location: str
