"""Tests whether a store keeps what commits rely on: `prove` checks the essentials, `examine`
everything. [ST12]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from ..errors import UnsafeStoreError
from .base import Store
from .probes import CHECKS, ESSENTIAL, KIB, Result, Site, answer, seen

_CREATORS = 32
_SAMPLES = 10


class DoctorCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of a store.

    Attributes:
        check: the name of the check.
        result: "passed", "failed", "unclear" if the store gave no answer, or "remark", which does
            not affect the verdict.
        detail: what the check found.
    """

    check: str
    result: Result
    detail: str


class DoctorLatency(msgspec.Struct, frozen=True, kw_only=True):
    """The latency of one kind of small request from here.

    Attributes:
        call: "put_if_absent", "get" or "list".
        median_ms: the median of ten requests, in milliseconds.
        worst_ms: the longest of them, in milliseconds.
    """

    call: str
    median_ms: float
    worst_ms: float


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Table.doctor`.

    Attributes:
        url: the table path.
        store: the store that the verdict is about.
        verdict: "safe", "unsafe" if any check failed, else "unknown" if any was unclear.
        findings: the result of each check.
        latencies: of small requests; empty if the store failed while they were measured.

    Spec: ST12.
    """

    url: str
    store: str
    verdict: Literal["safe", "unsafe", "unknown"]
    findings: tuple[DoctorCheck, ...]
    latencies: tuple[DoctorLatency, ...]


def prove(store: Store) -> None:
    """UnsafeStoreError unless the store's create lets exactly one of many concurrent creators win,
    and keeps its bytes. [ST12]

    85 calls if every response is clear: 71 creates, 4 gets, 4 lists, and 6 deletes, which are one
    request on S3. StoreError if the result is inconclusive.
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
        left = (
            "which were removed"
            if cleaned
            else f"of which some may be left below {site.folder}/ and may be deleted"
        )
        raise UnsafeStoreError(
            f"{store.identity or store.url} is not safe for commits: {failed}. Nothing was written "
            f"but probes, {left}. Use another store, or a bucket without versioning if this is "
            f"Ceph; `manifestcommit doctor {store.url}` shows more."
        )


def examine(
    store: Store,
    *,
    creators: int = _CREATORS,
    rounds: int = 10,
    progress: Callable[[str], None] | None = None,
) -> DoctorReport:
    """Test everything that commits rely on; never raises for what it is meant to find. Some 700
    requests, 85 MB. [ST12]

    progress: called with the name of each check before it runs. Raises StoreError if the store
    cannot be reached, and StoreDeniedError if writing is not allowed: then there is no result.
    """
    site = Site(store, creators=creators, rounds=rounds)
    findings = []
    try:
        store.put(site.name("reached"), b"")
        for name, check in CHECKS:
            if progress is not None:
                progress(name)
            result, detail = answer(check, site)
            findings.append(DoctorCheck(check=name, result=result, detail=detail))
        latencies = _latencies(site)
    finally:
        site.clean()
    results = {finding.result for finding in findings}
    return DoctorReport(
        url=store.url,
        store=store.identity or store.url,
        verdict="unsafe" if "failed" in results else "unknown" if "unclear" in results else "safe",
        findings=tuple(findings),
        latencies=latencies,
    )


def _latencies(site: Site) -> tuple[DoctorLatency, ...]:
    """Small sequential requests. None at all if the store fails: its safety was checked before."""
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


def _timed(kind: str, call: Callable[[str], object], names: Sequence[str]) -> DoctorLatency:
    taken_ms = []
    for name in names:
        began = time.perf_counter()
        call(name)
        taken_ms.append((time.perf_counter() - began) * 1000)
    return DoctorLatency(
        call=kind, median_ms=round(statistics.median(taken_ms), 2), worst_ms=round(max(taken_ms), 2)
    )
