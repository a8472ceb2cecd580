"""`python -m tests.servers` installs what is missing; `python -m tests.servers azurite|rclone|s3rver|seaweedfs` runs one until Ctrl-C;
`python -m tests.servers demo` starts an S3 server, runs the demo with its table there, and ends the server.

The gateway has a script of its own: tests/servers/rgw.sh.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tests.servers import servers
from tests.servers.servers import AzureServer, S3Server, UnavailableError


def install() -> None:
    """Says of each server whether tests can run on it here. One that is missing is no error: its tests say so themselves."""
    _say("Ceph RGW", subprocess.run([servers.RGW_SCRIPT, "install"], check=False).returncode == 0)
    for name, program in {"Azurite": servers.AZURITE, "s3rver": servers.S3RVER}.items():
        try:
            servers.npm_program(*program)
            _say(name, True)
        except UnavailableError as error:
            _say(name, False, f": {error}")


def _say(name: str, here: bool, why: str = "") -> None:
    print(f"--- {name}: {'installed' if here else 'MISSING, its tests will not run'}{why}", flush=True)


def run(name: str) -> None:
    """Prints what a shell needs to reach the server, and waits for Ctrl-C."""
    servable: dict[str, Callable[[Path], AbstractContextManager[S3Server | AzureServer]]]
    servable = {each.__name__: each for each in (servers.azurite, servers.rclone, servers.s3rver, servers.seaweedfs)}
    with tempfile.TemporaryDirectory(prefix=f"manifestcommit-{name}-") as folder, servable[name](Path(folder)) as server:
        for variable, value in server.environment.items():
            print(f"export {variable}={shlex.quote(value)}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)


def demo(arguments: list[str]) -> int:
    """The demo on real S3: a gateway of its own, or the developer's where one runs."""
    with tempfile.TemporaryDirectory(prefix="manifestcommit-rgw-") as folder:
        server = servers.developers_rgw() or servers.start_rgw(Path(folder), for_pid=os.getpid())
        try:
            table = f"s3://{server.bucket()}/flights"
            words = [sys.executable, "-m", "examples.flights", "--table", table, *arguments]
            return subprocess.run(words, env={**os.environ, **server.environment}, check=False).returncode
        finally:
            servers.stop_rgw(Path(folder))


match sys.argv[1:]:
    case []:
        install()
    case ["azurite" | "rclone" | "s3rver" | "seaweedfs" as name]:
        run(name)
    case ["demo", *arguments]:
        sys.exit(demo(arguments))
    case _:
        sys.exit(__doc__)
