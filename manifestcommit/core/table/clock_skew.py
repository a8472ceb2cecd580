"""Detects clocks that are far apart. Correctness does not depend on clocks, but then times do not
say when a version was committed. [CM14] [CM27]

Pure.
"""

from __future__ import annotations

import msgspec

from manifestcommit.core.table.snapshot import DisputedTime, Snapshot

# the difference from their own clock that S3 and Azure accept in a request
FAR_US = 15 * 60 * 1_000_000
_KEPT = 16


def is_far(mine_us: int, other_us: int) -> bool:
    """Whether two clocks are so far apart that one of them must be wrong. [CM27]"""
    return abs(mine_us - other_us) > FAR_US


def disputed(head: Snapshot, now_us: int) -> tuple[DisputedTime, ...]:
    """The disputed times of the version after `head`, committed at this time by its writer's clock.
    [CM27]"""
    known = tuple(dispute for dispute in head.disputed_times if dispute.last >= head.expired)
    if head.committed_at <= now_us or not is_far(now_us, head.committed_at):
        return known
    version = head.version + 1
    if known and known[-1].last == head.version and known[-1].said == head.committed_at:
        last = msgspec.structs.replace(known[-1], last=version, clock=max(known[-1].clock, now_us))
        return (*known[:-1], last)
    return (
        *known,
        DisputedTime(first=head.version, last=version, said=head.committed_at, clock=now_us),
    )[-_KEPT:]
