"""A layer that is built here, and a function that runs on it under Lambda's runtime client, which commits to a real S3 server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import layer
import pytest
from tests.servers import servers

FOLDER = Path(__file__).resolve().parents[1]
FLOOR = "import pyarrow.parquet, pyarrow.compute, botocore.session, urllib3"  # its dependencies
MOST = 3  # times the CPU of these imports, from the import to the first commit


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("layer")
    layer.build(out)
    return out / "python"


@pytest.fixture(scope="session")
def rgw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.S3Server]:
    folder = tmp_path_factory.mktemp("rgw")
    try:
        yield servers.start_rgw(folder, for_pid=os.getpid())
    except servers.UnavailableError as error:
        pytest.skip(str(error))
    finally:
        servers.stop_rgw(folder)


@contextmanager
def runtime(events: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], threading.Event]]:
    """Lambda's runtime interface, which hands out these events: its address, the answers by the number of the event, and whether all
    are there."""
    answers: dict[str, Any] = {}
    waiting, done = iter(enumerate(events)), threading.Event()

    class Interface(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number, event = next(waiting, (-1, {}))
            if number < 0:
                done.wait(60)
            body = json.dumps(event).encode()
            self.send_response(200)
            headers = {
                "Lambda-Runtime-Aws-Request-Id": str(number),
                "Lambda-Runtime-Deadline-Ms": "9999999999999",
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:us-east-1:0:function:publish",
                "Content-Type": "application/json",
                "Content-Length": str(len(body)),
            }
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            *_, number, kind = self.path.split("/")
            answers[number] = {kind: json.loads(self.rfile.read(int(self.headers["Content-Length"])))}
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            if len(answers) == len(events):
                done.set()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Interface)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", answers, done
    finally:
        done.set()
        server.shutdown()


def test_it_is_small_enough_for_a_function(packages: Path) -> None:
    assert layer.size_of(packages) <= layer.MOST_BYTES
    assert not [name for name in ("numpy", "pandas", "s3fs") if (packages / name).exists()]


def test_everything_runs_on_it(packages: Path, tmp_path: Path) -> None:
    """Nothing that was left out is missed."""
    program = FOLDER / "tests" / "everything.py"
    command = [sys.executable, "-W", "error", str(program), str(tmp_path / "t")]
    subprocess.run(command, env={"PYTHONPATH": str(packages)}, check=True)


def test_a_function_commits_each_event_once(packages: Path, rgw: servers.S3Server) -> None:
    rgw.call("create_bucket", Bucket="lambda")
    url = "s3://lambda/t"
    first = {"id": "a", "rows": [{"day": 1, "n": 2}, {"day": 1, "n": 3}]}
    events = [first, first, {"id": "b", "rows": [{"day": 2, "n": 4}]}, {"id": "c"}]
    with runtime(events) as (address, answers, done):
        env = {**rgw.environment, "TABLE": url, "AWS_LAMBDA_RUNTIME_API": address, "PYTHONPATH": f"{packages}{os.pathsep}{FOLDER}"}
        env |= {"AWS_LAMBDA_FUNCTION_NAME": "publish", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512", "AWS_LAMBDA_FUNCTION_VERSION": "1"}
        function = subprocess.Popen([sys.executable, "-m", "awslambdaric", "handler.handler"], env=env, cwd=FOLDER)
        assert done.wait(60), answers
        function.kill()
        function.wait()
    assert [answers[number] for number in "012"] == [
        {"response": {"version": 2, "rows": 2}},
        {"response": {"version": 2, "rows": 2}},
        {"response": {"version": 3, "rows": 1}},
    ]
    assert answers["3"]["error"]["errorType"] == "KeyError"


def test_the_first_commit_costs_little(packages: Path, rgw: servers.S3Server) -> None:
    """Compared with its imports, alternately, since machines differ. The minimum counts: other load only adds to a run."""
    rgw.call("create_bucket", Bucket="costs")
    calls = {"floor": FLOOR, "function": "import handler; handler.handler({'id': 'a', 'rows': [{'n': 1}]}, None)"}
    spent = dict.fromkeys(calls, float("inf"))
    for number in range(5):
        env = {**rgw.environment, "TABLE": f"s3://costs/{number}", "PYTHONPATH": f"{packages}{os.pathsep}{FOLDER}"}
        for name, call in calls.items():
            code = f"import time; start = time.process_time(); {call}; print(time.process_time() - start)"
            done = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True, check=True)
            spent[name] = min(spent[name], float(done.stdout))
    assert spent["function"] <= MOST * spent["floor"], spent
