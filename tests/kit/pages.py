"""Pages of the documentation with tables that are made of recorded results."""

import re
from collections.abc import Mapping
from pathlib import Path


def with_tables(text: str, tables: Mapping[str, str], *, page: Path) -> str:
    """The text of the page with these tables, each in place of the only one whose first line begins in the same way."""
    for head, table in tables.items():
        pattern = re.compile(rf"^{re.escape(head)}.*\n(?:\|.*\n)+", re.MULTILINE)
        found = pattern.findall(text)
        if len(found) != 1:
            raise ValueError(f"{page}: {len(found)} tables begin with {head!r}")
        text = text.replace(found[0], table)
    return text
