"""The kinds of faults that a store can have, and which fault is the cause of which other one. Pure functions: no Spark,
and no database.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from store.rebuild.desired import acl_of
from store.rebuild.userareascan import name_at
from store.tables.index import Rows
from store.userarea.idxfile import DIRECTORY, MAGIC, Head
from store.userarea.paths import DELETED
from store.values import RESTORE, Finding, Repair

EXAMPLES = 10
APPLY = Repair.APPLY.of()
_END = slice(496, 504)          # where the directory of a store.idx has the octets of the whole file

# By kind: what is meant, and whether content is lost, so that only a copy from elsewhere mends it.
KINDS: dict[str, tuple[str, bool]] = {
    "message-missing": ("message files are missing", True),
    "message-octets": ("message files have other octets than their digests say", True),
    "message-cut": ("message files are shorter than they were", True),
    "message-long": ("message files are longer than they were", True),
    "message-other": ("message files hold another message", True),
    "message-unreadable": ("message files cannot be read", True),
    "message-misnamed": ("message files have another message's name", False),
    "message-stranger": ("files are there that nobody knows", False),
    "message-folder": ("message folders are missing, or cannot be listed", False),
    "message-size": ("message files have another size than the databases say", False),
    "staging": ("files were left over in staging/", False),
    "idx-missing": ("store.idx are missing", False),
    "idx-cut": ("store.idx are cut short", False),
    "idx-head": ("store.idx have a damaged head", False),
    "idx-rows": ("store.idx have damaged records", False),
    "idx-uids": ("store.idx have UIDs twice, or not in order", False),
    "idx-damaged": ("store.idx cannot be read, or are damaged elsewhere", False),
    "idx-fit": ("store.idx have records that do not fit their message files", False),
    "idx-records": ("store.idx have other records than their mailboxes", False),
    "idx-old": ("store.idx say other things of their mailboxes than is so", False),
    "idx-id": ("mailboxes have several store.idx", False),
    "idx-place": ("store.idx are not where their mailboxes' files belong", False),
    "idx-partition": ("store.idx name another partition", False),
    "idx-quota": ("store.idx name another quota root than their mailboxes have", False),
    "idx-rights": ("store.idx have rights that nobody can have set", False),
    "mailbox-name": ("mailboxes have a name that another one has", False),
    "index-chunk": ("chunks of index records do not agree with their checksums", False),
    "index-missing": ("index records are missing", False),
    "index-different": ("index records are others than they should be", False),
    "index-extra": ("index records are there that should not be", False),
    "index-fit": ("index records do not fit their messages", False),
    "index-uids": ("UIDs are twice there, not in order, or not below UIDNEXT", False),
    "index-flags": ("index records have flags or keywords that cannot be", False),
    "index-figures": ("figures of mailboxes are not what their records say", False),
    "index-orphans": ("records are there of mailboxes that are not", False),
    "own-flags": ("readers' own flags are damaged", False),
    "unique-ids": ("POP3 unique-ids from other servers are lost, or nobody's", False),
    "expunged": ("the records of expunged messages cannot be right", False),
    "header-fields": ("header fields of single messages have wrong numbers, or belong to none", False),
    "references-count": ("reference counts are wrong", False),
    "references-unknown": ("messages that records refer to are not known", False),
    "purge-list": ("the purge list is wrong", False),
    "serials": ("arrival serials are given twice", False),
    "cache-record": ("cache records are missing, or another message's", False),
    "quota-use": ("the use of quota roots is wrong", False),
    "quota-root": ("mailboxes are charged to the wrong quota root", False),
    "rights-table": ("the table of rights says other things than the mailboxes' ACLs", False),
    "rights-acl": ("ACLs have rights that do not exist", False),
    "aliases": ("the table of aliases says other things than the users' rows", False),
    "annotations": ("annotations are there of mailboxes that are not", False),
    "accounts": ("accounts are lost", False),
    "access": ("files of app passwords and second factors are damaged, or of users who are not", False),
    "accounts-kept": ("what users/directory keeps of accounts is missing, damaged, or not what is so", False),
    "list": ("the list of mailboxes is wrong", False),
    "outbox-receiver": ("something waits in the outbox for receivers that are not configured", False),
    "outbox-rows": ("rows of the outbox cannot be read", False),
    "partition-absent": ("partitions are only on the machine whose place this one has taken", False),
    "layout-kind": ("something else is where a file or a folder belongs", False),
    "layout-name": ("names are there that nothing of a store has", False),
    "layout-place": ("message files are in another's folder", False),
    "layout-access": ("files have the wrong owner or mode", False),
    "other": ("something else", False),
}

# What `store/check` says, by kind; the first that matches counts.
_CHECKS = [(re.compile(pattern), kind) for pattern, kind in (
    (r"what is kept of accounts", "accounts-kept"),
    (r"is only on .*, whose place", "partition-absent"),
    (r"its file is missing", "message-missing"),
    (r"its file cannot be read now", "message-unreadable"),
    (r"under another name", "message-misnamed"),
    (r"its file has \d+ octets|its trace header is", "message-size"),
    (r"nothing is known of this file", "message-stranger"),
    (r"the folder is missing|the folder cannot be read", "message-folder"),
    (r"is where a \w+ belongs", "layout-kind"),
    (r"nothing of a store has such a name", "layout-name"),
    (r"its place is another folder", "layout-place"),
    (r"it belongs to |can reach it|its owner cannot use it|it is where a partition lies", "layout-access"),
    (r"it was left over", "staging"),
    (r"it is missing", "idx-missing"),
    (r"it is damaged:", "idx-damaged"),
    (r"it has other records than", "idx-records"),
    (r"it says other things|it is ahead of its", "idx-old"),
    (r"index chunk \d+ ", "index-chunk"),
    (r"UIDs do not ascend|UID \d+ is not below", "index-uids"),
    (r"UID \d+ is not what is known", "index-fit"),
    (r"a message has a |two keywords have", "index-flags"),
    (r"own flags|flags of its own", "own-flags"),
    (r"unique-id", "unique-ids"),
    (r"of a mailbox that has no figures", "index-orphans"),
    (r"octets of expunged UIDs|was expunged|can be undeleted", "expunged"),
    (r"(messages|octets|unseen|deleted): |MODSEQ|it changed after|the first .Recent|its figures|has no figures",
     "index-figures"),
    (r"they have another number", "header-fields"),
    (r"header fields are kept for a message that is no more", "header-fields"),
    (r"records refer to it, and nothing", "references-unknown"),
    (r"records refer to it, counted|records that refer to it", "references-count"),
    (r"the purge", "purge-list"),
    (r"arrival serial", "serials"),
    (r"cache record", "cache-record"),
    (r"quota says", "quota-use"),
    (r"is charged to quota root", "quota-root"),
    (r"may look it up", "rights-table"),
    (r"its ACL has rights", "rights-acl"),
    (r"table of aliases", "aliases"),
    (r"annotations of", "annotations"),
    (r"the account is lost", "accounts"),
    (r"app passwords", "access"),
    (r"waits for a receiver that is not configured", "outbox-receiver"),
    (r"rows of the outbox cannot be read", "outbox-rows"),
    (r"records of a mailbox|has the same id|is not found by its id|also on record as deleted|has the id|has UIDVALIDITY"
     r"|which does not exist|was deleted at|of which nothing else is left", "list"),
)]

# What `idxfile` says of a damaged file, by kind.
_IDX = [(re.compile(pattern), kind) for pattern, kind in (
    (r"UIDs do not ascend", "idx-uids"),
    (r"its section |records instead of", "idx-rows"),
    (r"head", "idx-head"),
)]


@frozen
class Fault:
    """Something that is wrong. `where` is as in `store.findings`; `follows` is the place of the fault that it follows
    from, "" for one of its own."""

    kind: str
    where: str
    what: str
    repair: str
    partition: str = ""
    follows: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether content is gone that the store has nowhere else."""
        return KINDS[self.kind][1]


@frozen
class Damaged:
    """A file that does not hold what its name says: its octets, and the digests that it may have; None for what cannot
    be read."""

    octets: int
    digests: tuple[bytes, ...] | None


def kind_of(finding: Finding) -> str:
    """The kind of a finding of `store/check`."""
    return next((kind for pattern, kind in _CHECKS if pattern.search(finding.what)), "other")


def of_check(findings: Iterable[Finding]) -> list[Fault]:
    """The findings of `store/check` as faults."""
    return [Fault(kind_of(finding), finding.where, finding.what, finding.repair) for finding in findings]


# Message files

def damaged_file(found: Damaged, octets: int | None, wanted: Container[bytes], there: Container[bytes]
                 ) -> tuple[str, bytes | None]:
    """The kind of a file that is not what its name says; for one that is misnamed, the digest it should be named by.

    `octets` is how many it has by the records that have its name, None without any. `wanted` are digests of messages
    that are missing, `there` those of whole files.
    """
    if found.digests is None:
        return "message-unreadable", None
    right = next((digest for digest in found.digests if digest in wanted), None)
    if right is not None:
        return "message-misnamed", right
    if octets is None:
        return "message-stranger", None
    if any(digest in there for digest in found.digests):
        return "message-other", None
    if found.octets == octets:
        return "message-octets", None
    return ("message-cut" if found.octets < octets else "message-long"), None


def file_octets(rows: Rows, fields: Mapping[int, int]) -> NDArray[np.int64]:
    """How many octets the message files of these records have by them; `fields` are the octets of header fields that
    messages have in this mailbox alone, by number."""
    private_headers = np.array([fields.get(number, 0) for number in rows["head"].tolist()], np.int64)
    return rows["size"].astype(np.int64) + rows["header_length"].astype(np.int64) - private_headers


# store.idx

def idx_kind(texts: Sequence[str], start: bytes, size: int) -> str:
    """The kind of a damaged store.idx, of which `start` are the first octets, and `size` how many there are."""
    if start.startswith(MAGIC) and len(start) >= DIRECTORY and int.from_bytes(start[_END], "little") > size:
        return "idx-cut"
    return next((kind for pattern, kind in _IDX if any(pattern.search(text) for text in texts)), "idx-damaged")


def misplaced(folder: Path, path: str, head: Head, owner_place: Callable[[str], str]) -> bool:
    """Whether a file at that path below the partition's folder is not where the file of its mailbox belongs."""
    if head.removed:
        return path.split("/")[1:3] != [DELETED, str(head.id)]
    if str(name_at(folder / "users", folder / path)) != head.name:
        return True
    return bool(head.owner) and not path.startswith(f"users/{owner_place(head.owner)}/")


def wrong_rights(head: Head) -> tuple[str, str] | None:
    """The first entry of its ACL that nobody can have set: who, and which rights."""
    return min(head.acl.items() - acl_of(head).items(), default=None)


def several(places: Iterable[tuple[tuple[str, int], str, int, str]]) -> Iterator[tuple[str, str, str]]:
    """Mailboxes (by identity of their list, and id) of which there are several files: the partition and path of each
    file but the newest, and the path of that one. Given are identity and id, partition, when it was written, path."""
    by_id: dict[tuple[str, int], list[tuple[int, str, str]]] = {}
    for mailbox, partition, written, path in places:
        by_id.setdefault(mailbox, []).append((written, partition, path))
    for files in by_id.values():
        files.sort(reverse=True)
        yield from ((partition, path, files[0][2]) for _, partition, path in files[1:])


# Causes, and what follows from them

def with_causes(faults: Sequence[Fault], digests: Mapping[str, frozenset[bytes]], files: Mapping[str, str],
                misnamed: Mapping[bytes, str]) -> list[Fault]:
    """Each fault once, with those that follow from another one marked as such.

    `digests` are of the message files that wrong records of the index refer to, by mailbox; `files` gives the mailbox
    of the path of a store.idx, and `misnamed` the path of the file that has a message.
    """
    distinct: dict[tuple[str, str], Fault] = {}
    for fault in faults:
        distinct.setdefault((fault.kind, fault.where), fault)
    first = list(distinct.values())
    messages = {fault.where: fault.where for fault in first if fault.kind in _FILES}
    messages |= {message_at(digest): path for digest, path in misnamed.items()}
    broken = {fault.where for fault in first if fault.kind in _RECORDS}
    counted = {f"message {digest.hex()}": where for where, own_digests in digests.items() for digest in own_digests}
    damaged = {fault.where for fault in first if fault.kind in _IDX_DAMAGE}
    missing = {fault.where for fault in first if fault.kind == "index-missing"}
    return [evolve(fault, follows=fault.where if fault.kind == "index-extra" and fault.where in missing else _cause(
        fault, messages, broken, counted, damaged, files)) for fault in first]


_FILES = ("message-octets", "message-cut", "message-long", "message-other", "message-unreadable", "message-misnamed")
_RECORDS = ("index-missing", "index-different", "index-extra", "index-chunk")
_IDX_DAMAGE = ("idx-cut", "idx-head", "idx-rows", "idx-uids", "idx-id", "idx-place")


OF_MAILBOXES = ("idx-records", "idx-old")      # what may follow from what is wrong with the mailbox of a file


def _cause(fault: Fault, messages: Mapping[str, str], broken: set[str], counted: Mapping[str, str], damaged: set[str],
           files: Mapping[str, str]) -> str:
    """The place of the fault that this one follows from."""
    kind, where = fault.kind, fault.where
    if kind in ("message-size", "message-stranger", "message-missing", "cache-record") and where in messages:
        return messages[where]
    if kind in ("index-figures", "index-fit", "index-uids", "index-flags") and where in broken:
        return where
    if kind in ("references-count", "references-unknown") and where in counted:
        return counted[where]
    if kind in OF_MAILBOXES and files.get(where) in broken:
        return files[where]
    if kind in ("idx-damaged", "idx-records", "idx-old", "idx-missing") and where in damaged:
        return where
    return ""


def classes(faults: Iterable[Fault]) -> list[dict[str, Any]]:
    """Faults by kind, without those that follow from others: how many, and some examples; losses first."""
    found: dict[str, list[Fault]] = {}
    for fault in faults:
        if not fault.follows:
            found.setdefault(fault.kind, []).append(fault)
    order = sorted(found, key=lambda kind: (not KINDS[kind][1], list(KINDS).index(kind)))
    return [{"kind": kind, "what": KINDS[kind][0], "count": len(found[kind]), "loss": KINDS[kind][1],
             "repair": sorted({fault.repair for fault in found[kind]}),
             "examples": [{"where": fault.where, "what": fault.what} for fault in found[kind][:EXAMPLES]]}
            for kind in order]


def message_at(digest: bytes) -> str:
    """The place of a message file in findings."""
    return f"message {digest.hex()}"


def missing(digest: bytes, records: int, first: str, partition: str) -> Fault:
    """A message file that is not there."""
    return Fault("message-missing", message_at(digest), f"its file is missing; {records} records refer to it: "
                 f"first {first}", RESTORE, partition)
