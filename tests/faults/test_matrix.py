"""Every way in which the create of a version on a real S3 server can go wrong, and a busy store at each other step of a commit:
what the caller is told. [CM3]-[CM6] [IV4]

The table that these runs make is `spec/faults.md`: it is compared here, and written anew with MC_REWRITE=1.
"""

import json
import math
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kit.proxy import Fault, FaultProxy, Request, to
from tests.kit.sizes import rest_thorough, some
from tests.kit.tables import check_table, read_ids, rows, session, write

import manifestcommit as mc
from manifestcommit.operations.alter import set_properties
from manifestcommit.runtime.environment import Limits
from manifestcommit.store import Store, object_store, open_store

PAGE = Path(__file__).resolve().parents[2] / "spec" / "faults.md"
KEY = "the same on every rerun"
OLD, MINE, RIVAL = [0, 1, 2, 3, 4], [5, 6, 7], 99
NEW = [*OLD, *MINE]
CREATE = to("PUT", "/_manifest/versions/")
MOST_CREATES = Limits().unclear_tries

FAULTS: dict[str, Fault] = {
    "request lost, no answer": Fault(kind="request_dropped"),
    "connection reset before the request": Fault(kind="request_reset"),
    "request lands after the client gave up": Fault(kind="lands_late", delay_s=math.inf),
    "carried out, no answer": Fault(kind="answer_dropped"),
    "carried out, connection closed": Fault(kind="answer_closed"),
    "carried out, answer cut off": Fault(kind="answer_cut", cut="head"),
    "carried out, answer after the timeout": Fault(kind="answer_delayed", delay_s=3),
    "carried out, answered 500": Fault(kind="status_after", status=500),
    "carried out, answered 503": Fault(kind="status_after", status=503),
    "carried out, answered 409": Fault(kind="status_after", status=409),
    "carried out twice": Fault(kind="doubled"),
    "refused with 500": Fault(kind="status_before", status=500),
    "refused with 503 SlowDown": Fault(kind="status_before", status=503),
    "refused with 429": Fault(kind="status_before", status=429),
    "refused with 409": Fault(kind="status_before", status=409),
    "refused with 403": Fault(kind="status_before", status=403),
}
# What can become of a request, each once: `make test` leaves out what only comes to the same.
ONE_OF_EACH = ("request lost, no answer", "request lands after the client gave up", "carried out, no answer", "carried out, answer cut off")
ONE_OF_EACH += ("carried out, answered 500", "carried out twice", "refused with 409", "refused with 403")
WITH_A_RIVAL = some([name for name in FAULTS if name not in ("refused with 403", "carried out twice")], 5)
KEPT_BACK = ("request_dropped", "lands_late", "answer_dropped", "answer_delayed")
STEPS: dict[str, Callable[[Request], bool]] = {
    "reading the head (GET)": lambda each: each.method == "GET" and "/_manifest/versions/" in each.name,
    "writing a data file (PUT)": lambda each: each.method == "PUT" and each.name.endswith(".parquet"),
    "creating the version (PUT)": CREATE,
    "looking above it (LIST)": lambda each: each.method == "GET" and "list-type" in each.query,
    "putting the hint (PUT)": to("PUT", "/_manifest/hint"),
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to."""

    outcome: str
    resolved: str = ""
    later: str = ""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tries as ever, and no time between them."""
    for name in ("USUAL", "FIRST_CONTACT"):
        patience = msgspec.structs.replace(getattr(object_store, name), first_pause_s=0.001)
        monkeypatch.setattr(f"manifestcommit.store.object_store.{name}", patience)


class Run:
    """A table of five rows, one job that adds three through a proxy, and somebody else."""

    def __init__(self, rgw: Any, bucket: str, proxy: FaultProxy, patience_s: float) -> None:
        self.url = f"s3://{bucket}/{secrets.token_hex(6)}"
        self.options = rgw.storage_options
        self.proxy = proxy
        self.direct = open_store(self.url, self.options)
        self.faulty = open_store(self.url, {**self.options, "endpoint_url": proxy.url, "config_kwargs": {"read_timeout": patience_s}})
        write(self.direct, rows(OLD), key="before")
        set_properties(session(self.faulty), {"proved": "through the proxy, too"})
        proxy.reset()

    def rival(self) -> None:
        """Somebody else's append."""
        write(self.direct, rows([RIVAL]), key="rival")

    def job(self, store: Store, **options: Any) -> mc.Outcome:
        return write(store, rows(MINE), key=KEY, **options)

    def told(self, **options: Any) -> Told:
        """What the caller learns, then what another process learns by `resolve`, and again when nothing is on its way any more."""
        try:
            outcome = self.job(self.faulty, **options)
        except mc.errors.OutcomeUnknownError as error:
            job = error.job_id
            self.proxy.faults = []
            resolved = self.resolve(job)
            self.proxy.settle(now=True)
            return Told(
                outcome="OutcomeUnknownError", resolved=resolved, later=str(mc.Table(self.url, storage_options=self.options).resolve(job))
            )
        except mc.errors.ManifestCommitError as error:
            self.proxy.settle(now=True)
            return Told(outcome=type(error).__name__)
        finally:
            self.proxy.faults = []
        self.proxy.settle(now=True)
        return Told(outcome=outcome.kind.replace("_", " "))

    def resolve(self, job: str) -> str:
        """`manifestcommit resolve`, in a process of its own."""
        environment = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": self.options["key"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret"],
            "AWS_ENDPOINT_URL": self.options["endpoint_url"],
        }
        command = [sys.executable, "-m", "manifestcommit", "resolve", self.url, job, "--json"]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        assert answer.returncode in (0, 1), answer.stderr
        return str(json.loads(answer.stdout)["status"])

    def check(self, told: Told, old: list[int], new: list[int], rerun: list[int] | None = None, **options: Any) -> None:
        """What was told is so; a rerun with the same key converges, to `rerun` if not to `new`; every row is there once."""
        found = read_ids(self.direct)
        landed = told.outcome == "committed" or told.later == "committed"
        assert found == sorted(new if landed else old)
        assert not [each for each in self.proxy.requests if each.method in ("DELETE", "POST")], "nothing is deleted"
        again = self.job(self.direct, **options)
        assert again.committed and again.already_committed == landed
        assert read_ids(self.direct) == sorted(new if landed or rerun is None else rerun)
        check_table(self.direct)
        creates = [each for each in self.proxy.requests if CREATE(each)]
        assert len(creates) <= MOST_CREATES and len(self.proxy.requests) <= MOST_CREATES + 40


@pytest.fixture(scope="session")
def bucket(rgw: Any) -> str:
    return str(rgw.bucket())


@pytest.fixture
def run(request: pytest.FixtureRequest, rgw: Any, bucket: str, proxy: FaultProxy, hasty: None) -> Run:
    """Clients give up soon only where an answer is kept back, not wherever a loaded machine is slow."""
    fault = FAULTS.get(request.node.callspec.params.get("name", ""))
    return Run(rgw, bucket, proxy, patience_s=1 if fault is not None and fault.kind in KEPT_BACK else 60)


def once(match: Callable[[Request], bool], fault: Fault, then: Callable[[], None] | None = None) -> Callable[[Request], Fault | None]:
    """The fault for the first request that matches; before the second one, `then` happens."""
    seen: list[int] = []

    def faults(request: Request) -> Fault | None:
        if not match(request):
            return None
        seen.append(request.number)
        if len(seen) == 2 and then is not None:
            then()
        return fault if len(seen) == 1 else None

    return faults


def always(match: Callable[[Request], bool], fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if match(request) else None


EXPECTED_ONCE = {name: "StoreDeniedError" if name == "refused with 403" else "committed" for name in FAULTS}
LANDS_FIRST = {"carried out twice", *(name for name, fault in FAULTS.items() if fault.kind.startswith(("answer_", "status_after")))}


@pytest.mark.parametrize("name", rest_thorough(FAULTS, *ONE_OF_EACH))
def test_one_fault_at_the_create(run: Run, name: str) -> None:
    """[CM6] [IV4] [ST5]"""
    run.proxy.faults = once(CREATE, FAULTS[name])
    told = run.told()
    assert told == Told(outcome=EXPECTED_ONCE[name])
    run.check(told, OLD, NEW)


@pytest.mark.parametrize("name", rest_thorough(WITH_A_RIVAL, "request lost, no answer"))
def test_one_fault_at_the_create_and_a_rival_takes_the_name(run: Run, name: str) -> None:
    """An append is committed above the rival, or it had been committed below. [CM4] [CM6]"""
    run.proxy.faults = once(CREATE, FAULTS[name], run.rival)
    told = run.told()
    assert told == Told(outcome="committed")
    run.check(told, [*OLD, RIVAL], [*NEW, RIVAL])


@pytest.mark.parametrize("name", rest_thorough(some(FAULTS, 6), "request lost, no answer"))
def test_a_fault_at_every_create(run: Run, name: str) -> None:
    """It ends: with the truth, or by saying that it is not known; and then `resolve` tells it. [CM6] [CM8] [CM23]"""
    run.proxy.faults = always(CREATE, FAULTS[name])
    told = run.told()
    assert told == EXPECTED_ALWAYS[name]
    run.check(told, OLD, NEW)


UNKNOWN_COMMITTED = Told(outcome="OutcomeUnknownError", resolved="committed", later="committed")
UNKNOWN_NOT = Told(outcome="OutcomeUnknownError", resolved="not_committed", later="not_committed")
EXPECTED_ALWAYS = {name: UNKNOWN_COMMITTED if name in LANDS_FIRST else UNKNOWN_NOT for name in FAULTS} | {
    "carried out twice": Told(outcome="committed"),
    "refused with 403": Told(outcome="StoreDeniedError"),
    "request lands after the client gave up": Told(outcome="OutcomeUnknownError", resolved="not_committed", later="committed"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("lasts", rest_thorough([False, True], False), ids=["once", "always"])
def test_a_fault_at_each_step(run: Run, step: str, lasts: bool) -> None:
    """A store that answers nothing at one kind of request, for a moment or for good. [ST14] [CM5] [CM7]"""
    match = STEPS[step]
    if "LIST" in step:  # opening lists, too
        match = lambda each: STEPS[step](each) and any(CREATE(other) for other in run.proxy.requests)  # noqa: E731
    if "GET" in step:  # a version that this client does not know yet
        set_properties(session(run.direct), {"moved": "on"})
    run.proxy.faults = (always if lasts else once)(match, FAULTS["refused with 503 SlowDown"])
    told = run.told()
    assert any(each.fault is not None for each in run.proxy.requests), "the fault was there"
    assert told == (EXPECTED_STEPS[step] if lasts else Told(outcome="committed"))
    run.check(told, OLD, NEW)


EXPECTED_STEPS = {
    "reading the head (GET)": Told(outcome="StoreError"),
    "writing a data file (PUT)": Told(outcome="StoreError"),
    "creating the version (PUT)": UNKNOWN_NOT,
    "looking above it (LIST)": UNKNOWN_COMMITTED,
    "putting the hint (PUT)": Told(outcome="committed"),
}


# --- the page ---------------------------------------------------------------------------------------------------------------
def shown(told: Told) -> str:
    if told.outcome != "OutcomeUnknownError":
        return "committed" if told.outcome == "committed" else f"`{told.outcome}`, nothing committed"
    later = "" if told.later == told.resolved else f"; once the request has landed `{told.later}`"
    return f"`OutcomeUnknownError`; `resolve`: `{told.resolved}`{later}"


def page() -> str:
    """The table as users read it, from what the tests above assert of real runs."""
    lines = [
        "# What a commit tells when requests go wrong",
        "",
        "Made by `tests/faults/test_matrix.py`, which runs every cell through a proxy before a real S3 server and compares this page; "
        "`MC_REWRITE=1` writes it anew.",
        "In every cell: no commit is applied twice, nothing is deleted, what the caller is told is so, and a rerun with the same key "
        f"leaves each row there once. A create is sent at most {MOST_CREATES} times.",
        "",
        "## At the create of the version",
        "",
        "| fault | once | once, and another append wins the version | the same for an overwrite of the table | at every create |",
        "|---|---|---|---|---|",
    ]
    for name in FAULTS:
        alone = shown(Told(outcome=EXPECTED_ONCE[name]))
        if name in ("refused with 403", "carried out twice"):
            rival = overwrite = "–"
        else:
            rival = "committed, in either order"
            overwrite = "committed before it" if name in LANDS_FIRST else "`CommitConflictError`"
        lines.append(f"| {name} | {alone} | {rival} | {overwrite} | {shown(EXPECTED_ALWAYS[name])} |")
    lines += ["", "## At other steps: the store refuses with 503", "", "| step | once | for good |", "|---|---|---|"]
    lines += [f"| {step} | committed | {shown(EXPECTED_STEPS[step])} |" for step in STEPS]
    return "\n".join(lines) + "\n"


def test_the_page_is_what_the_tests_assert() -> None:
    """[CM6]"""
    if os.environ.get("MC_REWRITE"):
        PAGE.write_text(page(), "utf-8")
    assert PAGE.read_text("utf-8") == page()
