"""Safeguards around the protocol: the calls of the stores, untrusted bytes, secrets, data files, Spark."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_LOCAL, _LINUX, _OBJECTS, _S3, _FORMAT = "store/local.py", "store/linux.py", "store/objects.py", "store/s3.py", "core/format.py"
_OPTIONS, _WRITER, _READER, _OWN_WRITER = "store/options.py", "spark/writer.py", "spark/reader.py", "spark/own_writer.py"
_DURABLE = "store/test_local.py::test_every_new_folder_and_file_is_synced_before_a_call_returns"
_TAKEN_IN = "spark/test_own_writer.py::test_what_is_taken_in_is_durable_and_takes_no_one_elses_name"

STORES: tuple[Mutant, ...] = (
    mutant(
        "link",
        "A create on a disk replaces what is there: of two winners of a version the first is lost.",
        "IV1 ST1 ST9",
        (_LOCAL, "self._place(name, data, os.link)", "self._place(name, data, os.replace)"),
        tests="store/test_local.py::test_a_local_create_does_not_overwrite_a_winner",
    ),
    mutant(
        "fsync of an object",
        "A version that was acknowledged is empty after a power cut.",
        "IV2 ST2 ST9",
        (_LOCAL, "                        os.fsync(file.fileno())\n", "                        pass\n"),
        tests=_DURABLE,
    ),
    mutant(
        "fsync of a created name",
        "A version that was acknowledged is gone after a power cut.",
        "IV2 ST2 ST9",
        (
            _LOCAL,
            "        try:\n            _sync_folder(os.path.dirname(self._path(name)))\n        except OSError",
            "        try:\n            pass\n        except OSError",
        ),
        tests=f"{_DURABLE} + unit/test_losses.py::test_a_commit_whose_folder_cannot_be_made_durable_is_not_acknowledged",
    ),
    mutant(
        "fsync of a data file",
        "A file that a version lists is empty after a power cut.",
        "IV6 ST2 DF2 CM18",
        (_LOCAL, "        os.fsync(self._file.fileno())\n", ""),
        tests=_DURABLE,
    ),
    mutant(
        "fsync of a data file's name",
        "A file that a version lists is gone after a power cut.",
        "IV6 ST2 DF2 CM18",
        (
            _LOCAL,
            "            ) from error\n        _sync_folder(os.path.dirname(self._path))\n",
            "            ) from error\n",
        ),
        tests=_DURABLE,
    ),
    mutant(
        "fsync of a linked file",
        "A file that Spark's own writer wrote and a version lists is empty after a power cut.",
        "IV6 ST2 DF2 SP13",
        (_LOCAL, "                os.fsync(file.fileno())  # also of what another process wrote\n", "                pass\n"),
        tests=_TAKEN_IN,
    ),
    mutant(
        "fsync of a linked name",
        "A file that Spark's own writer wrote and a version lists is gone after a power cut.",
        "IV6 ST2 DF2 SP13",
        (
            _LOCAL,
            "            os.link(path, target)\n            _sync_folder(os.path.dirname(target))\n",
            "            os.link(path, target)\n",
        ),
        tests=_TAKEN_IN,
    ),
    mutant(
        "links that replace",
        "A file that is taken in takes the place of one that a version lists.",
        "IV6 DF1 SP13",
        (_LOCAL, "            os.link(path, target)\n", "            os.replace(path, target)\n"),
        tests=_TAKEN_IN,
    ),
    mutant(
        "fsync of new folders",
        "A whole partition is gone after a power cut.",
        "IV6 ST2",
        (_LOCAL, "        os.mkdir(folder)\n    _sync_folder(parent)\n", "        os.mkdir(folder)\n"),
        tests=_DURABLE,
    ),
    mutant(
        "two scans",
        "A folder is scanned once: a version that was there before is not seen.",
        "IV2 ST3",
        (_LOCAL, "    united = seen\n", "    return sorted(seen)\n"),
        tests="store/test_local.py::test_a_scan_that_misses_a_name_is_scanned_again",
    ),
    mutant(
        "all names in one call",
        "A part of a folder passes for all of it: a version that was there before is not seen.",
        "IV2 ST3 ST40",
        (_LINUX, "if end < 0 or _getdents(folder, ctypes.byref(room, end), size - end) != 0:", "if end < 0:"),
        tests="store/test_local.py::test_a_folder_that_takes_several_calls_is_scanned_until_two_scans_agree",
    ),
    mutant(
        "file systems of this machine",
        "A folder that other machines change too is scanned once: a version that was there before is not seen.",
        "IV2 ST3 ST40",
        (_LINUX, " or _KIND.unpack_from(room)[0] not in _KINDS", ""),
        tests="store/test_local.py::test_a_scan_of_the_end_that_misses_a_name_is_scanned_again",
    ),
    mutant(
        "folders in a folder",
        "What stands in a folder before the first name that is asked for is not listed.",
        "ST3 ST40",
        (_LINUX, " or status.st_nlink != _NO_FOLDERS", ""),
        tests="store/test_local.py::test_a_folder_in_a_folder_is_gone_through_and_no_object[before]",
    ),
    mutant(
        "swapped names",
        "A put gives a folder full of data a name that nobody lists.",
        "ST2 ST8",
        (_LINUX, "_rename is not None and _is_file(target)", "_rename is not None"),
        tests="store/test_local.py::test_a_put_never_takes_the_place_of_a_folder",
    ),
    mutant(
        "temporary names",
        "Files that a killed writer left are listed.",
        "IV5 ST9 ST15",
        (
            _LOCAL,
            "            if name.startswith(_TEMPORARY):\n                continue\n            if entry.is_dir",
            "            if entry.is_dir",
        ),
        tests="store/test_local.py::test_what_a_killed_writer_leaves_is_not_listed",
    ),
    mutant(
        "names of a local store",
        "A name that climbs is taken: objects outside of the root are read and written.",
        "LY1 SE2",
        (_LOCAL, 'return f"{self._root}/{check_name(name)}"', 'return f"{self._root}/{name}"'),
        tests="store/test_store.py::test_a_name_that_climbs_is_refused_by_every_call[local-../x]",
    ),
    mutant(
        "symbolic links",
        "A link makes one file two, or leads outside of the root.",
        "IV6 LY1",
        (_LOCAL, "if os.path.realpath(path) != os.path.join(os.path.realpath(self._root), name):", "if False:"),
        tests="unit/test_losses.py::test_a_symbolic_link_is_no_second_name_of_a_file",
    ),
    mutant(
        "If-None-Match",
        "A create on S3 replaces what is there: of two winners of a version the first is lost.",
        "IV1 ST1 ST10",
        (_S3, 'self._put(key, data, IfNoneMatch="*").get("VersionId")', 'self._put(key, data).get("VersionId")'),
        tests="store/test_s3.py::test_each_call_is_one_request + store/test_s3.py::test_a_create_is_one_conditional_put_whatever_its_size",
        needs="server",
    ),
    mutant(
        "412",
        "That a name is taken is not understood: a commit that lost fails.",
        "IV1 ST10",
        ("store/backend.py", "if status == 412 or code in self.taken_codes:", "if code in self.taken_codes:"),
        tests="store/test_s3.py::test_each_call_is_one_request",
        needs="server",
    ),
    mutant(
        "409",
        "A conflicting request on S3 counts as a refusal: the job is told to have failed, and may be in the table.",
        "IV4 ST10 CM6",
        ("store/backend.py", "busy = frozenset({408, 409, 429})", "busy = frozenset({408, 429})"),
        tests="store/test_s3.py::test_a_busy_store_is_asked_again[409]",
        needs="server",
    ),
    mutant(
        "unclear creates",
        "A create without an answer is sent again unseen: it loses against itself, and nobody knows why.",
        "IV4 ST5 ST14",
        (
            _OBJECTS,
            "                if not error.sent:\n                    raise  #",
            "                if True:\n                    raise  #",
        ),
        tests="store/test_s3.py::test_a_create_without_a_clear_answer_is_unclear",
        needs="server",
    ),
    mutant(
        "ETag",
        "An answer of a proxy's login page passes for a write.",
        "IV2 ST2 ST5",
        (
            _S3,
            'if not answer.get("ETag"):\n            raise TransientError(f"{self.display_name(key)}: the answer is',
            'if False:\n            raise TransientError(f"{self.display_name(key)}: the answer is',
        ),
        tests="store/test_trust.py::test_a_put_that_nobody_acknowledged_by_its_etag_is_not_done",
    ),
    mutant(
        "truncated pages",
        "A page that is no list passes for an empty one: the table seems to be removed.",
        "IV2 ST3 CM5",
        (_S3, 'if page["IsTruncated"] else', 'if page.get("IsTruncated") else'),
        tests="store/test_trust.py::test_an_empty_answer_to_a_list_is_no_empty_list",
    ),
    mutant(
        "versioned buckets",
        "A bucket that began to keep versions lets later writers replace a commit, unnoticed.",
        "IV1 ST12",
        (_S3, 'if version not in (None, "null") and self._endpoint():', "if False:"),
        tests="store/test_trust.py::test_versioning_that_is_switched_on_later_is_noticed",
        needs="server",
    ),
    mutant(
        "deadline",
        "A request is repeated beyond its time: a job that should fail hangs.",
        "ST14",
        (
            "store/retry.py",
            "if tried >= limit.attempts or time.monotonic() - began + pause > limit.deadline_s:",
            "if tried >= limit.attempts:",
        ),
        tests="store/test_retry.py::test_no_try_is_started_after_the_deadline",
    ),
    mutant(
        "proof of the store",
        "A table is begun on a store that lets two creators win.",
        "IV1 ST7 ST12",
        ("engine/session.py", "            prove(self.store)\n", ""),
        tests="store/test_proof.py::test_nothing_is_written_through_a_store_that_lets_two_win + "
        "store/test_doctor.py::test_a_table_is_not_begun_on_a_store_that_lies",
    ),
    mutant(
        "two winners",
        "doctor calls a store safe although two creators won.",
        "IV1 ST12",
        ("store/checks.py", "        if len(won) > 1:\n", "        if False:\n"),
        tests="store/test_doctor.py::test_two_winners_in_one_round_of_many_are_two_too_many",
    ),
    mutant(
        "creates that look first",
        "A filesystem is taken that looks and then writes: two writers win.",
        "IV1 ST7",
        ("store/generic.py", "if doubt := doubt_about_create(found):", 'if doubt := "":'),
        tests="store/test_other.py::test_a_filesystem_that_does_not_create_in_one_step_is_refused_by_name",
    ),
)

UNTRUSTED: tuple[Mutant, ...] = (
    mutant(
        "declared size",
        "A small object takes all memory: what it decompresses to is not asked before.",
        "OB4 SE2",
        (_FORMAT, "        if declared > most:\n", "        if False:\n"),
        tests="spec/test_format.py::test_a_false_size_takes_no_memory",
    ),
    mutant(
        "format version",
        "A table of a later release is read by rules that are not its own.",
        "OB3 CP2",
        (_FORMAT, "    if found != FORMAT_VERSION:\n", "    if False:\n"),
        tests="spec/test_format.py::test_another_format_version_is_refused_before_anything_else",
    ),
    mutant(
        "paths",
        "A listed path leads outside of the root.",
        "LY1 SE2",
        ("core/paths.py", "    reason = _objection(path)\n", "    reason = None\n"),
        tests="spec/test_format.py::test_a_snapshot_that_lists_a_path_outside_is_damaged",
    ),
    mutant(
        "paths of manifests",
        "A reference to a manifest leads to any object.",
        "LY3 SE2",
        (_FORMAT, "    if not _OBJECT.fullmatch(path):\n", "    if False:\n"),
        tests="spec/test_format.py::test_a_reference_outside_its_folder_is_damage",
    ),
    mutant(
        "rules of a snapshot",
        "A snapshot that breaks the format's rules is read as if it were whole.",
        "IV1 OB2 OB4",
        (_FORMAT, "        _check(snapshot, name)\n", "        pass\n"),
        tests="spec/test_format.py::test_a_snapshot_that_breaks_a_rule_is_damage",
    ),
    mutant(
        "twice in a snapshot",
        "A path that is listed twice is read twice.",
        "IV6 OB5",
        (_FORMAT, "    if len({entry.path for entry in entries}) != len(entries):\n", "    if False:\n"),
        tests="spec/test_format.py::test_a_snapshot_that_breaks_a_rule_is_damage",
    ),
    mutant(
        "digest of a manifest",
        "A manifest that was exchanged is read: rows come and go unnoticed.",
        "IV2 OB4 OB6",
        ("engine/manifests.py", "        if format.digest(data) != digest:\n", "        if False:\n"),
        tests="spec/test_manifest.py::test_a_damaged_manifest_is_told_by_its_digest",
    ),
    mutant(
        "digest of a footer",
        "A manifest's footer that was exchanged is read: it names other chunks as the true ones.",
        "IV2 OB14 RD11",
        ("engine/parts.py", "        if format.digest(data) != footer.digest:\n", "        if False:\n"),
        tests="unit/test_parts.py::test_a_false_reference_is_damage",
    ),
    mutant(
        "digest of a part",
        "A part of a manifest that was exchanged is read: rows come and go unnoticed.",
        "IV2 OB14 RD11",
        ("engine/parts.py", "if len(chunk) != end - start or _digest(chunk) != known:", "if len(chunk) != end - start:"),
        tests="unit/test_parts.py::test_chunks_that_have_changed_places_are_damage",
    ),
    mutant(
        "unknown members",
        "What a later release has written is lost by the next commit of this one.",
        "OB12 CP2",
        (_FORMAT, "    if f'\"{SPELLING}\"'.encode() not in encoded:\n", "    if True:\n"),
        tests="spec/test_format.py::test_unknown_members_survive_at_every_depth",
    ),
    mutant(
        "objects that no reader accepts",
        "A commit writes a head that is too large for every reader: the table is lost.",
        "IV2 OB4",
        (_FORMAT, "    if len(raw) > MAX_RAW_BYTES or len(data) > MAX_OBJECT_BYTES:\n", "    if False:\n"),
        tests="unit/test_losses.py::test_no_commit_writes_a_head_that_no_reader_accepts",
    ),
)

SECRETS: tuple[Mutant, ...] = (
    mutant(
        "secrets in errors",
        "A key stands in an error, and in every log that shows it.",
        "SE1",
        (_OPTIONS, "            if len(value) >= _SHORTEST_SECRET:\n", "            if False:\n"),
        tests="store/test_secrets.py::test_values_of_every_kind_are_blotted_out",
    ),
    mutant(
        "secrets in options",
        "The options show their values to whoever prints them.",
        "SE1",
        (_OPTIONS, "{', '.join(sorted(self._options)) or 'none'}", "{self._options}"),
        tests="store/test_secrets.py::test_options_show_their_names_and_never_a_value",
    ),
    mutant(
        "secrets in URLs",
        "A URL with a password is taken, and stored as the table's place.",
        "ST4 SE1",
        (
            "store/names.py",
            '    if re.match(r"[^/@]*:[^@]*@", rest) or ("@" in rest.split("/", 1)[0] and scheme != "abfs"):\n',
            "    if False:\n",
        ),
        tests="unit/test_store_names.py::test_a_url_with_credentials_is_refused_without_repeating_them",
    ),
    mutant(
        "secrets in endpoints",
        "An endpoint's password is committed into the table, as the store's identity.",
        "ST12 SE1",
        ("store/names.py", '    return f"{found[1]}{found[2].lower()}{found[3]}".rstrip("/")\n', '    return endpoint.rstrip("/")\n'),
        tests="store/test_secrets.py::test_of_an_endpoint_only_the_place_is_shown",
    ),
)

FILES: tuple[Mutant, ...] = (
    mutant(
        "half a write",
        "A store that took half of a write goes unnoticed: the file is damaged, and listed.",
        "IV6 DF3",
        ("engine/files.py", "        if written != len(data):\n", "        if False:\n"),
        tests="unit/test_files.py::test_a_store_that_takes_half_a_write_is_an_error",
    ),
    mutant(
        "attempts that gave up",
        "The file of an attempt that failed appears all the same.",
        "IV5 AB2",
        (
            "engine/files.py",
            "        for file in self._open.values():\n            file.discard()\n",
            "        for file in self._open.values():\n            file.finish()\n",
        ),
        tests="unit/test_files.py::test_a_discarded_attempt_leaves_nothing_and_deletes_nothing",
    ),
    mutant(
        "names of attempts",
        "Two attempts at a task write one name: a late one replaces what is committed.",
        "IV5 DF1",
        (_FORMAT, 'f"{task:05d}-{attempt}-', 'f"{task:05d}-0123456789abcdef-'),
        tests="unit/test_files.py::test_names_tell_task_attempt_number_and_job",
    ),
    mutant(
        "files of other jobs",
        "A file is added whose own job may still commit: its rows are there twice.",
        "IV6 AF1",
        ("engine/job.py", 'if find_job_at(self._session, head, writer)[1][0] != "committed":', "if False:"),
        tests="unit/test_losses.py::test_a_file_of_a_job_that_may_still_commit_is_not_added",
    ),
    mutant(
        "rows of rewritten files",
        "Rows that went missing while files were written anew are committed away.",
        "IV2 RC1 GC11",
        ("engine/replace.py", "    if written == rows:\n", "    if True:\n"),
        tests="faults/test_row_changes.py::test_rows_that_went_missing_or_came_twice_are_one_error_for_all_that_write_files_anew",
    ),
    mutant(
        "float bounds",
        "A file's footer bounds floats without NaN: readers skip rows that match.",
        "DF6 RD6",
        ("engine/files.py", "not in floats]", "not in ()]"),
        tests="unit/test_losses.py::test_rows_of_nan_are_not_pruned_away + "
        "unit/test_losses.py::test_a_files_bounds_are_true_without_float_statistics_in_its_footer",
    ),
    mutant(
        "NaN of row groups",
        "A row group is skipped by bounds that leave NaN out: rows that match are missing.",
        "RD13 RD7",
        (
            "engine/row_groups.py",
            "pa.nulls(len(known), pa.int64()) if pa.types.is_floating(low.type) else pa.repeat",
            "pa.repeat",
        ),
        tests="unit/test_row_groups.py::test_a_nan_that_the_footer_hides_is_found",
    ),
    mutant(
        "statistics of Spark's writer",
        "A file whose footer bounds floats without NaN counts as one of ours: readers skip rows that match.",
        "DF10 DF6",
        (_OWN_WRITER, '    if _has_float_statistics(f"{scratch}/{part}"):\n', "    if False:\n"),
        tests="spark/test_own_writer.py::test_a_file_whose_statistics_leave_nan_out_is_one_of_others",
    ),
)

SPARK: tuple[Mutant, ...] = (
    mutant(
        "one message per task",
        "Two attempts at one task are both committed.",
        "IV5 SP2",
        (_WRITER, "        if written.task in tasks:\n", "        if False:\n"),
        tests="spark/test_writer.py::test_messages_are_one_per_task",
    ),
    mutant(
        "lost messages",
        "A task whose message was lost is left out: its rows are in no version.",
        "IV2 SP2",
        (
            _WRITER,
            'raise StoreError("Spark lost the message of a task that wrote data; nothing was committed. Run the write again.")',
            "continue",
        ),
        tests="spark/test_writer.py::test_messages_are_one_per_task",
    ),
    mutant(
        "rows of Spark's writer",
        "A file of Spark's own writer that got lost on the way is missed by nobody.",
        "IV2 SP13",
        (_OWN_WRITER, "    if held != rows:\n", "    if False:\n"),
        tests="spark/test_own_writer.py::test_files_that_hold_other_rows_than_spark_had_are_never_committed",
    ),
    mutant(
        "mark of Spark's writer",
        "What Spark's own writer has written so far is taken for all.",
        "IV2 SP13",
        (_OWN_WRITER, '    if not os.path.exists(f"{scratch}/{_DONE}"):\n', "    if False:\n"),
        tests="spark/test_own_writer.py::test_files_of_a_write_that_did_not_end_are_not_taken_for_all",
    ),
    mutant(
        "messages of a batch",
        "Tasks of two plans of one batch are committed together.",
        "IV5 SP7",
        ("spark/stream_writer.py", "    if len(said) != 1:\n", "    if not said:\n"),
        tests="spark/test_stream_sink.py::test_messages_that_do_not_agree_commit_nothing",
    ),
    mutant(
        "Spark's abort",
        "Spark's abort deletes files: it is called even where the commit landed.",
        "IV2 SP3 AB1",
        (
            _WRITER,
            'Spark calls this even where a commit landed, and attempts may still be writing. [SP3]"""\n\n\ndef _filler',
            'Spark calls this even where a commit landed, and attempts may still be writing. [SP3]"""\n'
            "        store = open_store(self.plan.url, self.storage_options)\n"
            '        store.delete([info.name for info in store.list("") if self.plan.job in info.name])\n\n\ndef _filler',
        ),
        tests="spark/test_writer.py::test_an_abort_deletes_nothing",
        needs="spark",
    ),
    mutant(
        "missing files",
        "A file that is gone is skipped where the session says so: fewer rows, and no error.",
        "IV2 SP4",
        (_READER, '"ignoreMissingFiles": "false"', '"ignoreMissingFiles": "true"'),
        tests="spark/test_reader.py::test_a_damaged_file_is_an_error_even_where_the_session_ignores_it",
        needs="spark",
    ),
    mutant(
        "damaged files",
        "A damaged file is skipped where the session says so: fewer rows, and no error.",
        "IV2 SP4",
        (_READER, '    "ignoreCorruptFiles": "false",\n', ""),
        tests="spark/test_reader.py::test_a_damaged_file_is_an_error_even_where_the_session_ignores_it",
        needs="spark",
    ),
    mutant(
        "scratch log",
        "Spark does not honour the list that it is handed, and reads none of the files, or all of the folder.",
        "IV2 SP4",
        (_READER, "    if planned != len(files):\n        # spark", "    if False:\n        # spark"),
        (_READER, "    if planned != len(files):\n        raise", "    if planned < 0:\n        raise"),
        tests="spark/test_reader.py::test_every_listed_file_is_read_whatever_the_session_says",
        needs="spark",
    ),
    mutant(
        "names that Spark skips",
        "Files whose names Spark passes over are left out of every read.",
        "IV2 SP4",
        (_READER, " or any(_spark_skips(path) for path, _ in files):", ":"),
        (_READER, "    if planned != len(files):\n        raise", "    if planned < 0:\n        raise"),
        tests="spark/test_reader.py::test_a_name_that_spark_would_skip_is_read_all_the_same",
        needs="spark",
    ),
    mutant(
        "keys that come twice",
        "A merge takes a source that has a key twice: which row counts is chance.",
        "RC3",
        ("spark/merge.py", "        if twice:\n", "        if False:\n"),
        tests="spark/test_row_changes.py::test_a_key_that_comes_twice_is_named",
        needs="spark",
    ),
)

GUARDS: tuple[Mutant, ...] = (*STORES, *UNTRUSTED, *SECRETS, *FILES, *SPARK)
