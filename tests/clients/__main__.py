"""Has other engines' clients read exports of tables of every kind, compares row by row, and records who reads what.

python -m tests.clients                     all clients, on disk and on S3; writes docs/reference/clients.md
python -m tests.clients dev chdb            the clients of these environments, which records nothing
python -m tests.clients --page              only rewrite the page's tables

Exit codes: 0 all as known, 1 a client got something wrong that is not in tests/clients/faults.py, or no longer what is, 2 usage.
"""

import argparse
import datetime as dt
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.clients import results
from tests.clients.environments import DEV, REQUIREMENTS, clients_in, python_of, version_of
from tests.clients.faults import objections
from tests.clients.readers import S3
from tests.clients.run import REFUSED, SAME, make, read_all
from tests.servers import servers

ENVIRONMENTS = tuple(each for each in (DEV, *REQUIREMENTS) if clients_in(each))  # others are for integrations


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.clients", description="other engines' clients read exports of tables of every kind")
    parser.add_argument("names", nargs="*", metavar="ENVIRONMENT", help=f"which: {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--page", action="store_true", help="only rewrite the tables of the page")
    given = parser.parse_args()
    if given.page:
        results.PAGE.write_text(results.replaced(results.PAGE.read_text("utf-8"), results.recorded()), "utf-8")
        return 0
    if unknown := set(given.names) - set(ENVIRONMENTS):
        parser.error(f"no environment {', '.join(sorted(unknown))}; there are {', '.join(ENVIRONMENTS)}")
    chosen = given.names or ENVIRONMENTS
    made = results.Results(date=dt.date.today().isoformat(), versions={}, verdicts={})
    for environment in chosen:
        python = python_of(environment)
        made["versions"] |= {client: version_of(python, client) for client in clients_in(environment)}
    wrong = []
    for place in results.PLACES:
        made["verdicts"][place] = _read(place, chosen)
        wrong += objections(place, made["verdicts"][place], frozenset({SAME, REFUSED}))
    for each in wrong:
        print(f"UNEXPECTED: {each}", flush=True)
    if not wrong and not given.names:
        results.record(made)
    print(f"--- {sum(len(kinds) for clients in made['verdicts'].values() for kinds in clients.values())} reads, {len(wrong)} unexpected")
    return bool(wrong)


def _read(place: str, environments: tuple[str, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="manifestcommit-clients-") as folder, _store(place, Path(folder)) as (url, s3):
        tables = make(url, large=s3 is None)
        for environment in environments:
            place_of = Path(folder, f"read-{environment}")
            place_of.mkdir()
            found |= read_all(tables, environment, place_of, s3)
            for client in clients_in(environment):
                said = list(found[client].values())
                print(f"{client} on {place}: {said.count(SAME)} of {len(said) - said.count(REFUSED)} tables", flush=True)
    return found


@contextmanager
def _store(place: str, folder: Path) -> Iterator[tuple[str, S3 | None]]:
    """A folder of the disk, or of a bucket of a server that runs meanwhile."""
    if place == "disk":
        yield str(folder / "tables"), None
        return
    started = folder / "rgw"
    started.mkdir()
    try:
        server = servers.developers_rgw() or servers.start_rgw(started, for_pid=os.getpid())
        os.environ.update(server.environment)  # tables are made by calls without options
        yield f"s3://{server.bucket()}/lake", S3(endpoint=server.endpoint, key=server.key, secret=server.secret)
    finally:
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            os.environ.pop(name, None)
        servers.stop_rgw(started)


if __name__ == "__main__":
    sys.exit(main())
