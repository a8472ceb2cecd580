"""What goes wrong with each source, what the loader does then, and the test that shows it: the table of docs/how-to/load.md."""

import ast
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "how-to" / "load.md"


class Shown(NamedTuple):
    """What happens, and the test that shows it."""

    result: str
    test: str


ONCE = "each row once"
SOAK = "soak.each_row_is_loaded_once_whatever_is_killed"
KILLED = "killed_loads.a_loader_that_dies_at_any_request_and_is_run_again_loads_each_row_once"
BESIDE = "quarantined_loads.rows_that_violate_a_constraint_go_beside_in_the_same_commit"
NONE = Shown("—", "")
# Fault -> for files, another table, PostgreSQL by a column and by a slot, and Kafka.
FAULTS: dict[str, tuple[Shown, Shown, Shown, Shown, Shown]] = {
    "two loaders, killed at random, beside writers": (Shown(ONCE, SOAK),) * 5,
    "a loader is killed at each request to the store": (Shown(ONCE, KILLED),) * 5,
    "rows become visible out of order": (
        Shown(ONCE, "killed_loads.two_loaders_at_once_load_each_file_once_while_more_files_land"),
        NONE,
        Shown("waits; " + ONCE, "postgres.transactions_that_commit_in_another_order_than_they_take_ids_lose_no_row"),
        Shown(ONCE, "postgres_changes.random_changes_leave_the_same_rows_after_every_commit"),
        NONE,
    ),
    "positions without a row": (
        NONE,
        Shown(ONCE, "followed_table.a_follower_has_what_the_table_has_after_every_kind_of_change"),
        Shown(ONCE, "postgres.an_open_transaction_is_named_and_its_rows_come_once"),
        Shown(ONCE, "postgres_changes.a_position_moves_on_behind_the_log_of_others"),
        Shown(ONCE, "kafka.offsets_without_a_record_are_part_of_a_range"),
    ),
    "what was loaded changes": (
        Shown("replaces, adds or refuses", "landing_files.a_file_that_is_uploaded_again_is_another_one"),
        Shown("loads the change", "followed_table.a_follower_has_what_the_table_has_after_every_kind_of_change"),
        Shown("loads the row again", "postgres.all_rows_at_once_replace_the_table"),
        Shown("updates and deletes, too", "postgres_changes.a_table_becomes_what_the_source_is"),
        NONE,
    ),
    "what is read changes meanwhile": (
        Shown("reads it again", "landing_files.a_file_that_is_replaced_while_it_is_read_is_read_again"),
        NONE,
        Shown("commits nothing", "postgres.a_table_that_is_replaced_during_a_load_commits_nothing"),
        Shown("follows, or ends", "postgres_changes.columns_by_which_a_mirror_would_differ_end_the_load"),
        NONE,
    ),
    "a part cannot be decoded": (
        Shown("ends, or records and skips it", "landing_files.a_broken_file_is_recorded_and_tried_again_when_it_changes"),
        NONE,
        Shown("names the column", "postgres.what_cannot_be_represented_is_refused_and_a_query_casts_it"),
        Shown("names the column", "postgres_changes.a_value_that_cannot_be_represented_is_refused_with_its_column"),
        Shown("ends, or puts it beside", "kafka.records_that_cannot_be_decoded_are_put_beside_in_the_same_commit"),
    ),
    "a row violates a constraint of the table": (
        *(Shown("ends, or puts it beside", BESIDE),) * 3,
        Shown("ends; a history puts it beside", BESIDE),
        Shown("ends, or puts it beside", BESIDE),
    ),
    "one table of a transaction refuses its rows": (
        *(NONE,) * 3,
        Shown("commits none of the tables", "postgres_changes.a_conflict_in_one_table_commits_none"),
        NONE,
    ),
    "one of several tables is set back, or added": (
        *(NONE,) * 3,
        Shown("ends; `restart=True`", "postgres_changes.tables_of_one_slot_that_are_not_at_one_position_are_refused"),
        NONE,
    ),
    "what was not loaded yet is gone": (
        NONE,
        Shown("ends; `restart=True`", "followed_table.a_follower_behind_what_expired_is_told_how_to_begin_again"),
        NONE,
        Shown("ends; `restart=True`", "postgres_changes.a_slot_that_has_not_what_follows_ends_the_load"),
        Shown('ends; `on_lost="skip"`', "kafka.records_that_the_topic_no_longer_keeps_end_the_load"),
    ),
    "the source was made anew": (
        Shown("named if missing", "landing_files.a_folder_that_is_not_there_is_no_empty_one"),
        Shown("refuses", "followed_table.a_table_that_was_made_again_is_refused"),
        Shown("is another source", "postgres.a_table_that_is_made_again_is_another_source"),
        Shown("ends; `restart=True`", "postgres_changes.a_table_that_is_made_again_is_not_added_to_a_mirror"),
        Shown("refuses", "kafka.a_topic_that_was_made_anew_is_another_one"),
    ),
    "the server crashes, or a standby takes its place": (
        NONE,
        NONE,
        Shown("waits for its log; refuses", "postgres.a_promoted_standby_is_refused_unless_it_had_all_transactions"),
        Shown(ONCE + "; needs its slot", "postgres_changes.what_a_slot_gives_again_after_a_crash_comes_once"),
        NONE,
    ),
    "the server is away": (
        NONE,
        NONE,
        Shown("an error, no secret in it", "postgres.a_server_that_goes_away_is_an_error_of_this_package"),
        Shown("an error, no secret in it", "postgres_changes.a_server_that_goes_away_is_an_error_of_this_package"),
        Shown("an error, no secret in it", "kafka.brokers_that_do_not_answer_are_named_without_secrets"),
    ),
}


def table() -> str:
    """The table as the page has it."""
    rows = [("what goes wrong", "files", "another table", "PostgreSQL by a column", "by a slot", "Kafka"), ("---",) * 6]
    rows += [(fault, *(shown.result for shown in cells)) for fault, cells in FAULTS.items()]
    return "\n".join(f"| {' | '.join(row)} |" if row[0] != "---" else f"|{'|'.join(row)}|" for row in rows)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text("utf-8"), table()


@pytest.mark.parametrize("fault", FAULTS)
def test_each_cell_is_shown_by_a_test(fault: str) -> None:
    for shown in FAULTS[fault]:
        file, _, name = shown.test.partition(".")
        if name:
            tree = ast.parse((HERE / f"test_{file}.py").read_text("utf-8"))
            assert f"test_{name}" in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, shown
        else:
            assert shown == NONE
