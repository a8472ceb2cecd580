"""The packages of `integrations`, each by its own tests with the real tool, in an environment of its own."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.clients.environments import REPO, python_of

FOLDERS = sorted(path.parent for path in (REPO / "integrations").glob("*/tests"))


@pytest.mark.thorough  # installs the tool
@pytest.mark.timeout(900)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_package_holds_with_the_tool_that_it_is_for(folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{REPO}{os.pathsep}{folder}"}
    command = [python_of(folder.name), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "tests"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_every_package_is_on_the_page() -> None:
    page = (REPO / "integrations" / "README.md").read_text("utf-8")
    assert FOLDERS and all(f"| [{folder.name}]({folder.name}/README.md) |" in page for folder in FOLDERS)
