"""Notices: a message to a user whose quota root is nearly full, one in each interval (setting `quota_notice_interval`).

Where a relay is configured ([outbox.NAME], smtp), a notice leaves by the outbox: the transaction that notes that the
user was warned writes it, so it is sent whenever the process ends. A root in which it would not fit any more gets it as
it does without a relay, which could only be refused: into its user's INBOX, past the quota. That way it is delivered at
most once: that it goes out is on disk first, and if the process ends before the message is, the next one goes out an
interval later.

A template (setting `quota_notice`) is a message: fields, an empty line, a text; in UTF-8. In both, names in brackets
stand for what is different from user to user: [USER] [ADDRESS] [DOMAIN] [MAILBOX] [PERCENT] [OCTETS] [OCTET_LIMIT]
[MESSAGES] [MESSAGE_LIMIT] [GRACE].
"""

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime
from itertools import islice

from mboxlist import privatefiles
from mboxlist.names import PUBLIC, SEPARATOR
from store.accounts.base import Account
from store.delivery.commit import Target
from store.delivery.inthread import deliver_here
from store.errors import Problem, StoreError
from store.events import outgoingmail
from store.mailboxes import firstuse
from store.partition.transactions import WriteTxn
from store.settings import Settings
from store.store import Store
from store.tables.quotatable import QuotaUse
from store.values import InternalDate, readable

log = logging.getLogger(__name__)

MOST = 500                  # notices that go out in one round
LONGEST = 64 << 10          # octets of a template
TRACE = b"Return-Path: <>\r\n"      # nobody is to answer (RFC 3834 §2)

OFF, ON = "off", "on"

_VARIABLE = re.compile(r"\[([A-Z_]+)\]")
_FIELD = re.compile(r"([!-9;-~]+):[ \t]*([^\r\n]*)")
_OURS = frozenset({"to", "date", "message-id", "auto-submitted", "mime-version", "return-path"})

BUILT_IN = """\
From: Mail system <postmaster@[DOMAIN]>
Subject: Your mailbox is [PERCENT] % full

The mail of [ADDRESS][MAILBOX] uses [PERCENT] % of its quota:

    [OCTETS] of [OCTET_LIMIT]
    [MESSAGES] of [MESSAGE_LIMIT] messages

When the quota is used up, new mail is refused: its senders' systems try again
for [GRACE], and then it goes back to them. Please delete what you
do not need any more, and empty the trash.
"""


def pending(store: Store, now: float | None = None) -> Iterator[tuple[str, str]]:
    """The roots whose users are to get a notice now, with their partitions."""
    for partition in store.writable.values():
        when = int(partition.quotas.clock() if now is None else now)
        found = [root for root, use in partition.quotas.all() if _is_due(use, when, store.settings)]
        for root in found:
            if _account(store, root) is not None:
                yield partition.name, root


def due(store: Store) -> Iterator[tuple[str, str]]:
    """Notices for housekeeping: nothing when notices are off, and not too many at a time."""
    return islice(pending(store), MOST) if store.settings.quota_notice != OFF else iter(())


def _is_due(use: QuotaUse, now: int, settings: Settings) -> bool:
    return use.deserves_warning(settings) and now - use.warned >= settings.quota_notice_interval


def _account(store: Store, root: str) -> Account | None:
    """Whose root it is, if a notice can be read there."""
    account = None if root.startswith(PUBLIC) else store.directory.find(root.partition(SEPARATOR)[0])
    return account if account is not None and account.status.may_log_in else None


def send(store: Store, item: tuple[str, str], now: float | None = None) -> int:
    """Send the notice for a root of a partition, or deliver it into its user's INBOX, if it is due still; how many.

    Quota does not keep it out. For a thread. Raises StoreError.
    """
    name, root = item
    partition = store.partitions[name]
    when = int(partition.quotas.clock() if now is None else now)
    account = _account(store, root)
    use = partition.quotas.find(root)
    if account is None or not _is_due(use, when, store.settings):
        return 0
    octets = compose(root, use, store.settings, when, template(store.settings))
    entry = firstuse.inbox(store, account)
    leaves = outgoingmail.may_leave(store.recorder) and use.has_room(len(octets), 1, store.settings)

    def claim(txn: WriteTxn) -> bool:
        is_due = _is_due(partition.quotas.find(root, txn.handle), when, store.settings)
        if is_due:
            partition.quotas.set_warned(root, when, txn.handle)
            if leaves:
                outgoingmail.add(store.recorder, partition.outbox, "", [_address(root, store.settings)], octets,
                                 txn.handle)
        return is_due

    if not partition.transact(claim):
        return 0
    partition.flush()
    if not leaves:
        deliver_here(store.partition_of(entry), Target(entry, ignore_quota=True), octets, InternalDate(when), TRACE)
    log.info("%s was told that its quota is %s", root, use.describe(store.settings))
    return 1


def _address(root: str, settings: Settings) -> str:
    """Of the user whose root it is."""
    user = root.partition(SEPARATOR)[0]
    return user if "@" in user else f"{user}@{settings.default_domain}"


def template(settings: Settings) -> str:
    """The text from which notices are made. Raises StoreError UNAVAILABLE when it cannot be read."""
    if settings.quota_notice in (OFF, ON):
        return BUILT_IN
    try:
        with privatefiles.open_named(settings.quota_notice) as file:
            data = file.read(LONGEST + 1)
        if len(data) > LONGEST:
            raise ValueError(f"has more than {LONGEST} octets")
        return data.decode().replace("\r\n", "\n")
    except (OSError, ValueError) as error:
        raise StoreError(Problem.UNAVAILABLE, f"The template {settings.quota_notice} cannot be used: {error}"
                         ) from error


def compose(root: str, use: QuotaUse, settings: Settings, now: int, text: str) -> bytes:
    """The notice, a message of RFC 5322 with CRLF line ends, of a root as it is at that Unix time.

    Raises StoreError UNAVAILABLE when the template, or an address, is not one.
    """
    user, _, path = root.partition(SEPARATOR)
    local, _, domain = user.partition("@")
    domain = domain or settings.default_domain
    octet_limit, message_limit = use.limits(settings)
    values = {
        "USER": user, "ADDRESS": f"{local}@{domain}", "DOMAIN": domain, "MAILBOX": f" in {path}" if path else "",
        "PERCENT": str(use.per_cent(settings) or 0), "OCTETS": readable(use.octets),
        "OCTET_LIMIT": "any amount" if octet_limit is None else readable(octet_limit), "MESSAGES": str(use.messages),
        "MESSAGE_LIMIT": "any number of" if message_limit is None else str(message_limit),
        "GRACE": _period(settings.quota_grace)}
    try:
        fields, body = _parts(text)
        message = EmailMessage(policy=SMTP if f"{local}{domain}".isascii() else SMTPUTF8)
        for name, value in fields:
            message[name] = _filled(value, values)
            if message[name].defects:
                raise ValueError(f"{name}: {message[name].defects[0]}")
        if "From" not in message:
            message["From"] = Address("", "postmaster", domain)
        message["To"] = Address("", local, domain)
        message["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
        message["Message-ID"] = f"<quota.{now}.{secrets.token_hex(8)}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"            # RFC 3834 §5
        message.set_content(_filled(body, values), charset="utf-8", cte="quoted-printable")
        return message.as_bytes()
    except (ValueError, LookupError, AttributeError, TypeError) as error:       # what `email` raises for bad fields
        raise StoreError(Problem.UNAVAILABLE, f"A notice to {user} cannot be made: {error}") from error


def _parts(text: str) -> tuple[list[tuple[str, str]], str]:
    """The fields of a template that are its own to set, and its text. Raises ValueError."""
    head, separator, body = text.lstrip("\ufeff").partition("\n\n")
    fields = []
    for line in head.split("\n"):
        match = _FIELD.fullmatch(line)
        if match is None or not separator:
            raise ValueError("a template begins with fields (Subject: ...) and an empty line")
        name = match[1].lower()
        if name not in _OURS and not name.startswith("content-"):
            fields.append((match[1], match[2]))
    return fields, body


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)


def _period(seconds: int) -> str:
    for amount, unit in ((86400, "days"), (3600, "hours")):
        if seconds >= amount * 2:
            return f"{seconds // amount} {unit}"
    return f"{seconds // 60} minutes"
