"""Why each server is here: what it does with a second create of the same name. If one of these changes, tests elsewhere mean less."""

import pytest
from botocore.exceptions import ClientError
from tests.servers.servers import S3Server

NAME = "a b%20+=#'\"é/_manifest"


def create(server: S3Server, bucket: str, body: bytes) -> int:
    """One PUT with If-None-Match: *. The status of its answer."""
    try:
        answer = server.call("put_object", Bucket=bucket, Key=NAME, Body=body, IfNoneMatch="*")
    except ClientError as error:
        answer = error.response
    status: int = answer["ResponseMetadata"]["HTTPStatusCode"]
    return status


def content(server: S3Server, bucket: str) -> bytes:
    body: bytes = server.call("get_object", Bucket=bucket, Key=NAME)["Body"]
    return body


def test_rgw_ignores_the_condition_in_a_versioned_bucket(rgw: S3Server) -> None:
    bucket = rgw.bucket(versioned=True)
    assert [create(rgw, bucket, b"first"), create(rgw, bucket, b"second")] == [200, 200]
    assert content(rgw, bucket) == b"second"


def test_rgw_bucket_made_read_only(rgw: S3Server) -> None:
    bucket = rgw.bucket()
    assert create(rgw, bucket, b"first") == 200
    rgw.make_read_only(bucket)
    assert create(rgw, bucket, b"second") == 403
    with pytest.raises(ClientError, match="AccessDenied"):
        rgw.call("delete_object", Bucket=bucket, Key=NAME)
    assert content(rgw, bucket) == b"first"
    assert [found["Key"] for found in rgw.call("list_objects_v2", Bucket=bucket)["Contents"]] == [NAME]


@pytest.mark.thorough
@pytest.mark.parametrize("liar", ["rclone", "s3rver"])
def test_liars_overwrite(liar: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(liar)
    bucket = server.bucket()
    assert [create(server, bucket, b"first"), create(server, bucket, b"second")] == [200, 200]
    assert content(server, bucket) == b"second"
