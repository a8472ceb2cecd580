"""Does a store keep what commits rely on? `prove` asks the essential, `examine` everything. [ST12]

Not here: the questions themselves, and where their probes lie (checks).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ..errors import UnsafeStoreError
from .base import Store
from .checks import CHECKS, ESSENTIAL, KIB, Result, Site, answer, seen

_CREATORS = 32
_SAMPLES = 10


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check saw. result: "unclear" where the store gave no answer; a "remark" takes nothing from the verdict."""

    check: str
    result: Result
    detail: str


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long one small request takes from here."""

    call: str
    median_ms: float
    worst_ms: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `examine` found. store: what the verdict is about; verdict: "unsafe" if any check failed, "unknown" if any was unclear."""

    url: str
    store: str
    verdict: Literal["safe", "unsafe", "unknown"]
    findings: tuple[Finding, ...]
    latencies: tuple[Latency, ...]


def prove(store: Store) -> None:
    """UnsafeStoreError unless the store's create lets exactly one of many racing creators win, and keeps its bytes. [ST12]

    85 calls where every answer is clear: 71 creates, 4 gets, 4 lists, and 6 deletes, which are one request on S3. StoreError where it
    could not be found out.
    """
    site = Site(store, creators=_CREATORS, rounds=2)
    failed = ""
    try:
        for _, check in ESSENTIAL:
            result, detail = seen(check, site)
            if result == "failed":
                failed = detail
                break
    finally:
        cleaned = site.clean()
    if failed:
        left = "which were removed" if cleaned else f"of which some may be left below {site.folder}/ and may be deleted"
        raise UnsafeStoreError(
            f"{store.identity or store.url} is not safe for commits: {failed}. Nothing was written but probes, {left}. Use another store, "
            f"or a bucket without versioning if this is Ceph; `manifestcommit doctor {store.url}` tells more."
        )


def examine(store: Store, *, creators: int = _CREATORS, rounds: int = 10, progress: Callable[[str], None] | None = None) -> Report:
    """Everything that commits rely on, tried out; never raises for what it was asked to find out. Some 700 requests, 85 MB. [ST12]

    progress: called with the name of each check before it is made. Raises StoreError if the store can not be reached, and
    StoreDeniedError where nothing may be written: then nothing can be said.
    """
    site = Site(store, creators=creators, rounds=rounds)
    findings = []
    try:
        store.put(site.name("reached"), b"")
        for name, check in CHECKS:
            if progress is not None:
                progress(name)
            result, detail = answer(check, site)
            findings.append(Finding(check=name, result=result, detail=detail))
        latencies = _latencies(site)
    finally:
        site.clean()
    results = {finding.result for finding in findings}
    return Report(
        url=store.url,
        store=store.identity or store.url,
        verdict="unsafe" if "failed" in results else "unknown" if "unclear" in results else "safe",
        findings=tuple(findings),
        latencies=latencies,
    )


def _latencies(site: Site) -> tuple[Latency, ...]:
    """Small requests, one after another. None at all where the store fails: whether it is safe was found out before."""
    calls: Iterable[tuple[str, Callable[[str], object]]] = (
        ("put_if_absent", lambda name: site.store.put_if_absent(name, b"x" * KIB)),
        ("get", site.store.get),
        ("list", lambda name: list(site.store.list(name))),
    )
    names = [site.name(f"timed/{number}") for number in range(_SAMPLES)]
    try:
        return tuple(_timed(kind, call, names) for kind, call in calls)
    except Exception:  # as in `checks.answer`
        return ()


def _timed(kind: str, call: Callable[[str], object], names: Sequence[str]) -> Latency:
    taken_ms = []
    for name in names:
        began = time.perf_counter()
        call(name)
        taken_ms.append((time.perf_counter() - began) * 1000)
    return Latency(call=kind, median_ms=round(statistics.median(taken_ms), 2), worst_ms=round(max(taken_ms), 2))
