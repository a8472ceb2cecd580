"""Whether a table is whole: its chain, and everything that its readable versions list. Changes nothing. [RD10] [IV1] [IV6]

Not here: the rules between versions (core.audit), the listing (engine.inventory), what is in data files (engine.deep).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ..core import format
from ..core.audit import Finding, Kind, check_step, check_version, finding, other_table
from ..core.snapshot import Snapshot
from ..errors import CorruptMetadataError, StoreError, TableNotFoundError, UnsupportedFormatError
from ..store import Store
from .at_once import ahead
from .contents import Contents, reason
from .head import Head, list_versions, open_head, read_object
from .inventory import Inventory
from .session import Session

Progress = Callable[[str], None]

_TRIES = 5
_READERS = 8
_NAMED = 100  # versions of one gap, or left over, that are named one by one
_REPORTED = 10_000  # findings that are kept; the rest is counted


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at, and what was found. first, last: the readable versions; versions, manifests (runs among them), files: how many
    of them are listed and were looked at; objects: in the root; bytes: of the files; damages: how many findings are damage, also beyond the
    first 10,000 that `findings` holds; deep: whether data files were read. [RD10]"""

    url: str
    first: int
    last: int
    deep: bool
    versions: int = 0
    manifests: int = 0
    files: int = 0
    bytes: int = 0
    objects: int = 0
    damages: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged. Notes harm no one."""
        return not self.damages


class Findings:
    """What was found, each once; beyond a bound it is only counted."""

    def __init__(self) -> None:
        self._found: dict[tuple[Kind, str, str], Finding] = {}
        self.damages = 0

    def add(self, *found: Finding) -> None:
        for each in found:
            # Of a file one problem of a kind is enough; of a version each is another.
            key = (each.kind, each.object, each.problem if each.object.startswith(format.VERSIONS) or not each.object else "")
            if key in self._found:
                continue
            self.damages += each.severity == "damage"
            if len(self._found) < _REPORTED:
                self._found[key] = each

    def ordered(self) -> tuple[Finding, ...]:
        """Damage first."""
        return tuple(sorted(self._found.values(), key=lambda each: each.severity != "damage"))


def verify(session: Session, *, deep: bool = False, progress: Progress | None = None) -> VerifyReport:
    """Everything that readable versions list is there as it was listed, and the chain is whole; else findings that name objects. [RD10]

    One list of the root, one request per readable version, per manifest and per run; deep: every file is read, in threads. Memory: 17
    bytes per object, a manifest, eight versions. Nothing is written. Damage is reported, never raised; raised is what the store could not
    answer, and TableNotFoundError. Where gc expires meanwhile what seems to be missing, verifying starts over.
    """
    say = progress or (lambda step: None)
    for _ in range(_TRIES):
        found = Findings()
        head = _newest_readable(session.store, found)
        if head is None:
            return VerifyReport(url=session.store.url, first=0, last=0, deep=deep, damages=found.damages, findings=found.ordered())
        report = _verify(session.store, head, found, deep, say)
        if report.is_sound or not _has_expired_since(session.store, head.snapshot):
            return report
    raise StoreError(f"{session.store.url}: versions were expired {_TRIES} times while they were verified; try again when gc is done")


def _newest_readable(store: Store, found: Findings) -> Head | None:
    """The head; where that is damaged the highest version that is not, so that the rest can be looked at."""
    try:
        return open_head(store)
    except CorruptMetadataError:
        for version in reversed(list_versions(store)):
            head = _read(store, version)
            if isinstance(head, Head):
                return head
            if head is not None:
                found.add(finding("version_unreadable", format.version_name(version), head))
        return None


def _has_expired_since(store: Store, head: Snapshot) -> bool:
    """Whether something that was readable at this head no longer is."""
    try:
        newest = open_head(store).snapshot
    except (CorruptMetadataError, TableNotFoundError):
        return False
    tagged, still = ({tag.version for tag in each.tags.values()} for each in (head, newest))
    return newest.expired > head.expired or not tagged <= still


def _verify(store: Store, head: Head, found: Findings, deep: bool, say: Progress) -> VerifyReport:
    inventory = Inventory(store, head.snapshot, say)
    existing = _chosen(inventory, head.snapshot, found)
    contents = Contents(store, head.snapshot, inventory, found.add, deep=deep, progress=say)
    _walk(store, head, existing, contents, found, say)
    contents.finish()
    found.add(*inventory.findings, *inventory.left_over())
    _check_hint(store, inventory, found)
    if inventory.youngest.birth > head.version and inventory.youngest.birth > max(list_versions(store, head.version), default=0):
        youngest = inventory.youngest
        text = f"{youngest.name} is of a job that was born when it was the newest: it was lost, and all versions since"
        found.add(finding("version_missing", format.version_name(youngest.birth), text))
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
        damages=found.damages,
        findings=found.ordered(),
    )


def _chosen(inventory: Inventory, head: Snapshot, found: Findings) -> list[int]:
    """The readable versions whose objects exist, newest first; those that should exist are reported, and those that should not. [IV1]"""
    tags = {tag.version: name for name, tag in sorted(head.tags.items()) if 1 <= tag.version < head.expired}
    inside = [version for version in sorted(inventory.versions) if head.expired <= version <= head.version]
    below = [version for version in sorted(inventory.versions) if version < head.expired]
    before = head.expired - 1
    for version in (*inside, head.version + 1):
        for each in range(before + 1, min(version, before + 1 + _NAMED)):
            found.add(finding("version_missing", format.version_name(each), "it is missing although the version is not expired"))
        if version - before - 1 > _NAMED:
            text = f"with it all up to version {version - 1} are missing"
            found.add(finding("version_missing", format.version_name(before + 1 + _NAMED), text))
        before = version
    for version in sorted(tags.keys() - set(below)):
        text = f"it is missing although the tag {tags[version]!r} keeps the version"
        found.add(finding("version_missing", format.version_name(version), text))
    left = [version for version in below if version not in tags]
    for version in left[:_NAMED]:
        text = f"it stands below the lowest readable version, {head.expired}: gc has not come to it, or a writer brought it back"
        found.add(finding("version_leftover", format.version_name(version), text))
    if left[_NAMED:]:
        text = f"with it {len(left) - _NAMED:,} more stand below the lowest readable version, {head.expired}"
        found.add(finding("version_leftover", format.version_name(left[_NAMED]), text))
    return sorted((*inside, *(version for version in below if version in tags)), reverse=True)


def _walk(store: Store, head: Head, versions: Sequence[int], contents: Contents, found: Findings, say: Progress) -> None:
    """Each version, newest first, against the one above it; what it lists goes to `contents`. [OB1]"""
    above: Head | None = None  # one that nothing speaks against
    table_id = head.snapshot.table_id  # of the last such
    for count, (version, read) in enumerate(ahead(partial(_read, store), versions, threads=_READERS, most=_READERS)):
        each = read.result()
        if count % 20 == 0:
            say(f"verifying version {version:,} of {head.version:,}")
        name = format.version_name(version)
        if not isinstance(each, Head):
            text = each or "it was there when the root was listed, and is gone"
            found.add(finding("version_unreadable" if each else "version_missing", name, text))
            above = None
            continue
        snapshot = each.snapshot
        found.add(*check_version(snapshot))
        trusted = True
        if above is not None and above.version == version + 1:
            trusted = above.snapshot.parent_digest == each.digest
            if trusted:
                found.add(*check_step(snapshot, above.snapshot))
            else:
                text = f"version {above.version} was built on other bytes than these: one of the two was replaced"
                found.add(finding("version_replaced", name, text))
        elif snapshot.table_id != table_id:
            found.add(other_table(snapshot, table_id, "newer versions"))
        contents.add_version(snapshot)
        above = each if trusted else None
        table_id = snapshot.table_id if trusted else table_id


def _read(store: Store, version: int) -> Head | str | None:
    """The version, or why it cannot be read; None: it is not there."""
    try:
        return read_object(store, version)
    except (CorruptMetadataError, UnsupportedFormatError) as error:
        return reason(error)


def _check_hint(store: Store, inventory: Inventory, found: Findings) -> None:
    try:
        data = store.get(format.HINT, 0, 64)
    except FileNotFoundError:
        return
    hinted = format.decode_hint(data)
    if hinted is None:
        found.add(finding("hint_is_off", format.HINT, "it is no version"))
    elif hinted > max(inventory.versions, default=0) and not list_versions(store, hinted):
        found.add(finding("hint_is_off", format.HINT, f"it says version {hinted}, which does not exist"))
