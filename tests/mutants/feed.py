"""Safeguards of changed rows: which rows differ, in which columns, and which versions must be there."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_READING = "engine/row_feed/test_read_changes.py"
_STREAM = "engine/row_feed/test_stream_changes.py"
_BAG = "engine/row_feed/test_bag_difference.py::test_it_is_what_counting_finds"
_IDENTITY = "core/table/test_row_identity.py"
_VERSIONS = "engine/row_feed/version_changes.py"

FEED: tuple[Mutant, ...] = (
    mutant(
        "rows that only moved",
        "A version's rewritten rows are all deleted and inserted: whoever follows sees changes where there are none.",
        "CH3",
        ("engine/row_feed/read_changes.py", "    if removed is None or added is None:", "    if removed is None or added is None or True:"),
        tests=f"{_READING}::test_each_operation_gives_what_it_changed_and_no_more",
    ),
    mutant(
        "where a value ends",
        "Texts are compared without their lengths: two rows that differ are taken for one, and a change is lost.",
        "CH3",
        (
            "engine/row_feed/bag_difference.py",
            "known = _joined([_of_numbers(pc.binary_length(array)), array.cast(_BYTES)], count)",
            "known = array.cast(_BYTES)",
        ),
        tests=f"{_IDENTITY}::test_a_text_that_holds_the_next_ones_beginning_is_another_row",
    ),
    mutant(
        "rows of one key together",
        "Rows that are split among files lie apart from those with the same key: an update is a deletion and an insertion.",
        "CH4 CH5",
        ("engine/row_feed/bag_difference.py", "        keys = _keys(part.rows, self._on)", "        keys = _keys(part.rows, ())"),
        tests=_BAG,
    ),
    mutant(
        "columns that come back",
        "A rollback that brings a dropped column back changes no file: whoever follows never gets its values.",
        "CH6",
        (
            "core/commit/change_feed.py",
            "    return bool(old - new) or (new > old and any(commit.restored is not None for commit in commits))",
            "    return False",
        ),
        tests=f"{_READING}::test_rows_have_the_columns_of_the_last_version",
    ),
    mutant(
        "versions of changes",
        "Changes are read from versions of which some were expired: those of the missing ones are lost, or files are.",
        "CH1 RD3",
        (_VERSIONS, "    if version is not None:", "    if False:"),
        tests=f"{_READING}::test_versions_that_are_not_there_or_expired_are_errors_that_name_what_is_left",
    ),
    mutant(
        "names of changes",
        "A column of the table hides what happened to a row, or the other way round.",
        "CH2",
        ("core/commit/change_feed.py", "        if column.name.lower() in CHANGE_COLUMNS:", "        if False:"),
        tests=f"{_READING}::test_columns_can_be_chosen_and_names_that_collide_are_refused",
    ),
    mutant(
        "version before a batch",
        "A stream goes on after the version is expired that lists what the next one removed.",
        "CH7 RD3",
        ("engine/row_feed/stream_changes.py", "    _back = 1\n", "    _back = 0\n"),
        tests=f"{_STREAM}::test_a_version_before_the_next_one_is_needed_and_its_expiry_an_error",
    ),
)
