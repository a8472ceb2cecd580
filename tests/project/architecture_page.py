"""The table of packages in spec/architecture.md, from the packages themselves.

python -m tests.project.architecture_page     rewrite the table in the page
"""

import ast
import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "spec" / "architecture.md"
PACKAGE = REPO / "manifestcommit"
_TABLE = re.compile(r"^\| folder \|.*?\n\n+", re.MULTILINE | re.DOTALL)

_TOP = "The public calls, and what they share: errors, telemetry, the version."


def rendered() -> str:
    """One line for each folder: how many modules it has, `__init__` not counted, and what its docstring says first."""
    lines = ["| folder | modules | what is in it |", "|---|--:|---|"]
    for init in sorted(PACKAGE.rglob("__init__.py"), key=lambda path: path.parent.relative_to(PACKAGE).parts):
        folder = init.parent
        count = sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        doc = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
        first = re.sub(r"\s*\[[A-Z]{2}\d+\]", "", " ".join(doc.split("\n\n")[0].split()))
        name = folder.relative_to(PACKAGE).as_posix()
        if not count:
            continue
        lines.append(f"| top level | {count} | {_TOP} |" if name == "." else f"| `{name}/` | {count} | {first} |")
    return "\n".join(lines) + "\n\n"


def replaced(text: str) -> str:
    """The page with the table as it is now."""
    if len(_TABLE.findall(text)) != 1:
        raise ValueError("spec/architecture.md has no table of folders, or two")
    return _TABLE.sub(lambda _: rendered(), text)


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text("utf-8")), "utf-8")
