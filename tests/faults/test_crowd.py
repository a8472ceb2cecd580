"""Fifty writers of one table: helping turns contention around, where only requests take time. Counts, no times. [CM20] [IV9]"""

from functools import cache

import pytest
from tests.faults.crowd import Found, crowd
from tests.kit.sizes import rounds

from manifestcommit.commits.commit_loop import Committers


@cache
def found(writers: int) -> Found:
    """The same on every machine: time is a count of requests here."""
    return crowd(writers=writers, seconds=rounds(2, 4))


@pytest.mark.thorough
@pytest.mark.parametrize(("writers", "times"), [(4, 1.3), (16, 4.0), (50, 10.0)])
def test_more_writers_commit_more_together(writers: int, times: float) -> None:
    """Each of them alone would be slower for the others; a naive loop commits less the more there are. [CM19] [CM20]"""
    assert found(writers).commits_per_s > times * found(1).commits_per_s


@pytest.mark.thorough
def test_nobody_starves() -> None:
    """[CM20] [IV9]"""
    for writers in (4, 16, 50):
        assert found(writers).slowest_share > 0.3
        assert max(found(writers).attempts) < 10


@pytest.mark.thorough
def test_a_lone_writer_pays_nothing_and_fifty_do_not_read_each_other_all_the_time() -> None:
    """Opening three, a commit three; were each to read what all others ask for, requests would grow with the square. [CM11] [CM20]"""
    assert found(1).requests_per_commit == 6
    assert found(16).requests_per_commit < 15
    assert found(50).requests_per_commit < 15
    assert sum(found(50).attempts) / len(found(50).attempts) < 1, "one create carries many"


@pytest.mark.thorough
def test_the_world_itself_is_fair_and_adds_up() -> None:
    """Without helping there is what everyone else has: the figures above are not of this world's making."""
    alone = crowd(writers=16, seconds=rounds(2, 4), options={"committers": Committers.THIS_PROCESS})
    assert alone.versions == len(alone.attempts), "nobody is carried"
    assert alone.commits_per_s < found(16).commits_per_s / 1.5
    assert sum(alone.attempts) / len(alone.attempts) > 2 * sum(found(16).attempts) / len(found(16).attempts)
