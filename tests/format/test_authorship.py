"""Messages, metadata and authors: what can be recorded, and what must not. [OB15] [SE5]"""

from typing import Any

import msgspec
import pytest

from manifestcommit.format import snapshot

AUTHOR = snapshot.Author(user="etl", host="worker-3", program="load.py", software="manifestcommit 0.1.0")
HARMLESS = ["", "a=b %+#", "ünïcode 'x\" <b>", "s3://lake/day=1/a.parquet", "https://ci/run?id=7", "4d6b4d9", "a" * snapshot.MAX_VALUE]
SECRETS = [
    "AKIA" + "A1" * 8, "-----BEGIN RSA PRIVATE " + "KEY-----", "postgres://me:hunter2@db/x", "https://b.blob/x?sv=1&sig=abc%3D",
    "https://b.s3/x?X-Amz-Signature=0f", "password=hunter2", "Account_Key: 0000", "Authorization: Bearer " + "abcdefgh" * 3,
    "eyJhbGciOiJI.eyJzdWIiOiIx.sig", "ghp_" + "a1" * 18,
]  # fmt: skip


def test_what_can_be_recorded_is_taken_as_it_is() -> None:
    """[OB15]"""
    metadata = {f"name {number}": text[:200] for number, text in enumerate(HARMLESS)}
    assert snapshot.check_metadata(metadata) == metadata and snapshot.check_metadata({}) == {}
    assert snapshot.check_message("two\n\tlines é") == "two\n\tlines é" and snapshot.check_message("a" * snapshot.MAX_MESSAGE)
    assert len(snapshot.check_metadata({str(number): "" for number in range(snapshot.MAX_ENTRIES)})) == snapshot.MAX_ENTRIES
    assert snapshot.check_metadata({"a" * snapshot.MAX_NAME: "a" * snapshot.MAX_VALUE})


@pytest.mark.parametrize(
    "message", [None, 5, b"x", "", " \n", "a\0", "a\x1b[2J", "a\r", "\ud800", "a" * (snapshot.MAX_MESSAGE + 1)], ids=repr
)
def test_a_message_that_cannot_be_recorded_is_refused(message: Any) -> None:
    """[OB15]"""
    with pytest.raises(ValueError, match="expected a text"):
        snapshot.check_message(message)


@pytest.mark.parametrize(
    "metadata",
    [
        None, "a=b", [("a", "b")], {1: "b"}, {"": "b"}, {"a": 1}, {"a": None}, {"a": "b\n"}, {"a\x1b": "b"}, {"a": "\ud800"},
        {"\udfff": "b"}, {"a" * (snapshot.MAX_NAME + 1): "b"}, {"a": "b" * (snapshot.MAX_VALUE + 1)},
        {str(number): "" for number in range(snapshot.MAX_ENTRIES + 1)},
        {str(number): "é" * snapshot.MAX_VALUE for number in range(snapshot.MAX_BYTES // (2 * snapshot.MAX_VALUE) + 1)},
    ],
    ids=lambda metadata: repr(metadata)[:20],
)  # fmt: skip
def test_metadata_that_cannot_be_recorded_are_refused(metadata: Any) -> None:
    """Sizes, numbers, control characters and surrogates are bounded: every intent and head carries them. [OB15]"""
    with pytest.raises(ValueError, match="expected"):
        snapshot.check_metadata(metadata)


@pytest.mark.parametrize("secret", SECRETS)
def test_a_credential_is_found_and_not_repeated(secret: str) -> None:
    """In a message, a value and a name. [SE5] [SE1]"""
    for note in (snapshot.Note(message=f"x {secret}"), snapshot.Note(metadata={"note": secret}), snapshot.Note(metadata={secret: "note"})):
        found = snapshot.find_credential(note)
        assert found is not None and secret not in found and secret[-8:] not in found


@pytest.mark.parametrize("name", ["password", "AWS_SECRET_ACCESS_KEY", "accessToken", "api-key", "db.passwd", "connection string"])
def test_the_name_of_a_credential_is_found(name: str) -> None:
    """Whatever its value looks like. [SE5]"""
    found = snapshot.find_credential(snapshot.Note(metadata={name: "hunter2"}))
    assert found is not None and name in found and "hunter2" not in found


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_credential_is_none(text: str) -> None:
    """[SE5]"""
    names = ("airflow_run", "git", "keys", "tokens_used", "monkey", "sig")
    assert snapshot.find_credential(snapshot.Note(message=text, metadata=dict.fromkeys(names, text))) is None


def test_a_property_and_an_environment_choose_the_parts_of_an_author() -> None:
    """Nothing that either withholds is recorded; a property that cannot be read allows nothing. [OB15]"""
    assert snapshot.allowed(AUTHOR, {}) == AUTHOR and snapshot.allowed(None, {}) is None
    assert snapshot.allowed(AUTHOR, {"write.author": "host, user"}) == snapshot.Author(user="etl", host="worker-3")
    assert snapshot.allowed(snapshot.limited(AUTHOR, snapshot.parts_of("user")), {"write.author": "host,user"}) == snapshot.Author(
        user="etl"
    )
    for nothing in ("none", "", "user;host", "names", "none,user"):
        assert snapshot.allowed(AUTHOR, {"write.author": nothing}) is None
    assert (
        snapshot.limited(AUTHOR, snapshot.parts_of("none")) == snapshot.Author()
        and snapshot.limited(AUTHOR, frozenset(snapshot.PARTS)) == AUTHOR
    )
    assert snapshot.allowed(snapshot.Author(), {}) is None


def test_parts_of_an_author_are_short_and_on_one_line() -> None:
    """A program's name is what a file is called, and may be anything. [OB15]"""
    hostile = snapshot.Author(user="a\n\x1b[31m", host="h" * 10_000, program="\udcff.py", software=" ")
    made = snapshot.limited(hostile, frozenset(snapshot.PARTS))
    assert msgspec.convert(msgspec.to_builtins(made), snapshot.Author) == made
    assert made.user == "a\\n\\x1b[31m" and made.program == "\\udcff.py" and len(made.host or "") == 200
    for wrong in ({"host": "h" * 201}, {"user": "a\n"}, {"program": "a\x9b"}):
        with pytest.raises(msgspec.ValidationError, match=min(wrong)):
            msgspec.convert(wrong, snapshot.Author)
