"""Builds the site: docs/, the specification, and the pages that are made from the code. `make docs`

    python -m tests.docs.site [--out build]

Needs the extra `docs` and no network. The site is in build/site; it asks nothing of any other host. Whatever leads nowhere fails:
a link, an anchor, a reference, a page that the navigation lacks. Exit codes: 0 built, 1 something is wrong.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.docs import generated, links
from tests.spec.clauses import CITATION, CLAUSE, DEFINITION, defined

REPO = Path(__file__).resolve().parents[2]
DOCS, SPEC = REPO / "docs", REPO / "spec"
CONFIG = DOCS / "zensical.toml"
CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
COMMENT = re.compile(r"^<!-- .*?-->\n", re.MULTILINE | re.DOTALL)


def sources() -> dict[str, Path]:
    """Name on the site -> file. The specification is below spec/, the changelog beside the index."""
    found = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    for path in (*SPEC.glob("*.md"), *SPEC.glob("decisions/*.md"), *SPEC.glob("model/*.md")):
        found[path.relative_to(REPO).as_posix()] = path
    return found | {"changelog.md": REPO / "CHANGELOG.md"}


def assembled(name: str, path: Path, names: dict[Path, str], clauses: frozenset[str]) -> str:
    """A page as it goes into the site."""
    text = MARK.sub(lambda match: generated.PAGES[match[1]](), path.read_text("utf-8"))
    text = COMMENT.sub("", text)
    parts = CODE.split(text)
    return "".join(part if number % 2 else _prose(part, name, path, names, clauses) for number, part in enumerate(parts))


def _prose(text: str, name: str, path: Path, names: dict[Path, str], clauses: frozenset[str]) -> str:
    """Links lead to the site's pages, and clauses are anchors, and links to them."""
    text = LINK.sub(lambda match: _link(match, name, path, names), text)
    if path == SPEC / "v1.md":
        text = DEFINITION.sub(lambda match: f'<a id="{match[1]}"></a>**\\[{match[1]}\\]{match["planned"] or ""}**', text)
    to_spec = posixpath.relpath("spec/v1.md", posixpath.dirname(name))
    return CITATION.sub(lambda match: _cited(match[0], to_spec, clauses), text)


def _cited(text: str, to_spec: str, clauses: frozenset[str]) -> str:
    """`[CM1, CM2]` with a link for each clause."""
    plain = text.replace("[", "\\[").replace("]", "\\]")
    return re.sub(rf"\b{CLAUSE}\b", lambda match: f"[{match[0]}]({to_spec}#{match[0]})" if match[0] in clauses else match[0], plain)


def _link(match: re.Match[str], name: str, path: Path, names: dict[Path, str]) -> str:
    picture, label, target = match.groups()
    where, _, fragment = target.partition("#")
    if "://" in target or not where:
        return match[0]
    file = (path.parent / where).resolve()
    if file in names:
        new = posixpath.relpath(names[file], posixpath.dirname(name))
    elif file.is_relative_to(SPEC) and file.is_file():
        new = posixpath.relpath(file.relative_to(REPO).as_posix(), posixpath.dirname(name))
    elif file.is_relative_to(DOCS):
        return match[0]
    elif file.exists():  # in the repository only
        shown = file.relative_to(REPO).as_posix()
        return f"`{shown}`" if label.strip("`/") in shown else f"{label} (`{shown}`)"
    else:
        return match[0]  # the build says so
    return f"{picture}[{label}]({new}{'#' + fragment if fragment else ''})"


def listed(nav: Sequence[Any]) -> Iterator[str]:
    """The pages that the navigation names."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)


def assemble(out: Path) -> None:
    """Everything that the builder reads, below `out`."""
    shutil.rmtree(out, ignore_errors=True)
    names = {path: name for name, path in sources().items()}
    clauses = defined((SPEC / "v1.md").read_text("utf-8"))
    for path, name in names.items():
        target = out / "docs" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(assembled(name, path, names, clauses.held | clauses.planned), "utf-8")
    for path in (*DOCS.glob("assets/*"), *SPEC.glob("performance/*.png"), *SPEC.glob("v1/**/*"), *SPEC.glob("model/*")):
        if path.is_file() and path.suffix != ".md":
            base = DOCS if path.is_relative_to(DOCS) else REPO
            target = out / "docs" / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    shutil.copy(CONFIG, out / CONFIG.name)


def missing_from_navigation() -> list[str]:
    nav = set(listed(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    return sorted(name for name in sources() if name not in nav and not name.startswith(("spec/decisions/", "spec/model/")))


def link_clauses(site: Path) -> None:
    """Clauses that docstrings cite, `Spec: CM1, CM10.` or `[CM1]`, become links."""
    link = r'<a href="../spec/v1.html#\g<0>">\g<0></a>'
    for page in site.glob("reference/*.html"):
        text = page.read_text("utf-8")
        text = re.sub(r"<p>Spec: ([^<]+)</p>", lambda match: f'<p class="spec">Spec: {re.sub(CLAUSE, link, match[1])}</p>', text)
        page.write_text(CITATION.sub(lambda match: re.sub(CLAUSE, link, match[0]), text), "utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.docs.site", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=REPO / "build" / "docs", help="where it is built (default: build/docs)")
    out = parser.parse_args(arguments).out.absolute()
    if absent := missing_from_navigation():
        print("docs/zensical.toml lacks these pages:", *absent, sep="\n  ", file=sys.stderr)
        return 1
    assemble(out)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", CONFIG.name]
    environment = {**os.environ, "PYTHONPATH": str(REPO), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).partition("Traceback")[0]), file=sys.stderr)
        return 1
    link_clauses(out / "site")
    problems = links.problems(out / "site")
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    print(f"{len(list((out / 'site').rglob('*.html')))} pages, every link and anchor leads somewhere: {out / 'site' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
