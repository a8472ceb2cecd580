"""The types of values in JSON. [SC7]

Pure.
"""

from __future__ import annotations

from typing import TypeAlias

# A partition value or a bound as JSON holds it; `core.schema.values` converts it by the column's
# type.
WireValue: TypeAlias = bool | int | float | str | None
