"""Safeguards of exports to other formats."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_HOOK, _DOOR = "engine/metadata/exports.py", "interop/exporter.py"
_ICEBERG, _MANIFESTS, _METADATA = "interop/iceberg_export.py", "interop/iceberg_manifests.py", "interop/iceberg_metadata.py"
_DELTA, _LOG, _STATS = "interop/delta_export.py", "interop/delta_log.py", "interop/delta_files.py"
_FILES = "interop/file_columns.py"
_CATALOG, _STATEMENT = "interop/spark_catalog/export.py", "interop/spark_catalog/statement.py"
_CATALOG_VALUES = "interop/spark_catalog/partition_values.py"
_INTAKE, _INTAKE_COLUMNS = "interop/test_intake.py", "interop/intake/columns.py"
_REFUSED = f"{_INTAKE}::test_an_iceberg_table_that_cannot_be_taken_is_refused_whole"
_CATALOG_TESTS = "interop/test_spark_catalog.py"
_TESTS = "interop/test_export.py"
_KINDS = "interop/test_clients.py::test_clients_get_the_rows_that_readers_get"
_FILTERS = "interop/test_pruning.py::test_a_filter_finds_what_the_rows_say"

EXPORTS: tuple[Mutant, ...] = (
    mutant(
        "failed export",
        "An export that fails makes a commit fail that counts already.",
        "EX2",
        (_HOOK, "    except Exception as error:", "    except ZeroDivisionError as error:"),
        tests=f"{_TESTS}::test_a_failed_export_fails_no_commit_and_the_next_one_catches_up",
    ),
    mutant(
        "export without the property",
        "Every commit of every table asks for exports.",
        "EX2",
        (_HOOK, "if head is None or PROPERTY not in head.snapshot.properties:", "if head is None:"),
        (_DOOR, "for format in _known_formats(head.snapshot):", "for format in FORMATS:"),
        tests=f"{_TESTS}::test_without_the_property_nothing_is_asked",
    ),
    mutant(
        "hint before its document",
        "A reader that follows the hint finds no document where the exporter died.",
        "EX2",
        (
            _ICEBERG,
            "    put_shared(session, metadata_name(head.version), data)\n    return _put_hint(store, head.version)",
            "    made = _put_hint(store, head.version)\n    put_shared(session, metadata_name(head.version), data)\n    return made",
        ),
        tests=f"{_TESTS}::test_a_reader_finds_a_whole_version_wherever_an_exporter_dies",
    ),
    mutant(
        "hint that went back",
        "An exporter that was slow leaves readers with an older version.",
        "EX2",
        (_ICEBERG, "        if later is None:\n            break\n        version = later", "        break"),
        tests=f"{_TESTS}::test_an_exporter_that_lags_shows_nothing_older",
    ),
    mutant(
        "export of an older version",
        "What others have seen as the newest version goes back.",
        "EX2",
        (_DOOR, "if shown is not None and shown > chosen:", "if False:"),
        tests=f"{_TESTS}::test_an_older_version_is_exported_as_the_newest_until_a_later_one_is",
    ),
    mutant(
        "hole in the log",
        "A Delta log lacks the versions that no exporter followed: rows are missing.",
        "EX1 EX2",
        (_DELTA, "newest is None or chain[0].version != newest", "newest is None"),
        (_DELTA, "most = head.version - newest + 1 if follows and newest is not None else MOST_COMMITS", "most = 2"),
        tests=f"{_TESTS}::test_versions_that_were_passed_over_are_exported_later",
    ),
    mutant(
        "writer feature",
        "Writers of Delta append to, vacuum and rewrite a table that is not theirs.",
        "EX3",
        (_LOG, "[*features, WRITER_FEATURE]", "features"),
        tests=f"{_TESTS}::test_writers_of_delta_refuse_to_write",
    ),
    mutant(
        "column mapping",
        "Readers of Delta look for a renamed column by its new name, and show nulls.",
        "EX3",
        (_LOG, "mapped = any(field.physical is not None for field in schema.fields)", "mapped = False"),
        tests=f"{_KINDS}[renamed-delta]",
    ),
    mutant(
        "export that gc breaks",
        "gc deletes files that the newest export shows, where a newer one could not be made.",
        "EX4",
        (_DOOR, "is_readable(decided, shown)", "shown"),
        tests=f"{_TESTS}::test_gc_deletes_nothing_that_the_newest_export_shows",
    ),
    mutant(
        "export that an exporter may build on",
        "gc deletes an export by hand while an exporter builds the next one on it.",
        "EX4",
        (_DOOR, "return oldest is not None and is_old and not is_readable(oldest.snapshot, version)", "return True"),
        tests=f"{_TESTS}::test_gc_sweeps_what_exports_by_hand_have_left",
    ),
    mutant(
        "log of another table",
        "An export adds this table's files to a Delta log of other rows, or takes it for its own.",
        "EX1 EX9",
        (_DELTA, "return ids == {metadata_id(table_id)}", "return True"),
        (_DELTA, ", 0, 256)) == table_id", ', 0, 256)) != ""'),
        tests=f"{_TESTS}::test_a_log_or_metadata_of_another_table_is_left_alone",
    ),
    mutant(
        "Iceberg metadata of another table",
        "A table that was made again in the same place shows the rows of the one before it.",
        "EX1 EX9",
        (_ICEBERG, "if document is not None and document.table_id != snapshot.table_id:", "if False:"),
        tests=f"{_TESTS}::test_a_log_or_metadata_of_another_table_is_left_alone",
    ),
    mutant(
        "objects of a recent document",
        "gc deletes what a reader of the document before needs, while it reads.",
        "EX4",
        (_ICEBERG, "if not 0 < next_s <= cut_s", "if next_s == math.inf"),
        tests=f"{_TESTS}::test_gc_leaves_what_was_shown_within_the_grace_period",
    ),
    mutant(
        "names of manifests",
        "A rollback's export names a manifest again that gc is about to delete.",
        "EX4",
        (_METADATA, "m-{key}-{version:016x}.avro", "m-{key}-{0:016x}.avro"),
        tests=f"{_TESTS}::test_a_manifest_that_was_forgotten_gets_another_name",
    ),
    mutant(
        "names of partition values",
        "Readers that find partition values by name show null in every partition column.",
        "EX6",
        (_MANIFESTS, "    if len(set(names)) < len(names):\n", "    if names:\n"),
        tests=f"{_TESTS}::test_partition_values_have_the_names_of_their_columns",
    ),
    mutant(
        "name mapping",
        "Columns of adopted files without ids read as nulls.",
        "EX6",
        (_METADATA, "_text(list(mapping.values()))", '"[]"'),
        tests=f"{_KINDS}[adopted-iceberg]",
    ),
    mutant(
        "name that means two columns",
        "An old version shows the values of another column.",
        "EX6",
        (_METADATA, "or version not in versions or not agree", "or version not in versions"),
        tests=f"{_TESTS}::test_a_name_that_means_another_column_ends_what_is_shown",
    ),
    mutant(
        "upper bounds beside NaN in Iceberg",
        "A filter of DuckDB skips files whose rows it selects: there NaN is above every number.",
        "EX8",
        (_MANIFESTS, '            known["max"] &= known["nans"] & (number["nans"] == 0)\n', ""),
        tests=f"{_FILTERS}",
    ),
    mutant(
        "upper bounds beside NaN in Delta",
        "A filter skips files whose rows it selects: Delta orders NaN above every number.",
        "EX8",
        (_STATS, "            known = pc.and_(known, pc.fill_null(pc.equal(nans, 0), False))\n", ""),
        tests=f"{_FILTERS}",
    ),
    mutant(
        "cut bounds in Delta",
        "A bound that is no value of the file is told as one.",
        "EX8",
        (_STATS, "known = pc.fill_null(pc.equal(cuts, 0), True)", "known = pc.is_valid(bound)"),
        tests="interop/test_pruning.py::test_deltas_bounds_are_values_of_the_file",
    ),
    mutant(
        "foreign field ids",
        "An adopted file with field ids of its own reads as nulls.",
        "EX9",
        (_FILES, "if field is not None and not _agrees(column, field):", "if False:"),
        tests=f"{_KINDS}[adopted with ids-iceberg]",
    ),
    mutant(
        "partition columns that only folders tell",
        "The partition column reads as null in Delta.",
        "EX9",
        (_FILES, "        if missing:\n", "        if False:\n"),
        tests=f"{_KINDS}[adopted folders-delta]",
    ),
    mutant(
        "types that a format lacks",
        "An interval is exported as something else, or as an error of each reader.",
        "EX9",
        (_LOG, "and kind not in _TYPES and", "and kind is None and"),
        tests=f"{_TESTS}::test_types_that_a_format_lacks_are_refused",
    ),
    mutant(
        "INSERT INTO an export",
        "Rows that a session of Spark inserts through its catalog are lost, and it hears of no error.",
        "EX10",
        (_CATALOG, "        store.put(GUARD, _SAYS)\n", ""),
        tests="spark/test_spark_catalog.py::test_nothing_is_written_through_it",
        needs="spark",
    ),
    mutant(
        "folder without its log",
        "Who lists the folder, or finds no log for a moment, reads an empty table.",
        "EX10",
        (_CATALOG, "        store.put(NOT_A_TABLE, _SAYS)\n", ""),
        tests=f"{_CATALOG_TESTS}::test_gc_leaves_what_is_shown_and_then_what_makes_readers_fail",
    ),
    mutant(
        "log that went back",
        "Spark's catalog shows an older version than it did, until the next commit.",
        "EX2 EX10",
        (_CATALOG, "        if newest.version <= head.version:\n", "        if True:\n"),
        tests=f"{_CATALOG_TESTS}::test_an_exporter_that_lags_shows_nothing_older",
    ),
    mutant(
        "values that folders do not show",
        "Spark's catalog reads another value from a folder's name than the file has, such as null for an empty text.",
        "EX10",
        (_CATALOG_VALUES, "    return bool(values) and all(", "    return bool(values) or all("),
        ("engine/scan/partition_folders.py", "or not all(map(_is_plain, found, types)):", "or False:"),
        tests="spark/test_spark_catalog.py::test_a_value_that_folders_do_not_show_is_read_from_files",
        needs="spark",
    ),
    mutant(
        "texts that look like numbers",
        "Spark's catalog shows a partition 000 as the number 0.",
        "EX10",
        (_CATALOG, "    if by_folders(base, snapshot, files):\n", "    if by_folders(base, snapshot, files) and not files.num_rows:\n"),
        (_CATALOG, "    elif files.num_rows:\n", "    elif not by_folders(base, snapshot, files):\n"),
        tests="spark/test_spark_catalog.py::test_texts_in_folders_stay_texts",
        needs="spark",
    ),
    mutant(
        "files that a rollback brought back",
        "They are not looked at again: a partition column that only their folders tell reads as null in Spark's catalog.",
        "EX9",
        (
            _CATALOG,
            "entries_since(session, head, shown_version, snapshot, entries)",
            'entries.filter(pc.greater(entries.column("added"), shown_version))',
        ),
        tests=f"{_CATALOG_TESTS}::test_a_file_without_its_partition_column_is_refused_also_after_a_rollback",
    ),
    mutant(
        "names that Spark's catalog passes over",
        "Rows of such a file are missing in Spark's catalog.",
        "EX9",
        (_CATALOG, "    _check_names(store, entries)\n", ""),
        tests=f"{_CATALOG_TESTS}::test_files_that_spark_passes_over_are_refused",
    ),
    mutant(
        "renamed columns in Spark's catalog",
        "A renamed column reads as null, or as another column of that name.",
        "EX9",
        (_STATEMENT, "if field.physical is not None:", "if False:"),
        tests="spark/test_spark_catalog.py::test_rows_are_those_of_readers[renamed]",
        needs="spark",
    ),
    mutant(
        "a column under two names",
        "A table that is adopted from Iceberg reads nulls from the files that call a column otherwise.",
        "AF4",
        (_INTAKE_COLUMNS, "if names.setdefault(id, column.name) != column.name:", "if not names.setdefault(id, column.name):"),
        tests=f"{_REFUSED}[with_two_names]",
    ),
    mutant(
        "values that only Iceberg's metadata holds",
        "A table that is adopted from Iceberg reads nulls where only the metadata has the partition's value.",
        "AF4",
        ("interop/intake/iceberg.py", "if field.id in at and field.id not in there and file.record_count:", "if field.id not in at:"),
        tests=f"{_INTAKE}::test_a_value_that_only_iceberg_has_is_taken_or_refused",
    ),
    mutant(
        "a source that has moved on",
        "A second adoption says that all is done, although the other table has new files.",
        "AF4",
        ("engine/maintenance/adopt.py", "if now is not None and now != adopted:", "if now is not None and not adopted:"),
        tests=f"{_INTAKE}::test_a_delta_table_that_has_moved_on_is_told",
    ),
    mutant(
        "a name under two columns",
        "A table that is adopted from Iceberg reads the values of a dropped column as those of a new one.",
        "AF4",
        (_INTAKE_COLUMNS, "    elif (file := lower.get(name.lower())) is not None:\n", "    elif not (file := name):\n"),
        tests=f"{_REFUSED}[with_a_name_for_two]",
    ),
    mutant(
        "names of columns that were dropped elsewhere",
        "A column that is added after the adoption reads the values of one that was dropped in Iceberg.",
        "AF4",
        (_INTAKE_COLUMNS, "retired=tuple(sorted(others.keys() - taken))", "retired=()"),
        tests=f"{_INTAKE}::test_an_iceberg_table_with_renamed_dropped_and_added_columns",
    ),
    mutant(
        "delete files",
        "Rows that were deleted in Iceberg are there again.",
        "AF4",
        ("interop/intake/iceberg.py", "if entry.data_file.content != files.DataFileContent.DATA:", "if entry.data_file is None:"),
        tests=f"{_REFUSED}[with_a_delete_file]",
    ),
    mutant(
        "features of a Delta log",
        "Rows that a deletion vector removes are there again.",
        "AF4",
        ("interop/intake/delta.py", "if unknown := sorted(set(features) - _READ):", "if unknown := sorted(set(features) - {*features}):"),
        tests=f"{_INTAKE}::test_a_delta_table_that_cannot_be_taken_is_refused_whole",
    ),
    mutant(
        "field ids that a rollback brought back",
        "A file with other field ids reads as nulls in Iceberg, since it was not looked at again.",
        "EX9",
        ("interop/iceberg_export.py", "        if doubtful.num_rows:\n", "        if False:\n"),
        tests=f"{_TESTS}::test_files_that_a_rollback_brings_back_are_looked_at",
    ),
)
