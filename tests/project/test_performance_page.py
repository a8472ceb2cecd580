"""The page of claims says what the results give, whatever anyone would like it to say."""

import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmarks import page
from benchmarks.claims import Claim, Line, Plot, Result, judge, panels, read_claims, read_results
from benchmarks.measure import RESULTS
from benchmarks.plot import MOST_BYTES, digest

PROMISED = {
    "head", "commit", "many-files", "plan", "contention", "write", "read-back", "read", "read-s3", "gc", "verify-deep", "long-life",
    "stream", "tpch", "exports", "row-changes", "joint", "lake",
    "loads", "small-requests", "append-s3",
}  # fmt: skip
MACHINE = {"cores": 2, "memory_gb": 24, "load_15m": 1.5, "kernel": "6", "commit": "0" * 40}


def result(*, at: str = "2026-11-22T10:00:00+00:00", command: str = "", case: dict[str, Any] | None = None, **seconds: float) -> Result:
    medians = {name: {"wall_s": value} for name, value in seconds.items()}
    rounds = {name: [{"wall_s": value}] for name, value in seconds.items()}
    return Result(benchmark="made_up", at=at, case=case or {"files": 10}, medians=medians, rounds=rounds, machine=MACHINE, command=command)


def line(**members: Any) -> Line:
    return msgspec.convert({"says": "made up", "benchmark": "made_up", "figure": "wall_s", "of": "us", **members}, Line)


def test_the_page_in_the_repository_is_what_the_results_give() -> None:
    assert list(page.stale(read_claims(), read_results(RESULTS))) == []


def test_no_picture_is_large_or_without_a_claim() -> None:
    pictures = list(page.PICTURES.iterdir())
    assert pictures
    assert {path.name: path.stat().st_size for path in pictures if path.stat().st_size > MOST_BYTES} == {}


def test_every_claim_stands_on_the_page_also_where_nothing_was_measured() -> None:
    claims = read_claims()
    assert {claim.id for claim in claims} == PROMISED
    text = page.render(claims, [])
    for claim in claims:
        part = text.partition(f"\n## {claim.id}\n")[2].partition("\n## ")[0]
        assert claim.line and all(f"| {each.says} |" in part for each in claim.line)
        assert part.count("| not measured |") == len(claim.line)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        ({"against": "peer", "most": 1.5}, "met"), ({"against": "peer", "most": 1.25}, "**falls short by 20%**"),
        ({"against": "peer", "most": 1.25, "enough": 3}, "met"), ({"against": "peer", "least": 1.5}, "met"),
        ({"against": "peer", "least": 3}, "**falls short by 50%**"), ({"against": "peer", "by": "difference", "most": 1}, "met"),
        ({"against": "peer", "by": "difference", "most": 0.8}, "**falls short by 25%**"),
        ({"most": 2.999}, "**falls short by less than 1%**"), ({"most": 3}, "met"), ({"against": "nobody", "most": 9}, "not measured"),
        ({"case": {"files": 11}, "most": 9}, "not measured"), ({"case": {"store": ""}, "most": 9}, "met"),
        ({"figure": "cpu_s", "most": 9}, "not measured"), ({"of": "somebody", "most": 9}, "not measured"),
    ],
)  # fmt: skip
def test_a_verdict_is_what_the_figures_give(bound: dict[str, Any], said: str) -> None:
    assert page.verdict(judge(line(**bound), [result(us=3.0, peer=2.0)])) == said


@pytest.mark.parametrize(("figure", "load", "said"), [("wall_s", 4.5, " (load 4.5)"), ("wall_s", 4.0, ""), ("cpu_s", 9.0, "")])
def test_a_time_that_was_taken_on_a_busy_machine_says_so(figure: str, load: float, said: str) -> None:
    found = Result(
        benchmark="made_up", at="2026-11-22T10:00:00+00:00", case={}, medians={"us": {figure: 3.0}}, rounds={"us": [{figure: 3.0}]},
        machine={**MACHINE, "load_15m": load}, command="",
    )  # fmt: skip
    one = line(figure=figure, most=3)
    assert page._busy(one, judge(one, [found])) == said


def test_an_old_result_or_a_first_look_does_not_stand_for_the_newest(tmp_path: Path) -> None:
    runs = [
        result(at="2026-11-22T12:00:00+00:00", case={"files": 10, "versions": "peer 2"}, us=5.0),
        result(at="2026-11-22T11:00:00+00:00", case={"files": 10, "versions": "peer 1"}, us=1.0),
        result(at="2026-11-22T13:00:00+00:00", command="python -m benchmarks.made_up --quick", us=2.0),
    ]
    (tmp_path / "made_up.jsonl").write_bytes(b"".join(msgspec.json.encode(run) + b"\n" for run in runs))
    found = read_results(tmp_path)
    assert [each.medians["us"]["wall_s"] for each in found] == [5.0]


def test_a_picture_of_other_figures_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim(id="made-up", says="It is fast.", line=(line(most=1),), plot=Plot(benchmark="made_up", y=("wall_s",)))
    before, after = [result(us=1.0)], [result(us=2.0)]
    monkeypatch.setattr(page, "REPO", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "pictures")
    page.PICTURES.mkdir()
    assert claim.plot is not None
    (page.PICTURES / "made-up.png").write_bytes(png(digest(panels(claim.plot, before))))
    for results, expected in ((before, []), (after, ["pictures/made-up.png"])):
        page.PAGE.write_text(page.render([claim], results), "utf-8")
        assert [told.partition(" ")[0] for told in page.stale([claim], results)] == expected
    (page.PICTURES / "made-up.png").rename(page.PICTURES / "gone.png")
    assert [told.partition(" ")[0] for told in page.stale([claim], before)] == [
        "performance.md", "pictures/made-up.png", "pictures/gone.png",
    ]  # fmt: skip


def png(figures: str) -> bytes:
    """A picture with nothing but the text chunk."""
    body = b"tEXt" + f"Figures\0{figures}".encode()
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
