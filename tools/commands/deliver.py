"""onecopy deliver, path, hashdir"""

import sys
from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO

from store import offload
from store.accounts.base import Account, delivery_problem
from store.delivery import durable
from store.delivery.commit import Delivered, Outcome, Target
from store.errors import Problem, StoreError
from store.store import Store
from tools.cli.invocation import Invocation, Parsers
from tools.cli.lookup import account, mailbox
from tools.cli.output import print_json
from tools.exits import Failure
from tools.transfer.sourcevalues import crlf

READ_OCTETS = 128 * 1024


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("deliver", deliver, "deliver the message on standard input; it is stored once for all users")
    made.add_argument("users", nargs="+", metavar="USER")
    made.add_argument("--mailbox", default="INBOX", metavar="NAME", help="default: INBOX")
    made.add_argument("-q", "--ignore-quota", action="store_true", help="deliver also to users over quota")
    made.add_argument("--raw", action="store_true", help="keep line ends as they are, even if they are bare LFs")
    made.add_argument("--json", action="store_true")
    made = parser("path", path, "print where the file of a message is")
    made.add_argument("user", metavar="USER")
    made.add_argument("mailbox", metavar="MAILBOX")
    made.add_argument("uid", type=int, metavar="UID")
    made.add_argument("--json", action="store_true")
    made = parser("hashdir", hashdir, "print a user's folder in the user area of its partition")
    made.add_argument("user", metavar="USER")


def deliver(invocation: Invocation) -> int:
    """onecopy deliver"""
    arguments = invocation.arguments
    status, rows = 0, []
    with invocation.store() as opened:
        targets: dict[int, Target] = {}
        for user in arguments.users:
            try:
                user_id = _open_account(opened, user, ignore_quota=arguments.ignore_quota).user
                entry = mailbox(opened, user_id, arguments.mailbox)
                targets[entry.id] = Target(entry, ignore_quota=arguments.ignore_quota)
            except StoreError as error:
                print(f"onecopy: {user}: {error.public}", file=sys.stderr)
                status = 1
        if not targets:
            return status
        outcomes = _deliver(opened, list(targets.values()), arguments.raw)
        for outcome, target in zip(outcomes, targets.values(), strict=True):
            if isinstance(outcome, Delivered):
                rows.append({"user": outcome.entry.name.owner, "mailbox": outcome.entry.name.path, "uid": outcome.uid})
            elif isinstance(outcome, StoreError):
                print(f"onecopy: {target.entry.name.owner}: {outcome.public}", file=sys.stderr)
                status = 1
    if arguments.json:
        print_json(rows)
    else:
        for row in rows:
            print(f"{row['user']} {row['mailbox']} {row['uid']}")
    return status


def _open_account(opened: Store, address: str, *, ignore_quota: bool) -> Account:
    """The account, if it may get mail. Raises StoreError NO_USER, and with what its status says."""
    user = account(opened, address)
    problem = delivery_problem(user.status)
    if problem is not None and not (ignore_quota and problem is Problem.OVER_QUOTA):
        raise StoreError(problem)
    return user


def _deliver(opened: Store, targets: list[Target], raw: bool) -> list[Outcome]:
    if sys.stdin is None:
        raise Failure("no message: standard input is closed")
    staged = opened.stage(targets[0].entry)
    try:
        source = sys.stdin.buffer
        for chunk in _octets(source) if raw else with_crlf(_octets(source)):
            staged.write(chunk)
            if staged.full:
                staged.spill()
    except BaseException:
        staged.abort()
        raise
    return offload.now(durable.deliver(opened, staged, targets))


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
        print(opened.partitions[user.partition].user_folder(user.user))
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
