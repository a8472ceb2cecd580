"""The scripts that start servers run as root: what others can write is neither run nor removed, and nothing stays behind."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers.servers import RGW_SCRIPT

NAMES = ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"]


def rgw(folder: Path, verb: str) -> subprocess.CompletedProcess[str]:
    settings = {"MC_RGW_DIR": str(folder), "MC_RGW_PORT": "1", "MC_RGW_MON_PORT": "2"}
    return subprocess.run([str(RGW_SCRIPT), verb], env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False)


def pretend(folder: Path, env: str) -> list[subprocess.Popen[bytes]]:
    """A gateway that runs, as far as the script can tell; what `start` has noted of it."""
    cluster = folder / "cluster"
    cluster.mkdir(parents=True)
    folder.chmod(0o700)
    (cluster / "env").write_text(env)
    running = []
    for name in ("mon", "osd", "rgw"):
        running.append(subprocess.Popen(["sleep", "60"], env=os.environ | {"MC_RGW_DIR": str(folder)}))
        (cluster / f"{name}.pid").write_text(str(running[-1].pid))
    time.sleep(0.2)  # until each has become what it is
    return running


def end(running: list[subprocess.Popen[bytes]]) -> None:
    for each in running:
        each.kill()
        each.wait()


def a_link(folder: Path) -> None:
    mine = folder.with_name("mine")
    (mine / "cluster").mkdir(parents=True)
    folder.symlink_to(mine)


def of_another_user(folder: Path) -> None:
    (folder / "cluster").mkdir(parents=True)
    os.chown(folder, 65534, 65534)


def writable_by_all(folder: Path) -> None:
    (folder / "cluster").mkdir(parents=True)
    folder.chmod(0o1777)


def a_file(folder: Path) -> None:
    folder.write_text("")


@pytest.mark.parametrize("verb", ["start", "stop", "env", "status"])
@pytest.mark.parametrize("made", [a_link, of_another_user, writable_by_all, a_file])
def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, verb: str, made: Callable[[Path], None]) -> None:
    """Its name can be guessed: another user had root's shell evaluate a file, and root's script remove a folder."""
    if made is of_another_user and os.geteuid() != 0:
        pytest.skip("only root can give a folder to somebody else")
    folder = tmp_path / "rgw é"
    made(folder)
    before = sorted(tmp_path.rglob("*"))
    said = rgw(folder, verb)
    assert said.returncode == 1 and said.stdout == "" and str(folder) in said.stderr and "of your own" in said.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_evaluated_is_made_by_the_script(tmp_path: Path) -> None:
    """Known names only, and each value quoted whatever it holds."""
    folder, trap = tmp_path / "rgw é", tmp_path / "trap"
    hostile = f"$(touch {trap}) `touch {trap}` '\"; touch {trap} #"
    running = pretend(folder, f"AWS_ENDPOINT_URL=http://127.0.0.1:1\nAWS_ACCESS_KEY_ID={hostile}\ntouch {trap}\nPATH=/x\n")
    try:
        said = rgw(folder, "env")
        assert said.returncode == 0, said.stderr
        assert [line.split("=")[0] for line in said.stdout.splitlines()] == [f"export {name}" for name in NAMES]
        assert shlex.split(said.stdout.splitlines()[1])[1] == f"AWS_ACCESS_KEY_ID={hostile}"
        shell = subprocess.run(["bash", "-c", f'{said.stdout}\nprintf %s "$AWS_ACCESS_KEY_ID"'], capture_output=True, text=True, check=True)
        assert shell.stdout == hostile and not trap.exists()
        assert rgw(folder, "status").stdout == "http://127.0.0.1:1\n"
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        end(running)
    assert rgw(folder, "env").returncode == 1


def test_stop_ends_what_was_started_and_nothing_else(tmp_path: Path) -> None:
    """A number in a file proves nothing, nor does what is no number."""
    folder = tmp_path / "rgw"
    running = pretend(folder, "")
    other = subprocess.Popen(["sleep", "60"])
    try:
        (folder / "cluster/osd.pid").write_text(str(other.pid))
        (folder / "cluster/watch.pid").write_text("-1 /etc/x")
        assert rgw(folder, "stop").returncode == 0
        assert running[0].wait(10) == running[2].wait(10) == -signal.SIGKILL
        assert other.poll() is None and running[1].poll() is None and not (folder / "cluster").exists()
    finally:
        end([*running, other])
