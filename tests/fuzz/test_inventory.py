"""No object is read from a store without a target of the fuzzer. [OB4] [SE2]"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from types import FrameType
from typing import Any

import pytest
from tests.fuzz import exports, folders, inventory, parquet, run, targets
from tests.fuzz.inventory import NOT_READ, PACKAGE, READ_BY
from tests.fuzz.targets import without_waiting

import manifestcommit as mc


@pytest.mark.thorough
def test_whatever_lets_bytes_of_others_in_has_a_target() -> None:
    """[OB4] A decoder that is new needs a line in the inventory, and a target."""
    found = inventory.places()
    assert found - READ_BY.keys() - NOT_READ == set(), "without a target"
    assert (READ_BY.keys() | NOT_READ) - found == set(), "gone"
    assert {target for _, target in READ_BY.values()} | {"bytes"} == set(run.EVERY)


def sound(target: str) -> Mapping[str, Callable[[], Any]]:
    """The readers of a target, over objects of its kind that are as they should be."""
    if target == "parquet":
        place = parquet._place()
        place.restore()
        return place.readers(parquet._files()[0])
    if target == "export":
        exported = exports.exported()
        exported.restore()
        return exports.readers(exported)
    if target in folders.HOSTILE_FOLDERS:
        folder = folders.folder()
        folder.restore()
        folder.put_log({"0": folder.batch(folder.log)})
        return folders.readers(folder, target)
    table = run._table()
    table.restore()
    kinds = targets._NARROW.get(target)
    return {name: reader for name, reader in targets.readers(table).items() if kinds is None or name in kinds}


@cache
def called(target: str) -> frozenset[str]:
    """The functions of the package that a target's readers call, as the inventory spells them."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            found.add(f"{frame.f_code.co_filename.removeprefix(f'{PACKAGE}/')}:{frame.f_code.co_qualname}")

    readers = sound(target)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        with without_waiting(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for reader in readers.values():
                with contextlib.suppress(mc.errors.ManifestCommitError, AssertionError):
                    reader()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return frozenset(found)


@pytest.mark.thorough
@pytest.mark.parametrize("place", sorted(READ_BY))
def test_the_readers_of_a_target_call_what_it_is_to_break(place: str) -> None:
    """[OB4] The inventory says what is so."""
    assert place in called(READ_BY[place][1])
