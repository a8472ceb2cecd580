"""What a job declares, and what is stored of its change."""

from typing import Any, get_args

import msgspec
import pytest

from manifestcommit.format.change import Advance, Change, Write, declaration


def test_a_declaration_tells_other_work_and_no_other_files() -> None:
    """[KY1]"""
    one, two = Advance(source="a", start=0, end=5), Advance(source="b", start=None, end="x")
    base: dict[str, Any] = {"mode": "append", "scope": None, "advances": (one, two), "fingerprint": None}
    said = declaration(**base)
    assert declaration(**{**base, "advances": (two, one)}) == said, "the order in which sources were named says nothing"
    others = [
        {"mode": "overwrite"}, {"scope": "dynamic"}, {"scope": [[("1", "a")]]}, {"scope": [[("1", None)]]}, {"scope": [[("1", "None")]]},
        {"advances": (one,)}, {"advances": (Advance(source="a", start=0, end=6), two)}, {"fingerprint": "f"}, {"fingerprint": "None"},
        {"advances": (one, Advance(source="b", start="None", end="x"))},
    ]  # fmt: skip
    told = {said, *(declaration(**{**base, **other}) for other in others)}
    assert len(told) == 1 + len(others)


@pytest.mark.parametrize("kind", [kind for kind in get_args(Change) if kind is not Write])
def test_a_stored_change_is_of_one_kind(kind: type[msgspec.Struct]) -> None:
    """What only other kinds have makes readers refuse it, alone or beside files. [AB3]"""
    own = set(kind.__struct_fields__) - set(Write.__struct_fields__)
    assert own
    stored = {"job": "j", "birth": 1, "operation": "append"}
    assert msgspec.convert(stored, Write) == Write(job="j", birth=1, operation="append")
    for name in own:
        with pytest.raises(msgspec.ValidationError, match=f"unknown field `{name}`"):
            msgspec.convert({**stored, name: None}, Write)


def test_every_kind_says_whose_it_is_and_is_measured() -> None:
    """[OB10]"""
    for kind in get_args(Change):
        assert kind.__struct_fields__[:3] == ("job", "birth", "operation") and kind.__struct_fields__[-1] == "summary"
