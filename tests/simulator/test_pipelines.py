"""What users are promised of `simulate`: their code as it is, judged by their own check, and broken where it is careless. [IV3] [IV4]"""

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from tests.docs.blocks import REPO, run
from tests.simulator.__main__ import main

import manifestcommit as mc
from manifestcommit.errors import UsageError
from manifestcommit.testing import PipelineViolationError, check_history, read_history, simulate

LAKE = "sim://lake/a table %é"
DAY = pa.table({"day": ["a=b/ é", None], "id": [1, 2]})


def ids(url: str = LAKE) -> list[int]:
    return sorted(mc.Table(url).dataset().to_table().column("id").to_pylist())


def test_what_the_page_records_of_runs_finds_a_careless_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page itself is run by tests/docs. [IV2] [IV4]"""
    monkeypatch.chdir(tmp_path)
    page = REPO / "docs" / "how-to" / "test-your-pipeline.md"
    world = run(page, {}, "Check your own runs")
    history = read_history(*Path("history").glob("*.jsonl"))
    assert [(each.process, each.outcome) for each in sorted(history, key=lambda each: each.begin)] == [
        ("first", "committed"), ("rerun", "already"), ("reader", "read"),
    ]  # fmt: skip
    mc.write(pa.table({"day": ["2013-01-01"], "flight": [1545], "run": ["first"]}), "lake/flights")  # by a careless process
    world["look"]("second reader")
    found = check_history(read_history(*Path("history").glob("*.jsonl")))
    assert found is not None and "more than once" in found.problem


def test_a_pipeline_without_a_key_is_shown_to_double_its_rows() -> None:
    """[IV4]"""

    def careless() -> None:
        mc.write(DAY, LAKE)

    def check() -> None:
        assert ids() == [1, 2], "doubled"

    def many() -> None:
        for seed in range(200):
            simulate({"careless": careless}, seed, check=check)

    with pytest.raises(PipelineViolationError, match="doubled") as caught:
        many()
    run = caught.value.run
    assert "create" in str(caught.value) and f"seed {run.seed}" in str(caught.value)
    with pytest.raises(PipelineViolationError, check=lambda error: error.run.trace == run.trace):
        simulate({"careless": careless}, check=check, given=run.choices)


def test_an_error_of_the_program_itself_breaks_the_pipeline() -> None:
    def wrong() -> None:
        mc.write(DAY, LAKE)
        raise KeyError("mine")

    with pytest.raises(PipelineViolationError, match="KeyError: 'mine'"):
        simulate({"wrong": wrong}, 0)


def test_a_program_that_can_never_end_well_breaks_the_pipeline() -> None:
    """It must come to its end once nothing goes wrong any more."""

    def never() -> None:
        mc.write(DAY, LAKE, key="k", watermarks={"s": (0, 1)})
        mc.write(DAY, LAKE, key="other", watermarks={"s": (5, 6)})

    with pytest.raises(PipelineViolationError, match="WatermarkGapError"):
        simulate({"never": never}, 0)


def test_a_check_without_words_leaves_no_hole_in_the_sentence() -> None:
    def bare() -> None:
        raise AssertionError

    with pytest.raises(PipelineViolationError, match=r"^AssertionError; with seed 0, after"):
        simulate({}, 0, check=bare)


def test_programs_that_never_meet_the_simulator_do_not_pass_for_tested() -> None:
    def in_a_thread() -> None:
        thread = threading.Thread(target=mc.write, args=(DAY, LAKE))
        thread.start()
        thread.join()

    for program in (in_a_thread, lambda: mc.write(DAY, "memory://outside of it"), lambda: None):
        with pytest.raises(UsageError, match="nothing was simulated"):
            simulate({"a": program}, 0)


def test_a_long_name_of_a_program_leaves_the_columns_of_the_trace_straight() -> None:
    name = "by mistake again"
    lines = simulate({name: lambda: mc.write(DAY, LAKE), "b": lambda: mc.write(DAY, LAKE)}, 3).trace.splitlines()
    actors = {line[6 : 6 + len(name)].rstrip() for line in lines}
    assert actors == {name, "b"} and {line[6 + len(name)] for line in lines} == {" "} and " " not in {line[7 + len(name)] for line in lines}


@pytest.mark.parametrize("wrong", [("--seeds", "9:5"), ("--seeds", "é"), ("--explore", "-1")])
def test_the_command_refuses_what_runs_nothing(wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """It has broken no rule, and must not say so."""
    assert main(wrong) == 2 and " ".join(wrong) in capsys.readouterr().err


def test_the_command_replays_a_file_of_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0:3", "--about", "gc"]) == 0 and capsys.readouterr().out.startswith("3 runs, ")
    choices = tmp_path / "choices é.json"
    choices.write_text('{"theme": "back", "choices": {"plan a.0": 1}}', "utf-8")
    assert main(["--replay", str(choices)]) == 0 and "publish" in capsys.readouterr().out
    for wrong in ('{"theme": "none", "choices": {}}', "no JSON"):
        choices.write_text(wrong, "utf-8")
        assert main(["--replay", str(choices)]) == 2 and str(choices) in capsys.readouterr().err
