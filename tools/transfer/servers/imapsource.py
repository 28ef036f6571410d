"""Another IMAP server, or a program that speaks IMAP, as a source of mailboxes.

It is only read. When the connection ends, another one goes on where that one was.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from attrs import define, evolve, field, frozen

from imap.wire import utf7
from imap.wire.dates import date_time
from imap.wire.framer import Frame
from imap.wire.grammar import SyntaxProblem
from imap.wire.numbers import format_numbers
from imap.wire.scanner import Scanner
from store.settings import SPECIAL_USES
from store.values import InternalDate
from tools.transfer.servers.imapconnection import Answer, Connection, Gone, Literal, Refused, octets_of, quoted
from tools.transfer.sourcevalues import (
    READ_OCTETS,
    Box,
    Content,
    Limits,
    Mail,
    OldScript,
    Source,
    Unreadable,
    Warn,
    batches,
    chosen,
    flags_of,
)

T = TypeVar("T")

FETCHES_AHEAD = 2           # FETCH commands that are under way at the same time
FETCH_MESSAGES, FETCH_OCTETS = 200, 8 << 20     # messages that one of them asks for, and what they have together
ID_MESSAGES = 500           # messages whose Message-IDs one of them asks for
CONNECTION_TRIES = 8        # one after the other, before it is given up
LONGEST_WAIT_SECONDS = 60   # before another one
LIMIT_DIGITS = 15           # of a limit of quota
_UNREADABLE = frozenset(("\\noselect", "\\nonexistent"))


@frozen
class Registered:
    """A mailbox as the server has it: its name on the wire, and its attributes in small letters."""

    wire: bytes
    attributes: frozenset[str]


@define(eq=False)
class ImapServer(Source):
    """The mailboxes of the user whom `connect` logs in. `patterns` say which (all if there are none), `renamed` what
    they are called here; `prefix` is where they go. `kept_scripts` fetches the user's Sieve scripts, which IMAP
    does not know of; `annotated`: annotations are asked for."""

    connect: Callable[[], Connection]
    warn: Warn
    patterns: Sequence[str] = ()
    renamed: Mapping[str, str] = field(factory=dict)
    prefix: str = ""
    kept_scripts: Callable[[], Sequence[OldScript]] = tuple
    annotated: bool = True
    sleep: Callable[[float], None] = time.sleep
    _connection: Connection | None = field(default=None, init=False)
    _selected: Box | None = field(default=None, init=False)
    _reached: bool = field(default=False, init=False)       # at least once
    _examined: object = field(default=None, init=False)
    _exists: int = field(default=0, init=False)
    _prefix: str = field(default="", init=False)        # of the personal name space there
    _foreign: Sequence[str] = field(default=(), init=False)
    _separator: str = field(default="/", init=False)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Names

    def boxes(self) -> Iterator[Box]:
        for named in self._again(self._listed):
            name = self._name(named.wire)
            if name is None or named.attributes & _UNREADABLE:
                continue
            use = next((use for use in SPECIAL_USES if use.lower() in named.attributes), None)
            yield Box(name, named.wire, special_use=use)

    def _listed(self, connection: Connection) -> list[Registered]:
        self._look_at_namespace(connection)
        able = connection.capabilities
        command = b'LIST "" "*"'
        if "SPECIAL-USE" in able and "LIST-EXTENDED" in able:
            command += b" RETURN (SPECIAL-USE)"
        found = []
        for answer in connection.run(command):
            if answer.status == b"LIST":
                _, attributes, separator, name = _first(answer.values(), 4)
                self._separator = _text(separator) or self._separator
                if isinstance(attributes, list):
                    found.append(Registered(octets_of(name), frozenset(str(each).lower() for each in attributes)))
        return found

    def _look_at_namespace(self, connection: Connection) -> None:
        """RFC 2342: where the user's own mailboxes are, and where those of others."""
        if "NAMESPACE" not in connection.capabilities:
            return
        for answer in connection.run(b"NAMESPACE"):
            if answer.status == b"NAMESPACE":
                own, *others = ([_text(each[0]) for each in space if isinstance(each, list) and each]
                                if isinstance(space, list) else [] for space in _first(answer.values(), 4)[1:])
                self._prefix = own[0] if own else ""
                self._foreign = [prefix for space in others for prefix in space if prefix]

    def _name(self, wire: bytes) -> str | None:
        """What the mailbox is called here; None when it is not wanted. Warn when it cannot be called so."""
        shown = wire.decode("utf-8", "replace")
        if any(shown.startswith(prefix) or shown + self._separator == prefix for prefix in self._foreign):
            return None
        try:
            text = utf7.decode(wire) if wire.isascii() else wire.decode("utf-8")
        except (SyntaxProblem, UnicodeError):
            self.warn(f"{shown}: its name is neither modified UTF-7 nor UTF-8")
            return None
        if text.upper() != "INBOX":
            text = text.removeprefix(self._prefix)
            levels = text.split(self._separator)
            if self._separator != "/" and "/" in text:
                levels = [level.replace("/", "_") for level in levels]
                self.warn(f"{text}: / separates levels here, so it becomes _")
            text = "/".join(levels)
        return chosen(text, self.patterns, self.renamed, self.prefix)

    def subscriptions(self) -> Sequence[str]:
        def work(connection: Connection) -> list[bytes]:
            return [octets_of(_first(answer.values(), 4)[3]) for answer in connection.run(b'LSUB "" "*"')
                    if answer.status in (b"LSUB", b"LIST") and b"\\noselect" not in answer.text.lower()]

        try:
            names = [self._name(wire) for wire in self._again(work)]
        except Refused as refusal:
            self.warn(f"subscriptions: {refusal}")
            return []
        return [name for name in names if name]

    def scripts(self) -> Sequence[OldScript]:
        return self.kept_scripts()

    def limits(self) -> Limits:
        """RFC 9208: of the quota roots of INBOX, the least limits."""
        return self._again(_limits)

    # Messages

    def opened(self, box: Box) -> Box:
        self._selected = box
        try:
            return self._again(self._all_about_it)
        except Refused as refusal:
            self._selected = None
            raise Unreadable(f"{box.name}: {refusal}") from refusal

    def _all_about_it(self, connection: Connection) -> Box:
        """The selected mailbox with its rights and annotations, where the server tells them."""
        assert self._selected is not None
        name = quoted(octets_of(self._selected.key))
        acl, annotations = None, dict[str, bytes]()
        for answer in _unless_refused(connection, "ACL", b"GETACL " + name):
            if answer.status == b"ACL":
                words = [_text(each) for each in answer.values()[2:]]
                acl = dict(zip(words[::2], words[1::2], strict=False))
        asked = b"GETMETADATA (DEPTH infinity) %b (/shared /private)" % name
        for answer in _unless_refused(connection, "METADATA", asked) if self.annotated else ():
            entries = _first(answer.values(), 3)[2] if answer.status == b"METADATA" else None
            if isinstance(entries, list):
                annotations |= {_text(entry).lower(): octets_of(value)
                                for entry, value in zip(entries[::2], entries[1::2], strict=False) if value is not None}
        self._selected = evolve(self._selected, acl=acl, annotations=annotations)
        return self._selected

    def _examine(self, connection: Connection, box: Box) -> Box:
        """Raises Refused, and Unreadable when the UIDs of before mean nothing any more."""
        validity = following = self._exists = 0
        for answer in connection.run(b"EXAMINE " + quoted(octets_of(box.key))):
            found = re.search(rb"\[(UIDVALIDITY|UIDNEXT) ([0-9]{1,10})\]", answer.text.upper())
            if found and found[1] == b"UIDVALIDITY":
                validity = int(found[2])
            elif found:
                following = int(found[2])
            elif (counted := re.fullmatch(rb"([0-9]{1,10}) EXISTS", answer.text.upper())) is not None:
                self._exists = int(counted[1])
        if box.uidvalidity and validity != box.uidvalidity:
            raise Unreadable(f"{box.name}: its UIDVALIDITY has changed meanwhile; begin again")
        return evolve(box, uidvalidity=validity, uidnext=following)

    def mails(self, box: Box, warn: Warn) -> Sequence[Mail]:
        def work(connection: Connection) -> list[Mail]:
            found: dict[int, Mail] = {}
            if self._exists:
                tag = connection.send(b"UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE)")
                for items in _fetches(connection, tag):
                    mail = _mail(box, items)
                    if mail is not None:
                        found[mail.uid] = mail
            return [found[uid] for uid in sorted(found)]

        try:
            return self._again(work)
        except Refused as refusal:
            raise Unreadable(f"{box.name}: {refusal}") from refusal

    def read(self, box: Box, mails: Sequence[Mail], warn: Warn) -> Iterator[Content]:
        left = {mail.uid: mail for mail in mails}
        failures, refusals = 0, list[str]()
        while left:
            try:
                for uid, literal in self._fetched(self._link(), list(left.values()), refusals):
                    mail = left.pop(uid, None)
                    if mail is not None:
                        failures = 0
                        yield mail, _chunks(literal)
                break
            except (Gone, OSError) as error:
                failures += 1
                self._wait(failures, error)
            except BaseException:           # answers are left that nobody reads
                self._drop()
                raise
        for mail in left.values():
            warn(f"{mail.where}: {refusals[-1] if refusals else 'it is gone there'}")

    def _fetched(self, connection: Connection, mails: Sequence[Mail], refusals: list[str]
                 ) -> Iterator[tuple[int, Literal | bytes]]:
        groups, tags = deque(batches(mails, FETCH_MESSAGES, FETCH_OCTETS)), deque[bytes]()
        while groups or tags:
            while groups and len(tags) < FETCHES_AHEAD:
                tags.append(connection.send(b"UID FETCH %b (UID BODY.PEEK[])" % _uid_set(groups.popleft())))
            try:
                for items in _fetches(connection, tags.popleft()):
                    uid, content = _uid(items), _content(items)
                    if uid and content is not None:
                        yield uid, content
            except Refused as refusal:          # of what it did not give it says why, and the others come
                refusals.append(str(refusal))

    def message_ids(self, box: Box, mails: Sequence[Mail]) -> Mapping[Mail, bytes]:
        def work(connection: Connection) -> dict[Mail, bytes]:
            found, by_uid = {}, {mail.uid: mail for mail in mails}
            for at in range(0, len(mails), ID_MESSAGES):
                uids = _uid_set(mails[at:at + ID_MESSAGES])
                tag = connection.send(b"UID FETCH %b (UID BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])" % uids)
                for items in _fetches(connection, tag):
                    content, mail = _content(items), by_uid.get(_uid(items))
                    if mail is not None and content is not None:
                        found[mail] = b"".join(octets_of(content).partition(b":")[2].split())
            return found

        try:
            return self._again(work)
        except Refused:
            return {}

    # The connection

    def _link(self) -> Connection:
        """A connection with the mailbox selected. Raises Gone, OSError, Refused, Unreadable."""
        if self._connection is None:
            try:
                made = self.connect()
            except Refused as refusal:
                raise Unreadable(f"login: {refusal}") from refusal
            self._connection, self._reached = made, True
            if not made.capabilities:
                made.capability()
            self._examined = None
        if self._selected is not None and self._examined != self._selected.key:
            self._selected = self._examine(self._connection, self._selected)
            self._examined = self._selected.key
        return self._connection

    def _again(self, work: Callable[[Connection], T]) -> T:
        """What `work` brings; it is done again on another connection when one ends. Raises Refused, Unreadable."""
        failures = 0
        while True:
            try:
                return work(self._link())
            except (Gone, OSError) as error:
                failures += 1
                self._wait(failures, error)
            except Unreadable:
                self._drop()
                raise

    def _drop(self) -> None:
        """Do without the connection, on which answers may be under way."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    def _wait(self, failures: int, error: Exception) -> None:
        """Before another connection. Raises Unreadable when it has been tried often enough."""
        self._drop()
        if failures >= CONNECTION_TRIES or not self._reached:
            raise Unreadable(f"the server cannot be reached: {error}") from error
        if failures > 1:
            self.sleep(min(2 ** (failures - 2), LONGEST_WAIT_SECONDS))


def _unless_refused(connection: Connection, extension: str, command: bytes) -> Sequence[Answer]:
    """The answers of a server that has the extension; none where the user may not ask: mail comes anyway."""
    if extension not in connection.capabilities:
        return ()
    try:
        return connection.run(command)
    except Refused:
        return ()


def _limits(connection: Connection) -> Limits:
    found: dict[str, int] = {}
    for answer in _unless_refused(connection, "QUOTA", b"GETQUOTAROOT INBOX"):
        resources = _first(answer.values(), 3)[2] if answer.status == b"QUOTA" else None
        words = [_text(each) for each in resources] if isinstance(resources, list) else []
        for name, limit in zip(words[::3], words[2::3], strict=False):
            if limit.isdigit() and len(limit) <= LIMIT_DIGITS:
                found[name.upper()] = min(int(limit), found.get(name.upper(), int(limit)))
    kibibytes = found.get("STORAGE")
    return Limits(None if kibibytes is None else kibibytes * 1024, found.get("MESSAGE"))


def _fetches(connection: Connection, tag: bytes) -> Iterator[list[object]]:
    """The items of each message that the command is answered with."""
    for answer in connection.answers(tag):
        if answer.text.upper().split(b" ", 2)[1:2] == [b"FETCH"]:
            items = _first(answer.values(), 3)[2]
            if isinstance(items, list):
                yield items


def _first(values: list[object], count: int) -> list[object]:
    """So many of the values; None for those that are missing."""
    return [*values, *[None] * count][:count]


def _item(items: Sequence[object], name: str) -> object:
    return next((value for key, value in zip(items, items[1:], strict=False)
                 if isinstance(key, str) and key.upper() == name), None)


def _uid(items: Sequence[object]) -> int:
    text = _text(_item(items, "UID"))
    return int(text) if text.isdigit() and len(text) <= 10 else 0


def _content(items: Sequence[object]) -> Literal | bytes | None:
    return next((value for value in items if isinstance(value, (Literal, bytes))), None)


def _mail(box: Box, items: Sequence[object]) -> Mail | None:
    """A message of the list; None for news of flags that came in between."""
    uid, size, date, names = _uid(items), _text(_item(items, "RFC822.SIZE")), _item(items, "INTERNALDATE"), _item(
        items, "FLAGS")
    if not uid or not size.isdigit() or not isinstance(names, list):
        return None
    try:
        received = date_time(Scanner(Frame((b'"%b"' % octets_of(date),))))
    except SyntaxProblem:
        received = InternalDate(0)
    return Mail(f"{box.name}: UID {uid}", received, flags_of(map(_text, names)), int(size), uid)


def _chunks(content: Literal | bytes) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.file as file:
        while data := file.read(READ_OCTETS):
            yield data


def _uid_set(mails: Sequence[Mail]) -> bytes:
    return format_numbers(sorted(mail.uid for mail in mails))


def _text(value: object) -> str:
    return octets_of(value).decode("utf-8", "replace")
