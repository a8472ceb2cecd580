"""Safeguards of joint commits: members, the decision, who aborts, what is void, consistent reads."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_JOINT, _PART, _READ = "engine/joint/joint_commit.py", "engine/commit/joint_part.py", "engine/joint/joint_read.py"
_COMMIT, _FATE, _ASK = "engine/commit/commit_loop.py", "core/joint/fate.py", "engine/metadata/member_fate.py"
_CHAIN, _FIT, _ORDER = "engine/metadata/version_chain.py", "core/joint/consistency.py", "core/joint/participants.py"
_TESTS = "engine/joint/test_joint_commit.py::test_"
_UNDO = "engine/joint/test_joint_rollback.py::test_"
_PREPARED = "engine/joint/test_joint_two_phase.py::test_"
_TWO = "engine/joint/joint_two_phase.py"
_SETTLE = "engine/joint/test_settle.py::test_"
_PURE = "core/joint/test_fate.py::test_"

JOINT: tuple[Mutant, ...] = (
    mutant(
        "joint member refused",
        "The home decides although a table could not take part: readers see the commit in some tables only.",
        "IV3 MT1 MT4",
        (
            _JOINT,
            "                if not outcome.committed or outcome.already_committed:\n"
            "                    return self._stop(attempt, placed, part, outcome)\n"
            "                placed[part.table_id] = outcome\n",
            "                if outcome.committed:\n                    placed[part.table_id] = outcome\n",
        ),
        tests=_TESTS + "a_conflict_in_one_table_commits_nothing_in_any",
    ),
    mutant(
        "joint settle first",
        "Who meets an undecided member builds on the state before it, and its home commits it after that.",
        "IV2 MT5 MT9",
        (_COMMIT, "while head.top is not None and not head.is_void:", "while False:"),
        tests=_TESTS + "an_undecided_member_is_waited_for_and_then_aborted_in_its_home",
    ),
    mutant(
        "joint attempt over",
        "The home commits an attempt that others have aborted: their versions do not have it.",
        "IV2 MT4",
        (_PART, 'return find_job(session, head, self.attempt)[0] == "given_up"', "return False"),
        tests=_TESTS + "the_coordinator_begins_its_next_attempt_where_others_aborted_one",
    ),
    mutant(
        "joint own attempt",
        "A process waits for the member that its own jobs have placed, and aborts it.",
        "MT3",
        (_COMMIT, "if isinstance(self._part, Member) and self._part.is_placed(top.snapshot):", "if False:"),
        tests=_TESTS + "the_same_jobs_go_on_with_the_members_that_they_have_placed",
    ),
    mutant(
        "joint late abort",
        "An attempt that is committed is recorded as aborted besides.",
        "MT9 AB4",
        ("engine/commit/conflict_inputs.py", "committed=fenced or decided or find_job", "committed=fenced or find_job"),
        tests=_TESTS + "who_aborts_what_is_decided_changes_nothing",
    ),
    mutant(
        "joint fence",
        "A member whose home's job is fenced stays undecided for ever.",
        "IV9 MT6",
        (_FATE, "if parse_job_id(job).birth < home.fence or is_aborted(attempt)", "if is_aborted(attempt)"),
        tests=_PURE + "an_aborted_attempt_an_aborted_job_and_a_fenced_one_are_aborted",
    ),
    mutant(
        "joint undecided",
        "A member is read before its home has decided.",
        "IV5 MT6 MT8",
        (_FATE, 'return "undecided"', 'return "committed"'),
        tests=_TESTS + "a_coordinator_that_dies_anywhere_leaves_all_or_nothing",
    ),
    mutant(
        "joint copy",
        "A copied table takes for its own what the original has committed under the same number.",
        "MT6",
        (_FATE, 'return "committed" if known.attempt == attempt else "diverged"', 'return "committed"'),
        tests=_PURE + "a_home_that_knows_another_attempt_at_this_version_knows_another_table_of_this_id",
    ),
    mutant(
        "joint hint early",
        "The hint says that a member is committed before the home has decided.",
        "IV5 MT7",
        (
            _JOINT,
            "            decision = Decision(",
            "            self._tell(attempt, placed)\n            decision = Decision(",
        ),
        tests=_TESTS + "a_coordinator_that_dies_anywhere_leaves_all_or_nothing",
    ),
    mutant(
        "joint hint of another",
        "The hint of an earlier attempt is taken for the answer.",
        "MT7",
        (_ASK, "and hint.attempt == attempt_of(member.pending)", ""),
        tests=_TESTS + "a_hint_of_another_version_or_attempt_says_nothing",
    ),
    mutant(
        "joint member known",
        "A member puts the hint before it is decided, and its writer takes it for the head.",
        "MT7",
        (_COMMIT, "if isinstance(self._part, Member):", "if False:"),
        tests=_TESTS + "n_tables_take_3n_requests",
    ),
    mutant(
        "joint void read",
        "A member that was aborted is read as a version of its table.",
        "IV5 MT8",
        (_CHAIN, "if version in snapshot.void:", "if False:"),
        ("core/commit/conflict.py", "return is_kept and version not in head.void", "return is_kept"),
        tests=_TESTS + "nobody_reads_a_void_version",
    ),
    mutant(
        "joint void in history",
        "The history shows a member that was aborted.",
        "MT8",
        (_CHAIN, "if version not in head.snapshot.void:", "if True:"),
        tests=_TESTS + "nobody_reads_a_void_version",
    ),
    mutant(
        "joint void winner",
        "A job conflicts with a member that was aborted.",
        "MT8",
        ("engine/commit/conflict_inputs.py", "if version in head.snapshot.void:", "if False:"),
        tests=_TESTS + "what_was_aborted_is_no_winner",
    ),
    mutant(
        "joint void evidence",
        "A fenced job is told to be committed in a member that was aborted.",
        "IV2 MT8 CM2",
        (
            "engine/commit/settled.py",
            "if version not in head.snapshot.void and any(each.job == job for each in found.snapshot.commits):",
            "if any(each.job == job for each in found.snapshot.commits):",
        ),
        tests=_TESTS + "a_void_version_is_no_evidence_that_its_job_has_committed",
    ),
    mutant(
        "joint void in streams",
        "A stream gives the files of a member that was aborted.",
        "IV5 MT8",
        ("engine/scan/change_feed.py", "if at.version in self._head.snapshot.void:", "if False:"),
        tests=_TESTS + "a_stream_passes_a_void_version_over",
    ),
    mutant(
        "joint void kept",
        "gc counts members that were aborted among the versions that stay readable.",
        "MT8 GC1",
        ("core/commit/retention.py", "last -= void >= last", "last -= 0"),
        tests=_TESTS + "gc_keeps_the_last_versions_that_are_states",
    ),
    mutant(
        "joint void rolled back",
        "No rollback is possible once a member was aborted.",
        "MT8 CF13",
        ("core/commit/conflict.py", "if last_state(head) > change.birth:", "if head.version > change.birth:"),
        tests=_TESTS + "a_rollback_is_possible_once_a_member_was_aborted",
    ),
    mutant(
        "joint times",
        "The version after a member that was aborted is older than that member: a search by time goes astray.",
        "MT5 CM14",
        (_FATE, "committed_at=member.committed_at,", ""),
        tests=_PURE + "the_next_version_after_an_aborted_member_has_the_state_of_its_base",
    ),
    mutant(
        "joint no longer pending",
        "A version that is built on a committed member is pending itself.",
        "IV2 MT5",
        ("core/commit/apply.py", "format_version=FORMAT_VERSION, pending=None, version=head.version + 1,", "version=head.version + 1,"),
        tests=_PURE + "the_next_version_after_a_committed_member_has_its_state_and_is_not_pending",
    ),
    mutant(
        "joint record kept",
        "A decision forgets what the home has committed before: those members become undecided again.",
        "IV2 MT4",
        (_FATE, "joint={**made.joint, **members}", "joint=members"),
        tests=_PURE + "a_decision_keeps_what_it_decided_for_others",
    ),
    mutant(
        "joint order",
        "The caller's order chooses the home: two dead coordinators block each other's tables for ever.",
        "IV9 MT2",
        (_ORDER, "ordered = sorted(participants)", "ordered = list(participants)"),
        tests="core/joint/test_participants.py::test_the_home_follows_from_the_tables_and_not_from_their_order",
    ),
    mutant(
        "joint home behind",
        "A hostile member names a home that names it: who follows them never ends.",
        "IV9 MT2 SE2",
        (_ASK, "if _place(home) >= _place(member):", "if False:"),
        tests=_TESTS + "a_member_that_names_a_home_behind_it_is_refused",
    ),
    mutant(
        "joint reads go on",
        "A member that was read before its home shows a joint commit in the home only.",
        "MT12",
        (_FIT, 'return Misfit(table_id=table_id, home=home, version=decided, move="up")', "pass"),
        tests="core/joint/test_consistency.py::test_versions_fit_exactly_where_each_joint_commit_is_in_all_or_in_none",
    ),
    mutant(
        "joint reads go back",
        "A home that was read before its member shows a joint commit in the member only.",
        "MT12",
        (_FIT, 'return Misfit(table_id=table_id, home=home, version=record.version, move="down")', "pass"),
        tests="core/joint/test_consistency.py::test_versions_fit_exactly_where_each_joint_commit_is_in_all_or_in_none",
    ),
    mutant(
        "joint reads their home",
        "Two members of one joint commit are read without their home, one before it and one after it.",
        "MT12",
        (_READ, "        if self._open_homes():\n            return False\n", ""),
        tests=_TESTS + "two_members_are_consistent_without_their_home",
    ),
    mutant(
        "joint key in all",
        "A key that is in some tables only counts as committed in all of them.",
        "IV2 MT13",
        (_JOINT, "                return _undone_alone(parts, part)\n", "                continue\n"),
        tests=_TESTS + "a_key_that_is_in_some_tables_only_is_refused_by_their_names",
    ),
    mutant(
        "joint tables declared",
        "A key of a joint commit means the same work with other tables.",
        "MT13",
        (_JOINT, "said = msgspec.json.encode([declared, sorted(table_ids)])", "said = msgspec.json.encode([declared])"),
        tests=_TESTS + "a_key_is_recorded_in_all_tables_and_a_rerun_does_nothing",
    ),
    mutant(
        "joint store",
        "Tables of two stores are committed together: readers of one cannot ask the other.",
        "MT6 SE2",
        (_JOINT, "if store_beside(part.session.store, home.url) is None:", "if False:"),
        tests="doors/test_joint.py::test_what_are_no_jobs_of_several_tables_is_refused",
    ),
    mutant(
        "joint undone alone",
        "A rollback or a rewind undoes a joint commit in one of its tables only.",
        "MT14",
        ("core/commit/conflict.py", "    if change.alone:\n        return None\n    if isinstance", "    return None\n    if isinstance"),
        tests=_UNDO + "a_joint_commit_is_not_undone_in_one_table",
    ),
    mutant(
        "joint targets",
        "Tables are rolled back together to versions of which one has a joint commit and the other has not.",
        "MT14",
        ("engine/joint/joint_rollback.py", "    if misfit is not None:\n", "    if False:\n"),
        tests=_UNDO + "targets_belong_together",
    ),
    mutant(
        "joint operator",
        "An operator says what became of a member that its home can still decide, or has decided otherwise.",
        "IV2 MT10",
        ("engine/operations/settle.py", "        _check_unknown(session, newest)\n", ""),
        tests=_SETTLE + "where_the_home_can_be_asked_nobody_else_says",
    ),
    mutant(
        "joint home gone",
        "Two tables whose home goes while they are read are read one before and one after its last decision.",
        "MT10 MT12",
        (_READ, "return len(self._gone) > before", "return False"),
        tests=_SETTLE + "a_home_that_goes_while_two_tables_are_read_has_decided_for_both",
    ),
    mutant(
        "joint partners",
        "A table is removed that others ask what became of their newest versions, and nobody has said so.",
        "MT10",
        ("engine/joint/partners.py", "            and newest.pending is not None\n", "            and newest.pending is None\n"),
        tests=_SETTLE + "the_partners_of_a_table_that_ask_it_are_named_until_they_are_settled",
    ),
    mutant(
        "prepared alone",
        "A prepared job of a joint commit is committed alone: readers see the commit in one table only.",
        "IV3 MT11",
        ("engine/job/two_phase.py", "if prepared.change.together:", "if False:"),
        tests=_PREPARED + "committing_any_one_commits_all_under_their_own_ids",
    ),
    mutant(
        "prepared missing",
        "One of the jobs was not prepared when its process died, and the others wait for it until gc takes them.",
        "MT11",
        (_TWO, "    if parts is None or any(", '    if parts is None:\n        return Outcome(kind="aborted", job_id=job)\n    if any('),
        tests=_PREPARED + "one_that_is_missing_is_aborted_with_all_others",
    ),
    mutant(
        "prepared attempt",
        "Who commits prepared jobs begins with an attempt that others aborted, and makes void versions.",
        "MT9 MT11",
        (_JOINT, "number = self._open_attempt(1) if self._home.is_prepared else 1", "number = 1"),
        tests=_PREPARED + "all_who_commit_make_the_same_attempt",
    ),
    mutant(
        "prepared behind",
        "Who is an attempt behind waits for the next one of the same jobs, and aborts it.",
        "MT9 MT11",
        (_PART, "pending.job == self.job and pending.attempt > self.attempt", "False"),
        tests=_PREPARED + "who_is_an_attempt_behind_joins_the_next_at_once",
    ),
    mutant(
        "prepared otherwise",
        "Prepared jobs that name different tables are committed together.",
        "MT11 SE2",
        (_TWO, "if other.change.together != together:", "if False:"),
        tests=_PREPARED + "jobs_that_name_each_other_differently_are_refused",
    ),
    mutant(
        "prepared turn",
        "Recovered from another table, a later range becomes the first of a source while an earlier one is prepared.",
        "WM7 MT11",
        ("engine/job/two_phase.py", "        if turn.is_joint and not abort:\n            check_turn_beside(session, job)\n", ""),
        tests=_PREPARED + "a_later_range_waits_for_an_earlier_one_in_every_table",
    ),
    mutant(
        "prepared fenced",
        "A job that gc has fenced is prepared as if it could be committed.",
        "CM2 AB3",
        ("engine/commit/prepared_job.py", "if newest is not None and is_fenced(newest.snapshot, change):", "if False:"),
        tests=_PREPARED + "a_fenced_job_is_not_prepared",
    ),
    mutant(
        "fenced unsaid",
        "recover says nothing of a prepared job that was fenced.",
        "AB3",
        ("engine/job/job_list.py", 'is_waiting=info.state in ("prepared", "fenced")', 'is_waiting=info.state == "prepared"'),
        tests=_PREPARED + "recover_reports_a_prepared_job_that_was_fenced",
    ),
    mutant(
        "joint tags",
        "Versions are tagged together of which one has a joint commit and the other has not.",
        "MT12",
        ("engine/joint/joint_tag.py", "chosen = read_jointly(sessions)", "chosen = [session.open() for session in sessions]"),
        tests="engine/joint/test_joint_tag.py::test_what_is_tagged_belongs_together_whatever_is_committed_meanwhile",
    ),
)
