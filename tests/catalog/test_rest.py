"""Iceberg's REST catalog over exports, as clients and as strangers ask for it. [LK5]-[LK8]"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.catalog.conftest import ICEBERG, TOKEN, Server, served
from tests.kit.command import Run
from tests.kit.web import Counting, stored

import manifestcommit as mc
from manifestcommit.catalog import rest
from manifestcommit.errors import StoreDeniedError, StoreError, UsageError
from manifestcommit.store import StorageOptions, Store, open_store, register_scheme

METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY")
PATHS = (
    "/v1/config",
    "/v1/namespaces",
    "/v1/namespaces/sales",
    "/v1/namespaces/sales/tables",
    "/v1/namespaces/sales/tables/orders",
    "/v1/namespaces/sales/tables/plain",
    "/v1/namespaces/sales/tables/orders/metrics",
    "/v1/namespaces/sales/register",
    "/v1/namespaces/sales/properties",
    "/v1/tables/rename",
    "/v1/transactions/commit",
    "/v1/oauth/tokens",
    "/v1/namespaces/sales/views",
    "/v1/none",
)


# --- what is served -----------------------------------------------------------------------------------------------------


def test_namespaces_and_tables_are_those_of_the_lake(server: Server) -> None:
    """[LK6]"""
    assert server.ask("/v1/namespaces").body == {"namespaces": [["default"], ["sales"]]}
    assert server.ask("/v1/namespaces?parent=sales").body == {"namespaces": [["sales", "eu"]]}
    assert server.ask("/v1/namespaces?parent=sales%1Feu").body == {"namespaces": []}
    assert server.ask("/v1/namespaces/sales%1Feu").body == {"namespace": ["sales", "eu"], "properties": {}}
    found = server.ask("/v1/namespaces/sales/tables").body["identifiers"]
    assert found == [{"namespace": ["sales"], "name": name} for name in ("orders", "plain")]
    assert server.ask("/v1/namespaces/default/tables").body["identifiers"] == [{"namespace": ["default"], "name": "flights"}]
    for path in ("/v1/namespaces/sales", "/v1/namespaces/default"):
        assert server.ask(path, "HEAD").status == 204
    for path in ("/v1/namespaces/none", "/v1/namespaces/none/tables", "/v1/namespaces?parent=none", "/v1/namespaces/sal"):
        answer = server.ask(path)
        assert answer.status == 404 and answer.body["error"]["type"] == "NoSuchNamespaceException", path


@pytest.mark.parametrize("name", ["default.flights", "sales.orders", "sales.eu.orders"])
def test_a_table_is_its_newest_export_unchanged(lake: mc.Lake, server: Server, name: str) -> None:
    """[LK5]"""
    table = lake.table(name.removeprefix("default."))
    for _ in range(2):
        answer = server.load(name)
        location = answer.body["metadata-location"]
        assert answer.status == 200 and answer.body["metadata"] == json.loads(Path(location.removeprefix("file://")).read_text())
        assert answer.body["metadata"]["current-snapshot-id"] == table.version
        assert server.load(name, "HEAD").status == 204
        mc.write(pa.table({"n": [4]}), table.url)


def test_what_is_known_is_not_sent_again(lake: mc.Lake, server: Server) -> None:
    tag = server.load("sales.orders").headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        assert server.load("sales.orders", If_None_Match=known).status == 304
    mc.write(pa.table({"n": [4]}), lake.table("sales.orders").url)
    assert server.load("sales.orders", If_None_Match=tag).status == 200
    lists = server.ask("/v1/namespaces").headers["etag"]
    assert server.ask("/v1/namespaces", headers={"If-None-Match": lists}).status == 304
    lake.create("new.table", pa.schema([("n", pa.int64())]))
    assert server.ask("/v1/namespaces", headers={"If-None-Match": lists}).status == 200


@pytest.mark.thorough
def test_a_table_without_an_export_is_listed_and_says_how_to_export_it(lake: mc.Lake, server: Server) -> None:
    """[LK5]"""
    for method in ("GET", "HEAD"):
        answer = server.load("sales.plain", method)
        assert answer.status == 404
    command = re.search(r"`manifestcommit (export \S+ --to iceberg)`", server.load("sales.plain").body["error"]["message"])
    assert command is not None and not (Path(lake.table("sales.plain").url.removeprefix("file://")) / "_iceberg").exists()
    subprocess.run([sys.executable, "-m", "manifestcommit", *command[1].split()], check=True, capture_output=True)
    assert server.load("sales.plain").status == 200


def test_an_export_of_a_removed_table_is_not_served(lake: mc.Lake, server: Server) -> None:
    """Its files are gone, or another's. [LK5]"""
    root = Path(lake.table("sales.orders").url.removeprefix("file://"))
    shutil.copytree(root / "_iceberg", root.parent / "kept")
    lake.drop("sales.orders")
    assert server.load("sales.orders").status == 404
    mc.write(pa.table({"n": [9]}), root)
    shutil.copytree(root.parent / "kept", root / "_iceberg", dirs_exist_ok=True)
    answer = server.load("sales.orders")
    assert answer.status == 503 and "of a table that was removed" in answer.body["error"]["message"]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[", b"\xff", b'{"properties": 1}'])
def test_a_damaged_export_is_an_error_that_says_so(lake: mc.Lake, server: Server, damage: bytes) -> None:
    location = server.load("sales.orders").body["metadata-location"]
    Path(location.removeprefix("file://")).write_bytes(damage)
    answer = server.load("sales.orders")
    assert answer.status == 503 and "manifestcommit export" in answer.body["error"]["message"]


def test_two_tables_of_one_name_are_told_apart(lake: mc.Lake, server: Server) -> None:
    """[LK6]"""
    lake.create("default.flights", pa.schema([("m", pa.int64())]), properties=ICEBERG)
    answer = server.load("default.flights")
    assert answer.status == 400 and answer.body["error"]["message"].count("/flights") == 2
    assert len(server.ask("/v1/namespaces/default/tables").body["identifiers"]) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_pages_hold_everything_once(lake: mc.Lake, server: Server, size: int) -> None:
    for number in range(6):
        lake.create(f"n{number}.t", pa.schema([("n", pa.int64())]))
    whole, found, token = server.ask("/v1/namespaces").body["namespaces"], [], ""
    while True:
        answer = server.ask(f"/v1/namespaces?pageSize={size}&pageToken={token}").body
        found += answer["namespaces"]
        assert len(answer["namespaces"]) <= size
        if "next-page-token" not in answer:
            break
        token = answer["next-page-token"]
    assert found == whole and len(whole) == 8
    first = server.ask("/v1/namespaces/sales/tables?pageSize=1").body
    rest_of = server.ask(f"/v1/namespaces/sales/tables?pageSize=1&pageToken={first['next-page-token']}").body
    assert [each["name"] for each in first["identifiers"] + rest_of["identifiers"]] == ["orders", "plain"]


@pytest.mark.parametrize("size", ["0", "-1", "x", "1e3", "٣", "9" * 5_000])
def test_a_size_of_a_page_that_is_none_is_refused(server: Server, size: str) -> None:
    answer = server.ask(f"/v1/namespaces?pageSize={quote(size)}")
    assert answer.status == 400 and "pageSize" in answer.body["error"]["message"]


# --- read-only, and without state ---------------------------------------------------------------------------------------


def test_no_request_writes(lake: mc.Lake, server: Server) -> None:
    """Those that would are refused in the standard's form. [LK7]"""
    lake.table("sales.plain").set_properties(ICEBERG)
    before = stored(lake)
    for path in PATHS:
        for method in ("GET", "HEAD", *METHODS):
            answer = server.ask(path, method, body=b"{}" if method in ("POST", "PUT") else None)
            if method in ("POST", "PUT", "PATCH", "DELETE"):
                assert answer.status == 406 and answer.body["error"]["type"] == "UnsupportedOperationException", (path, method)
                assert answer.body["error"]["code"] == 406 and "read-only" in answer.body["error"]["message"]
            elif answer.body is not None and answer.status >= 400:
                assert answer.body["error"].keys() == {"message", "type", "code"}
    assert stored(lake) == before


def test_a_request_costs_what_it_needs(lake: mc.Lake) -> None:
    """Loading a table: one list for its marker, the hint, and the document unless that is known. [LK7]"""
    calls: list[Counting] = []

    def opened(url: str) -> Store:
        calls.append(Counting(open_store(f"/{url}")))
        return calls[-1]

    register_scheme("counted", opened)
    url = f"counted:/{lake.url.removeprefix('file://')}".replace("counted:/", "counted://", 1)
    with served(rest.Catalog(_Named(open_store(url), url), refresh_s=60)) as server:
        total = lambda: sum((store.requests() for store in calls), start=type(calls[0].requests())())  # noqa: E731
        tag = server.load("sales.eu.orders").headers["etag"]
        assert total() == {"list": 1, "get": 2}
        server.load("sales.eu.orders", If_None_Match=tag)
        assert total() == {"list": 2, "get": 3}
        for _ in range(3):
            server.ask("/v1/namespaces")
        assert total() == {"list": 2 + 4 + 2 * 3, "get": 3}, "one list for each table, two for each other folder, once"


class _Named:
    """A store with the URL by which it was opened."""

    def __init__(self, inner: Store, url: str) -> None:
        self._inner, self.url = inner, url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_new_table_can_be_read_before_it_is_listed(lake: mc.Lake, start: Callable[..., Server]) -> None:
    server = start(lake, refresh_s=3600)
    assert server.ask("/v1/namespaces").body["namespaces"] == [["default"], ["sales"]]
    lake.create("new.orders", pa.schema([("n", pa.int64())]), properties=ICEBERG)
    assert server.load("new.orders").status == 200
    assert server.ask("/v1/namespaces").body["namespaces"] == [["default"], ["sales"]]


# --- who may ask --------------------------------------------------------------------------------------------------------


def test_nothing_is_answered_without_the_token(lake: mc.Lake, start: Callable[..., Server]) -> None:
    """[LK8]"""
    server = start(lake, token=TOKEN)
    stranger = Server(server.address)
    for path in PATHS:
        for method in ("GET", "HEAD", "POST", "DELETE"):
            for given in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer é"}):
                answer = stranger.ask(path, method, {name: value.encode().decode("latin-1") for name, value in given.items()})
                assert answer.status == 401 and answer.headers["www-authenticate"] == "Bearer"
                assert method == "HEAD" or answer.body["error"]["type"] == "NotAuthorizedException"
                assert TOKEN not in str(answer)
    assert server.ask("/v1/config").status == 200 and server.load("sales.orders").status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:8181", "[::2]", "localhost.evil", "[", "evil@localhost"]
)
def test_without_a_token_a_page_of_another_site_gets_nothing(server: Server, host: str) -> None:
    """Its name may lead to this machine. [LK8]"""
    answer = server.ask("/v1/namespaces", headers={"Host": host})
    assert answer.status == 403 and answer.body["error"]["type"] == "ForbiddenException"
    for own in ("localhost:8181", "127.0.0.1", "[::1]:8181"):
        assert server.ask("/v1/namespaces", headers={"Host": own}).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "lake.example"])
def test_others_are_not_listened_to_without_a_token(lake: mc.Lake, host: str) -> None:
    """[LK8]"""
    with pytest.raises(UsageError, match=r"invalid --host .*--token-file"):
        rest.make_server(rest.Catalog(open_store(lake.url)), host=host, port=0, token=None)


def test_it_listens_where_it_is_told(lake: mc.Lake, start: Callable[..., Server]) -> None:
    assert start(lake, host="::1").ask("/v1/config").status == 200
    assert start(lake, host="0.0.0.0", token=TOKEN).ask("/v1/config").status == 200
    taken = start(lake).address.rpartition(":")[2]
    with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1 port"):
        rest.make_server(rest.Catalog(open_store(lake.url)), host="127.0.0.1", port=int(taken), token=None)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/..%1F../tables/etc",
        "/v1/namespaces/..%2F../tables/x",
        "/v1/namespaces/sales/tables/..%2Fsales%2Forders",
        "/v1/namespaces/sales/tables/.",
        "/v1/namespaces/sales/tables/_manifest",
        "/v1/namespaces/sales%1F/tables/orders",
        "/v1/namespaces/%1F/tables/orders",
        "/v1/namespaces/sales/tables/%00",
        "/v1/namespaces/sales/tables/%FF",
        "/v1/namespaces/sales/tables/" + "x" * 5000,
        "/v1//namespaces",
        "/v1/namespaces/sales/tables/orders/",
    ],
)
def test_a_name_never_leads_out_of_the_lake(server: Server, path: str) -> None:
    """[LK2]"""
    answer = server.ask(path)
    assert answer.status == 404 and "error" in answer.body


@pytest.mark.parametrize(("error", "status"), [(StoreDeniedError("denied"), 403), (StoreError("busy"), 503), (RuntimeError(TOKEN), 500)])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_of_the_store_has_the_standards_form(lake: mc.Lake, error: Exception, status: int) -> None:
    class Failing:
        url = lake.url

        def list(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            raise error

    with served(rest.Catalog(Failing())) as server:
        answer = server.ask("/v1/namespaces")
        assert answer.status == status and answer.body["error"]["code"] == status and TOKEN not in str(answer)


# --- the command --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_command_serves_until_it_is_told_to_end(lake: mc.Lake, tmp_path: Path) -> None:
    """And shows its token nowhere. [LK8]"""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    for given, environment in ((["--token-file", str(file)], {}), ([], {"MANIFESTCOMMIT_SERVE_TOKEN": TOKEN})):
        command = [sys.executable, "-m", "manifestcommit", "serve", lake.url, "--port", "0", *given]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            server = Server(first.split("served at ")[1].split(": ")[0], TOKEN)
            assert server.load("sales.orders").status == 200 and Server(server.address).ask("/v1/config").status == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) in (0, -signal.SIGTERM)
            shown = first + process.stderr.read()
        assert TOKEN not in shown and "Traceback" not in shown


@pytest.mark.thorough
@pytest.mark.parametrize("token", ["", "short", "with a space in it", "schlüssel-wort", "two-lines\nof-token", "\0" * 9])
def test_a_token_that_no_client_can_send_is_refused(lake: mc.Lake, run: Run, tmp_path: Path, token: str) -> None:
    """By an error that does not show it. [LK8]"""
    file = tmp_path / "token"
    file.write_text(token)
    done = run("serve", lake.url, "--token-file", file)
    assert done.status == 2 and "invalid --token-file: expected a token of 8" in done.err
    assert not token or token not in done.err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--token-file", "/none/secret-token"], "invalid --token-file"),
        (["--host", "0.0.0.0"], "invalid --host"),
        (["--refresh", "soon"], "invalid --refresh"),
        (["--port", "65536"], "a port from 0 to 65535"),
    ],
)
def test_a_wrong_option_is_refused(lake: mc.Lake, run: Run, given: list[str], said: str) -> None:
    done = run("serve", lake.url, *given)
    assert done.status == 2 and said in done.err and "secret-token" not in done.err


@pytest.mark.thorough
def test_storage_options_reach_each_table(rgw: Any) -> None:
    """[SE1]"""
    options = StorageOptions(rgw.storage_options)
    lake = mc.lake(f"s3://{rgw.bucket()}/lake", options)
    lake.create("a.b", pa.schema([("n", pa.int64())]), properties=ICEBERG)
    with served(rest.Catalog(open_store(lake.url, options), options)) as server:
        answer = server.load("a.b")
        assert answer.status == 200 and answer.body["config"] == {}
        assert not any(str(value) in str(answer) for name, value in rgw.storage_options.items() if name in ("key", "secret"))
