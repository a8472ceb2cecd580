"""What was given to reach a store is shown nowhere, wherever in it a secret stands. [SE1]"""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import fsspec
import pytest
from fsspec.registry import _registry
from tests.kit.stores import Toy
from tests.servers.servers import AZURITE_KEY, free_port

from manifestcommit.errors import StoreError, UsageError
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.base import public_endpoint

PASSWORD = "hunter2 +%40:"
SPELLED = quote(PASSWORD, safe="")
PARTS = ("hunter2", "someone")


class Talkative(Toy):
    """Its errors repeat what it was given."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.endpoint = options["endpoint_url"]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        raise OSError(f"cannot reach {self.endpoint}")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise ValueError(f"cannot reach {self.endpoint}", mode)


@pytest.fixture(autouse=True)
def talkative(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A scheme for it; and no pauses."""
    monkeypatch.setattr("manifestcommit.store.object_store.random.uniform", lambda *_: 0.0)
    fsspec.register_implementation("talkative", Talkative)
    yield
    _registry.pop("talkative", None)


REACHED: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "s3": lambda host: ("s3://b/t", {"key": "k", "secret": "s", "endpoint_url": f"http://{host}"}),
    "s3, client_kwargs": lambda host: ("s3://b/t", {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": f"http://{host}"}}),
    "gs": lambda host: ("gs://b/t", {"token": "anon", "endpoint_url": f"http://{host}"}),
    "abfs": lambda host: (
        "abfs://c/t",
        {"connection_string": f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={AZURITE_KEY};BlobEndpoint=http://{host}/a;"},
    ),
    "abfs, account_host": lambda host: ("abfs://c/t", {"account_name": "a", "anon": True, "account_host": f"{host}/a"}),
    "talkative": lambda host: ("talkative://b/t", {"endpoint_url": f"http://{host}"}),
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", REACHED)
def test_a_password_in_an_endpoint_is_in_no_text(kind: str) -> None:
    """The identity of a store is written into the table, its errors into logs. [SE1] [ST12]"""
    port = free_port()
    url, options = REACHED[kind](f"someone:{SPELLED}@127.0.0.1:{port}")
    store = open_store(url, options)
    assert store.identity.endswith((f"127.0.0.1:{port}", f"127.0.0.1:{port}/a")), "and where it is stays to be seen"
    texts = [store.url, store.identity, repr(store), str(store.__dict__), repr(store.parent())]
    for call in (lambda: store.get("x"), lambda: store.put_if_absent("x", b""), lambda: list(store.list(""))):
        try:
            assert call() == [], "the toy can be listed"
        except StoreError as error:
            texts += [str(error), repr(error), repr(error.__cause__)]
    assert len(texts) >= 5 + 2 * 3
    assert [text for text in texts if any(part in text for part in PARTS) or SPELLED in text or PASSWORD in text] == []


@pytest.mark.parametrize("endpoint", [f"http://someone:{SPELLED}@no host/", "http://someone:hunter2+%40:@"])
@pytest.mark.parametrize("given", [True, False])
def test_an_endpoint_that_is_none_is_refused_without_its_password(endpoint: str, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where it was given nor where it was found in the environment. [SE1]"""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(UsageError, match="no client for s3://") as error:
        open_store("s3://b/t", {"key": "k", "secret": "s", **({"endpoint_url": endpoint} if given else {})}).get("x")
    assert not any(part in str(error.value) for part in PARTS)


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("https://User:pa@ss/w?or#d@Store.Example:9000/Path/", "https://store.example:9000/Path"), ("https://token@store", "https://store"),
        ("https://store/?sig=secret#secret", "https://store"), ("user:p://w@store:1/a", "store:1/a"),
        ("http://[::1]:80/", "http://[::1]:80"), ("", ""),
    ],
)  # fmt: skip
def test_of_an_endpoint_only_the_place_is_shown(endpoint: str, shown: str) -> None:
    """[SE1]"""
    assert public_endpoint(endpoint) == shown


# --- options ----------------------------------------------------------------------------------------------------------------
def test_values_of_every_kind_are_blotted_out() -> None:
    """[SE1]"""
    options = StorageOptions(
        {
            "secret": "a secret",
            "s3_additional_kwargs": {"SSECustomerKey": b"\x00 bytes\xff!", "list": ["in a list", ("in a tuple", {"in a set"})]},
            "endpoint_url": f"http://someone:{SPELLED}@store:9000",
            "account_host": f"someone:{SPELLED}@store",
        }
    )
    raw = options["s3_additional_kwargs"]["SSECustomerKey"]
    said = f"{options['secret']} | {raw} | {raw.decode('latin-1')[1:7]} | in a list | in a tuple | in a set | {SPELLED} | {PASSWORD}"
    assert options.scrub(said) == "*** | b'***' |  bytes | *** | *** | *** | *** | ***"
    assert options.scrub(f"of {'AGJ5dGVz'} and {options['endpoint_url']}") == "of AGJ5dGVz and http://***@store:9000"
    assert StorageOptions().scrub("from https://user:pw@store/x, s3://b/k@1") == "from https://***@store/x, s3://b/k@1"


def test_words_that_are_no_secret_stay() -> None:
    """A message is for people. [SE1]"""
    options = StorageOptions({"token": "anon", "key": "us", "endpoint_url": "http://store:9000", "region": "eu-west", "anon": True})
    said = "give token='anon': anonymous access to http://store:9000 in eu-west; us True"
    assert options.scrub(said) == said


def test_options_show_their_names_and_never_a_value() -> None:
    """Who prints a store, or logs what it was opened with, shows no key. [SE1]"""
    options = StorageOptions({"key": "an open secret", "client_kwargs": {"aws_session_token": "a deeper secret"}, "anon": False})
    for shown in (repr(options), str(options), f"{options}", f"{[options]!r}", "%s" % (options,)):  # noqa: UP031  # as loggers do
        assert "secret" not in shown and "client_kwargs" in shown and "key" in shown


def test_options_that_are_equal_share_a_connection_and_no_others_do() -> None:
    """[SE1] [ST13]"""
    same = [{"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": "2"}, {"b": "2", "a": {"y": [{"q": 2, "p": 1}], "x": 1}}]
    assert len({StorageOptions(each).fingerprint() for each in same}) == 1
    others: list[dict[Any, Any]] = [
        {"a": 1}, {"a": "1"}, {"a": True}, {"a": 1.0}, {"a": b"1"}, {"a": None}, {"a": "None"}, {1: 1}, {"1": 1}, {"a": [1]}, {"a": ["1"]},
        {"a": (1,)}, {"a": [[1], 2]}, {"a": [1, [2]]}, {"a": {"b": 1}}, {"a": [("b", 1)]}, {"a": {}}, {"a": []}, {}, {"a": "x,'b':1"},
        {"a": "\ud800"},
    ]  # fmt: skip
    assert len({StorageOptions(each).fingerprint() for each in others}) == len(others)


def test_options_that_no_client_takes_are_refused_without_their_values() -> None:
    """[SE1]"""
    with pytest.raises(UsageError, match="no client for gs://") as error:
        open_store("gs://b/t", {"token": {"private_key": "hunter2"}})
    assert "hunter2" not in str(error.value)
