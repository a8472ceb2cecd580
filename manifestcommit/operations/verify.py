"""Verifies a table: its chain, and everything that its readable versions list. Changes nothing.
[RD10] [IV1] [IV6]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from ..commits.partners import check_partners
from ..display import ReprMixin, age, changed, html_members, html_table, line
from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    StoreError,
    TableNotFoundError,
    UndecidedError,
    UnsupportedFormatError,
)
from ..format import codec, object_names
from ..format.snapshot import Snapshot
from ..log import exports
from ..log.table_context import TableContext, gate
from ..log.version_chain import (
    Head,
    list_above,
    list_versions,
    misplaced,
    open_head,
    open_object,
    read_object,
)
from ..protocol.audit import (
    Kind,
    VerifyFinding,
    check_step,
    check_version,
    finding,
    other_table,
    skipped_version,
)
from ..runtime.concurrency import prefetch
from ..runtime.environment import STARTS
from ..store import Store
from .listed_vs_stored import Contents, reason
from .store_inventory import Inventory
from .table_metrics import data_age_s, source_age_s

Progress = Callable[[str], None]

_READERS = 8
_NAMED = 100  # versions of one gap, or left over, that are reported one by one, at most
_REPORTED = 10_000  # findings that are kept; further ones are only counted


class VerifyReport(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """The result of `Table.verify`.

    Attributes:
        url: the table path.
        first: the oldest readable version; 0: none could be read.
        last: the latest version; 0: none could be read.
        deep: whether data files were read.
        versions: how many versions were checked.
        manifests: how many manifests and runs were checked.
        files: how many data files were checked.
        bytes: the size of these files.
        objects: how many objects are below the table path.
        data_age_s: seconds since the last commit that added rows or moved a watermark; None: there
            was none.
        source_age_s: source -> seconds since its watermark moved last; None: it never did.
        damages: how many findings are damage, those beyond the first 10,000 included.
        findings: the first 10,000 findings, damage first.

    Spec: RD10.
    """

    url: str
    first: int
    last: int
    deep: bool
    versions: int = 0
    manifests: int = 0
    files: int = 0
    bytes: int = 0
    objects: int = 0
    data_age_s: float | None = None
    source_age_s: dict[str, float | None] = {}
    damages: int = 0
    findings: tuple[VerifyFinding, ...] = ()

    def __repr__(self) -> str:
        ranking = ("first", "last", "damages", "files", "objects", "deep", "findings", "url")
        return line("VerifyReport", [(name, getattr(self, name)) for name in ranking])

    def _repr_html_(self) -> str:
        """The members, and the first findings."""
        rows = [
            (each.severity, each.kind, each.object, each.problem) for each in self.findings[:20]
        ]
        findings = html_table(("", "finding", "object", "problem"), rows, len(self.findings) - 20)
        return html_members(changed(self)) + (findings if rows else "")

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is damaged; notes are harmless."""
        return not self.damages


class Findings:
    """The findings, without duplicates; beyond a limit they are only counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, str, str], VerifyFinding] = {}
        self.damages = 0

    def add(self, *findings: VerifyFinding) -> None:
        for reported in findings:
            # One problem per kind is enough for a file; for a version, every problem counts.
            key = (
                reported.kind,
                reported.object,
                reported.problem
                if reported.object.startswith(object_names.VERSIONS) or not reported.object
                else "",
            )
            if key in self._found:
                continue
            self.damages += reported.severity == "damage"
            if len(self._found) < _REPORTED:
                self._found[key] = reported

    def ordered(self) -> tuple[VerifyFinding, ...]:
        """Damage first."""
        return tuple(sorted(self._found.values(), key=lambda finding: finding.severity != "damage"))


def verify(
    ctx: TableContext, *, deep: bool = False, progress: Progress | None = None
) -> VerifyReport:
    """Check that everything that readable versions list exists as listed, and that the chain is
    complete; findings name objects. [RD10]

    One listing of the table path, one request per readable version, per manifest and per run; deep:
    reads every file, in threads. Memory: 17 bytes per object, a manifest, eight versions. Nothing
    is written. Damage is reported, never raised; errors of the store, and TableNotFoundError, are
    raised. If gc expires meanwhile what seems to be missing, verification starts over.
    """
    say = progress or (lambda step: None)
    for _ in range(STARTS):
        findings = Findings()
        head = _newest_readable(ctx.store, findings)
        if head is None:
            return VerifyReport(
                url=ctx.store.url,
                first=0,
                last=0,
                deep=deep,
                damages=findings.damages,
                findings=findings.ordered(),
            )
        report = _verify(ctx, head, findings, deep, say)
        if report.is_sound or not _has_expired_since(ctx.store, head.snapshot):
            return report
    raise StoreError(
        f"{ctx.store.url}: versions were expired {STARTS} times while they were "
        "verified; try again when gc is done"
    )


def _newest_readable(store: Store, findings: Findings) -> Head | None:
    """The latest version; if it cannot be read, or belongs to another table, the highest version
    that can, so that the rest can be checked."""
    try:
        return open_head(store)
    except UndecidedError as error:
        newest = open_object(store)
        name = object_names.version_name(newest.version)
        findings.add(finding("home_is_gone", name, str(error)))
        return newest
    except CorruptMetadataError:
        pass
    above, highest = list_above(store, 0), None
    for version in reversed(above.versions):
        head = _read(store, version)
        if isinstance(head, Head):
            wrong = misplaced(store.url, head.snapshot, above.tables)
            if wrong is None:
                return head
            if highest is None or above.tables:
                kind: Kind = (
                    "version_misplaced"
                    if wrong.object_name == object_names.version_name(version)
                    else "marker_missing"
                )
                findings.add(finding(kind, wrong.object_name, str(wrong)))
            highest = highest or head
        elif head is not None:
            findings.add(finding("version_unreadable", object_names.version_name(version), head))
    return highest


def _has_expired_since(store: Store, head: Snapshot) -> bool:
    """Whether a version that was readable at this head no longer is."""
    try:
        newest = open_head(store).snapshot
    except (CorruptMetadataError, TableNotFoundError, UndecidedError):
        return False
    tagged, still = ({tag.version for tag in snapshot.tags.values()} for snapshot in (head, newest))
    return newest.expired > head.expired or not tagged <= still


def _verify(
    ctx: TableContext, head: Head, findings: Findings, deep: bool, say: Progress
) -> VerifyReport:
    store = ctx.store
    inventory = Inventory(store, head.snapshot, say)
    existing = _chosen(inventory, head.snapshot, findings)
    contents = Contents(store, head.snapshot, inventory, findings.add, deep=deep, progress=say)
    _walk(store, head, existing, contents, findings, say)
    contents.finish()
    findings.add(*inventory.findings, *inventory.left_over())
    findings.add(*_above(store, head, inventory))
    _check_hint(store, inventory, findings)
    findings.add(*_exports_behind(ctx, head.snapshot), *_unsettled(ctx, head))
    if deep and head.snapshot.constraints:
        say("checking constraints")
        findings.add(*_violations(ctx, head.snapshot))
    if inventory.youngest.birth > head.version and inventory.youngest.birth > max(
        list_versions(store, head.version), default=0
    ):
        youngest = inventory.youngest
        text = (
            f"{youngest.name} is of a job that began when it was the newest: it was lost, and "
            "all versions since"
        )
        findings.add(finding("version_missing", object_names.version_name(youngest.birth), text))
    return VerifyReport(
        url=store.url,
        first=head.snapshot.expired,
        last=head.version,
        deep=deep,
        versions=len(existing),
        manifests=contents.manifests,
        files=contents.files,
        bytes=contents.bytes,
        objects=inventory.objects,
        data_age_s=data_age_s(head.snapshot, ctx.env.now_us()),
        source_age_s=source_age_s(head.snapshot, ctx.env.now_us()),
        damages=findings.damages,
        findings=findings.ordered(),
    )


def _violations(ctx: TableContext, snapshot: Snapshot) -> Iterator[VerifyFinding]:
    """Rows of the newest version that violate a constraint of it. Files are read whose bounds leave
    it open; what cannot be read is damage of its own. [CK2]"""
    for name in snapshot.constraints:
        try:
            found = gate().violation(ctx, snapshot, name)
        except (ManifestCommitError, OSError):
            continue
        if found is not None:
            text = f"{found.rows:,} rows violate the constraint {name!r} ({found.condition})"
            yield finding("constraint_violated", found.files[0], text)


def _chosen(inventory: Inventory, head: Snapshot, findings: Findings) -> list[int]:
    """The readable versions whose objects exist, newest first; missing versions and unexpected ones
    are reported. [IV1]"""
    tags = {
        tag.version: name
        for name, tag in sorted(head.tags.items())
        if 1 <= tag.version < head.expired
    }
    inside = [
        version for version in sorted(inventory.versions) if head.expired <= version <= head.version
    ]
    below = [version for version in sorted(inventory.versions) if version < head.expired]
    before = head.expired - 1
    for version in (*inside, head.version + 1):
        for missing in range(before + 1, min(version, before + 1 + _NAMED)):
            if missing in head.void:
                continue
            findings.add(
                finding(
                    "version_missing",
                    object_names.version_name(missing),
                    "it is missing although the version is not expired",
                )
            )
        if version - before - 1 > _NAMED:
            text = f"with it all up to version {version - 1} are missing"
            findings.add(
                finding("version_missing", object_names.version_name(before + 1 + _NAMED), text)
            )
        before = version
    for version in sorted(tags.keys() - set(below)):
        text = f"it is missing although the tag {tags[version]!r} keeps the version"
        findings.add(finding("version_missing", object_names.version_name(version), text))
    left = [version for version in below if version not in tags]
    for version in left[:_NAMED]:
        text = (
            f"it is below the oldest readable version, {head.expired}: gc has not come to "
            "it, or a writer brought it back"
        )
        findings.add(finding("version_leftover", object_names.version_name(version), text))
    if left[_NAMED:]:
        text = (
            f"with it {len(left) - _NAMED:,} more are below the oldest readable version, "
            f"{head.expired}"
        )
        findings.add(finding("version_leftover", object_names.version_name(left[_NAMED]), text))
    return sorted((*inside, *(version for version in below if version in tags)), reverse=True)


def _walk(
    store: Store,
    head: Head,
    versions: Sequence[int],
    contents: Contents,
    findings: Findings,
    say: Progress,
) -> None:
    """Check every version, newest first, against the one above it; `contents` gets what it lists.
    [OB1]"""
    above: Head | None = None  # the last version without a contradiction
    child: Snapshot | None = None  # the last such version that was a state of the table [MT5]
    table_id = head.snapshot.table_id  # the last such version's
    skipped = {*head.snapshot.void} - {*versions}
    for count, (version, read) in enumerate(
        prefetch(partial(_read, store), versions, threads=_READERS, limit=_READERS)
    ):
        opened = read.result()
        if count % 20 == 0:
            say(f"verifying version {version:,} of {head.version:,}")
        name = object_names.version_name(version)
        if not isinstance(opened, Head):
            text = opened or "it was there when the root was listed, and is gone"
            findings.add(finding("version_unreadable" if opened else "version_missing", name, text))
            above = child = None
            continue
        snapshot = opened.snapshot
        is_void = version in head.snapshot.void
        is_next = above is not None and all(
            each in skipped for each in range(version + 1, above.version)
        )
        is_beneath = above is not None and above.snapshot.parent_digest == opened.digest
        is_other = snapshot.table_id != head.snapshot.table_id
        if is_void and (is_other or (is_next and not is_beneath)):
            findings.add(skipped_version(snapshot, head.snapshot))
            skipped.add(version)
            continue
        findings.add(*check_version(snapshot))
        trusted = True
        if above is not None and is_next:
            trusted = is_beneath
            if trusted and not is_void and child is not None:
                beneath = msgspec.structs.replace(snapshot, version=child.version - 1)
                findings.add(*check_step(beneath, child))
            elif not trusted:
                text = (
                    f"version {above.version} was built on other bytes than these: one of the "
                    "two was replaced"
                )
                findings.add(finding("version_replaced", name, text))
        elif snapshot.table_id != table_id:
            findings.add(other_table(snapshot, table_id, "newer versions"))
        contents.add_version(snapshot)
        above = opened if trusted else None
        child = None if not trusted else child if is_void else snapshot
        table_id = snapshot.table_id if trusted else table_id


def _above(store: Store, head: Head, inventory: Inventory) -> Iterator[VerifyFinding]:
    """What jobs of a removed table have left above the newest version. [LY15]"""
    newest = (head.top or head).version
    for version in [each for each in sorted(inventory.versions) if each > newest][:_NAMED]:
        opened = _read(store, version)
        if isinstance(opened, Head) and opened.snapshot.table_id != head.snapshot.table_id:
            yield skipped_version(opened.snapshot, head.snapshot)


def _read(store: Store, version: int) -> Head | str | None:
    """The version, or why it cannot be read; None: it does not exist."""
    try:
        return read_object(store, version)
    except (CorruptMetadataError, UnsupportedFormatError) as error:
        return reason(error)


def _unsettled(ctx: TableContext, head: Head) -> Iterator[VerifyFinding]:
    """What of joint commits depends on other tables, or is in one of the tables only. [MT1]
    [MT10]"""
    if head.top is not None and not head.is_void and head.top.snapshot.pending is not None:
        name = object_names.version_name(head.top.version)
        text = (
            f"the table at {head.top.snapshot.pending.home} has not decided yet what becomes of it"
        )
        yield finding("member_is_undecided", name, text)
    for root, why, torn in check_partners(ctx.store, head.snapshot):
        if why:
            yield finding("partner_is_unsettled", "", f"{root} asks this table: {why}")
        if torn:
            yield finding("joint_commit_torn", "", torn)


def _exports_behind(ctx: TableContext, head: Snapshot) -> Iterator[VerifyFinding]:
    """The exports that do not show the newest version, although each commit is exported. [EX2]"""
    for format, lag in exports.lags(ctx, head).items():
        if lag.behind is None:
            text = f"nothing is exported to {format} yet, or others have removed what was"
            yield finding("export_is_behind", "", text)
        elif lag.behind:
            text = (
                f"the export to {format} shows version {lag.version}, {lag.behind:,} behind the "
                f"newest, for {age(lag.age_s or 0.0)}"
            )
            yield finding("export_is_behind", "", text)


def _check_hint(store: Store, inventory: Inventory, findings: Findings) -> None:
    try:
        data = store.get(object_names.HINT, 0, codec.MAX_HINT_BYTES + 1)
    except FileNotFoundError:
        return
    hinted = codec.decode_hint(data)
    if hinted is None:
        findings.add(finding("hint_is_off", object_names.HINT, "it is no version"))
    elif hinted > max(inventory.versions, default=0) and not list_versions(store, hinted):
        findings.add(
            finding(
                "hint_is_off", object_names.HINT, f"it says version {hinted}, which does not exist"
            )
        )
