"""onecopy deliver, path, hashdir"""

import os
import pwd
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

from lmtp import noting
from lmtp.refusals import refusal
from lmtp.replies import Reply
from lmtp.settings import Settings
from store import offload
from store.accounts.base import Account, delivery_problem
from store.delivery import durable
from store.delivery.commit import Delivered, Outcome, Target
from store.deliverylog import FileDeliveryLog
from store.errors import Problem, StoreError
from store.operations import clockrecord
from store.partition.staged import Staged
from store.store import Store
from tools.cli.invocation import Invocation, Parsers, typed
from tools.cli.lookup import account, flags_of, mailbox, moment
from tools.cli.output import print_json
from tools.exits import Failure, in_full
from tools.transfer.sourcevalues import crlf

READ_OCTETS = 128 * 1024
DELIVERIES = "deliver"              # begins the names of the files of the delivery log
OK = Reply(250, "2.1.5", ("Delivered",))


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("deliver", deliver, "deliver the message on standard input; it is stored once for all users")
    made.set_defaults(run_by=os.getuid())       # before root acts as the owner of the store
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--mailbox", default="INBOX", metavar="NAME", help="default: INBOX")
    made.add_argument("-q", "--ignore-quota", action="store_true", help="deliver also to users over quota")
    made.add_argument("--flag", action="append", default=[], metavar="FLAG", help="with this flag: seen, flagged, "
                      "draft, or a keyword such as $Junk; can be repeated")
    made.add_argument("--date", type=typed(moment), metavar="TIME", help="with this internal date: 2026-01-31, "
                      "2026-01-31T12:00, with or without a zone; default: now")
    made.add_argument("--raw", action="store_true", help="keep line ends as they are, even if they are bare LFs")
    made.add_argument("--json", action="store_true")
    made = parser("path", path, "print where the file of a message is")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("uid", type=int, metavar="UID")
    made.add_argument("--json", action="store_true")
    made = parser("hashdir", hashdir, "print a user's folder in the user area of its partition")
    made.add_argument("user", metavar="USER")
    made.add_argument("--json", action="store_true")


def deliver(invocation: Invocation) -> int:
    """onecopy deliver"""
    arguments = invocation.arguments
    status, rows = 0, []
    repeat = invocation.config.settings("lmtp", Settings).repeat_window
    flags = flags_of(arguments.flag)
    with invocation.store() as opened, _noted(opened, arguments.run_by) as envelope:
        targets: dict[int, Target] = {}
        addresses: dict[int, str] = {}
        for user in arguments.users:
            try:
                user_id = _open_account(opened, user, ignore_quota=arguments.ignore_quota).user
                entry = mailbox(opened, user_id, arguments.mailbox)
                targets[entry.id] = Target(entry, flags, ignore_quota=arguments.ignore_quota, repeat=repeat)
                addresses.setdefault(entry.id, user)
            except StoreError as error:
                noting.refused(opened.delivery_log, envelope, (user,), refusal(error), noting.why(error))
                print(f"onecopy: {user}: {in_full(error)}", file=sys.stderr)
                status = 1
        if not targets:
            return status
        for user, outcome in _deliver(opened, targets, addresses, envelope, arguments):
            if isinstance(outcome, Delivered):
                rows.append({"user": outcome.entry.name.owner, "mailbox": outcome.entry.name.path, "uid": outcome.uid})
            elif isinstance(outcome, StoreError):
                print(f"onecopy: {user}: {outcome.public}", file=sys.stderr)
                status = 1
            else:
                print(f"onecopy: {user}: has it from a delivery that may have had no answer (lmtp.repeat_window)",
                      file=sys.stderr)
    if arguments.json:
        print_json(rows)
    else:
        for row in rows:
            print(f"{row['user']} {row['mailbox']} {row['uid']}")
    return status


@contextmanager
def _noted(opened: Store, run_by: int) -> Iterator[noting.Envelope]:
    """What becomes of the message comes into the delivery log, as what relays bring; by whom the command was run, too.
    """
    opened.delivery_log = FileDeliveryLog(opened.root, DELIVERIES, lambda: (
        opened.settings.journal_size, opened.settings.journal_time), goes_on=True, holds_back=partial(
            clockrecord.holds_back, opened.root))
    try:
        yield noting.Envelope("", f"onecopy deliver, run by {_name_of(run_by)}", None)
    finally:
        opened.delivery_log.close()


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _open_account(opened: Store, address: str, *, ignore_quota: bool) -> Account:
    """The account, if it may get mail. Raises StoreError NO_USER, and with what its status says."""
    user = account(opened, address)
    problem = delivery_problem(user.status)
    if problem is not None and not (ignore_quota and problem is Problem.OVER_QUOTA):
        raise StoreError(problem)
    return user


def _deliver(opened: Store, targets: Mapping[int, Target], addresses: Mapping[int, str], envelope: noting.Envelope,
             arguments: Any) -> Iterator[tuple[str, Outcome]]:
    """Take the message on standard input; the owner of each mailbox, and what became of it there. Raises Failure when
    there is no message."""
    if sys.stdin is None:
        raise Failure("no message: standard input is closed")
    where = list(targets.values())
    staged = opened.stage(where[0].entry)
    try:
        _receive(staged, raw=arguments.raw)
        outcomes = offload.now(durable.deliver(opened, staged, where, arguments.date))
    except StoreError as error:
        noting.refused(opened.delivery_log, envelope, tuple(addresses.values()), refusal(error), noting.why(error))
        raise
    replies = [refusal(outcome) if isinstance(outcome, StoreError) else OK for outcome in outcomes]
    ids = [target.entry.id for target in where]
    noting.message(opened.delivery_log, envelope, staged, ids, list(addresses.values()), replies,
                   dict(zip(ids, outcomes, strict=True)))
    yield from zip((str(target.entry.name.owner) for target in where), outcomes, strict=True)


def _receive(staged: Staged, *, raw: bool) -> None:
    """Raises StoreError TOO_BIG, DISK_FULL; Failure when there is nothing."""
    source, empty = sys.stdin.buffer, True
    try:
        for chunk in _octets(source) if raw else with_crlf(_octets(source)):
            empty = empty and not chunk.strip(b"\r\n")
            if staged.write(chunk):
                staged.spill()
        if empty:
            raise Failure("no message: there is nothing on standard input")
    except BaseException:
        staged.abort()
        raise


def _octets(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(READ_OCTETS):
        yield chunk


def with_crlf(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The message with CRLF line ends (RFC 5322 §2.3). One whose first line ends with CRLF already is left alone."""
    head = b""
    for chunk in chunks:
        head += chunk
        if b"\n" in head or len(head) > READ_OCTETS:
            break
    change = head.find(b"\n") >= 0 and not head[:head.find(b"\n")].endswith(b"\r")
    last = b""
    for chunk in chain([head] if head else [], chunks):
        yield crlf(chunk, last) if change else chunk
        last = chunk[-1:]


def hashdir(invocation: Invocation) -> int:
    """onecopy hashdir"""
    with invocation.store() as opened:
        user = account(opened, invocation.arguments.user)
        found = opened.partitions[user.partition].user_folder(user.user)
    if invocation.arguments.json:
        print_json({"user": user.user, "partition": user.partition, "path": str(found)})
    else:
        print(found)
    return 0


def path(invocation: Invocation) -> int:
    """onecopy path"""
    arguments = invocation.arguments
    with invocation.store() as opened:
        entry = mailbox(opened, arguments.user, arguments.mailbox)
        rows = opened.open_mailbox(entry).rows
        row = next(iter(rows[rows["uid"] == arguments.uid]), None) if 0 < arguments.uid < 1 << 32 else None
        if row is None:
            raise StoreError(Problem.GONE, f"There is no message with UID {arguments.uid}")
        digest = bytes(row["digest"])
        found = opened.partition_of(entry).files.locate(digest, int(row["serial"]))
        if found is None:
            raise StoreError(Problem.CORRUPT, f"The message file {digest.hex()} is missing")
        facts = {"path": str(found), "mid": digest.hex(), "skip": int(row["header_length"]), "size": int(row["size"])}
        if row["head"]:
            facts["header"] = opened.partition_of(entry).private_headers.find(int(row["head"])).decode("utf-8",
                                                                                                       "replace")
    if arguments.json:
        print_json(facts)
    else:
        print(facts["path"])
    return 0
