"""The server side of the language between back ends, at the one that a user moves to.

Every message is examined before it takes effect, though TLS has verified the caller. A malformed message ends the
connection; a refusal of the store, of its disks and databases too, is the answer, and the caller decides. Each session
runs in a thread of its own.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
from attrs import define, field

from mboxlist import acl, names
from mboxlist.engine.transact import Failure
from store.accounts.apppasswords.accessrecord import Access
from store.accounts.builtin import User
from store.errors import StoreError
from store.partition.messagereading import MID_OCTETS
from store.problems import nothing_shown, problems
from store.store import Store
from store.tables.index import CHUNK, MAX_UID, OWN, ROW
from store.tables.quotatable import DEFAULT, QuotaUse
from store.tables.state import MailboxState
from store.tables.uidls import is_legal
from store.userarea.idxfile import HEAD_LIMIT, Head
from store.usermove import targetside
from store.usermove.messageformat import ANSWER_OCTETS, BadMessage, Ended, Message, Wire, encode, receive, whole
from store.usermove.peer import said_of
from store.usermove.receivemailboxes import Arrival
from store.usermove.rowformat import ASKED, HEADER, SEND_CHUNKS, chunks_of, table
from store.usermove.targetside import IncomingMoves

log = logging.getLogger(__name__)

ASKED_AT_ONCE = SEND_CHUNKS * CHUNK       # messages
FILE = 1 << 40                      # octets of a message file, at most
TRACE = 1 << 20                     # and of the trace header at its head
MANY = 100_000                      # items of a list in one message, where it has no other limit
_U32 = 1 << 32


@define(eq=False)
class Session:
    """The conversation with one caller, who is the back end `host`. `further`: what else that one may ask for; unless
    it `moves` users, nothing but that. `answered` is called when an answer has been sent; it may raise Ended."""

    wire: Wire
    host: str
    incoming: IncomingMoves
    further: Mapping[str, Callable[[Message], Any]] = {}
    moves: bool = True
    answered: Callable[[], None] = lambda: None
    _arrival: Arrival | None = field(default=None, init=False)
    _claims: ExitStack = field(factory=ExitStack, init=False)
    _failed: StoreError | None = field(default=None, init=False)        # of a file, which gets no answer of its own

    def run(self) -> None:
        """Until the caller has had enough."""
        moves: dict[str, Callable[[Message], Any]] = {
            "look": self._look, "begin": self._begin, "expect": self._expect, "ask": self._ask,
            "compare": self._compare, "file": self._file, "head": self._head, "rows": self._rows,
            "expunged": self._expunged, "purged": self._purged, "user": self._user,
            "subscriptions": self._subscriptions, "mailbox": self._mailbox, "vanished": self._vanished,
            "own": self._own, "uidls": self._uidls, "ready": lambda message: self._here.ready(),
            "activate": self._activate, "confirm": partial(self._after, targetside.confirm),
            "drop": partial(self._after, targetside.drop)}
        actions = {**(moves if self.moves else {}), **self.further}
        try:
            while True:
                message = receive(self._read)
                action = actions.get(message.text("op"))
                if action is None:
                    raise BadMessage("there is no such thing to do")
                self._do(action, message)
        except Ended as end:
            if end.args:
                log.warning("back end %s: %s", self.host, end)
        except BadMessage as error:
            log.error("back end %s: %s", self.host, error)
        finally:
            self._leave()
            self.wire.close()

    def _read(self, count: int) -> bytes:
        """Octets of the caller's. Raises Ended: an OSError within an action is then one of the store's files."""
        try:
            return self.wire.read(count)
        except OSError as error:
            raise Ended(str(error)) from error

    def _write(self, octets: bytes) -> None:
        """Raises Ended."""
        try:
            self.wire.write(octets)
        except OSError as error:
            raise Ended(str(error)) from error

    def _do(self, action: Callable[[Message], Any], message: Message) -> None:
        unanswered = message.fields["op"] in ("file", "head")
        try:
            if self._failed is not None and not unanswered:
                failed, self._failed = self._failed, None
                self._swallow(message)
                raise failed
            with nothing_shown(), problems():       # the caller asks again, and finds out what was done
                answer = action(message)
        except StoreError as refusal:
            if unanswered:
                self._failed = refusal
                return
            log.info("back end %s: %s: %s", self.host, message.fields["op"], refusal)
            self._write(encode(said_of(refusal)))
            return
        if not unanswered:
            fields, octets = answer if isinstance(answer, tuple) else (answer or {}, b"")
            self._write(encode(fields, octets, ANSWER_OCTETS))
            self.answered()

    def _swallow(self, message: Message) -> None:
        """What follows a message that is refused unread."""
        if message.fields["op"] == "mailbox":
            for _ in self._data(message.number("octets", 0, HEAD_LIMIT)):
                pass

    def _leave(self) -> None:
        arrival, self._arrival = self._arrival, None
        try:
            if arrival is not None:
                arrival.end()
        except (StoreError, Failure, OSError) as error:     # the next start, or the next try, removes it
            log.error("user move with %s: what came of a user cannot be removed: %s", self.host, error)
        finally:
            self._claims.close()

    @property
    def _here(self) -> Arrival:
        if self._arrival is None:
            raise BadMessage("nobody has begun to come")
        return self._arrival

    # Users

    def _look(self, message: Message) -> None:
        user = message.text("user")
        with self.incoming.alone(user):
            partition = targetside.look(self.incoming.store, user, message.text("partition"))
        if self._arrival is None:
            self._arrival = Arrival.looking(self.incoming.store, user, self.host, partition)

    def _begin(self, message: Message) -> None:
        self._leave()
        user = message.text("user")
        self._claims.enter_context(self.incoming.alone(user))
        self._arrival = targetside.begin(self.incoming.store, user, message.text("move", 64), self.host,
                                       message.text("partition"), self.incoming.side_by_side)

    def _activate(self, message: Message) -> None:
        user = message.text("user")
        try:
            access = Access.from_bytes(message.octets) if message.octets else Access(user)
        except ValueError as error:
            raise BadMessage(f"app passwords cannot be read: {error}") from None
        if access.user != user:
            raise BadMessage("the app passwords are somebody else's")
        self._after(partial(targetside.activate, access=access), message)

    def _after(self, step: Callable[[Store, str, str, str], None], message: Message) -> None:
        """One of the steps that follow when all has come."""
        self._leave()
        user = message.text("user")
        with self.incoming.alone(user):
            step(self.incoming.store, user, message.text("move", 64), self.host)

    # What comes of one

    def _expect(self, message: Message) -> None:
        self._here.expect([whole(each, "mailbox", 1, _U32) for each in message.list("mailboxes", MANY)])

    def _ask(self, message: Message) -> tuple[dict[str, Any], bytes]:
        return {}, bytes(self._here.ask(table(message.octets, ASKED, ASKED_AT_ONCE)))

    def _compare(self, message: Message) -> tuple[dict[str, Any], bytes]:
        return {}, bytes(self._here.compare(table(message.octets, HEADER, ASKED_AT_ONCE)))

    def _file(self, message: Message) -> None:
        octets, trace = message.number("octets", 0, FILE), message.number("trace", 0, TRACE)
        data = self._data(octets)
        try:
            digest = bytes.fromhex(message.text("digest", 2 * MID_OCTETS))
        except ValueError:
            raise BadMessage("mid is not a digest") from None
        if len(digest) != MID_OCTETS or trace > octets:
            raise BadMessage("mid is not a digest, or the trace header is longer than the file")
        try:
            if self._failed is None:
                self._here.receive(digest, trace, octets, whole=message.truth("whole"), data=data)
        finally:
            for _ in data:                          # what is left of a file that was refused
                pass

    def _data(self, octets: int) -> Iterator[bytes]:
        while octets:
            message = receive(self._read)
            if message.fields.get("op") != "data" or not message.octets or len(message.octets) > octets:
                raise BadMessage("more data, or other, than was announced")
            octets -= len(message.octets)
            yield message.octets

    def _head(self, message: Message) -> None:
        self._here.name_head(message.text("partition"), message.number("number", 1, _U32), message.octets)

    def _rows(self, message: Message) -> dict[str, Any]:
        numbers = [whole(each, "chunk", 0, MAX_UID // CHUNK + 1) for each in message.list("chunks", SEND_CHUNKS)]
        chunks = chunks_of(message.octets, numbers, message.numbers("counts", SEND_CHUNKS))
        return {"done": self._here.put(_mailbox(message), message.text("partition"), chunks)}

    def _expunged(self, message: Message) -> dict[str, Any]:
        rows = table(message.octets, ROW, SEND_CHUNKS * CHUNK)
        keywords = [word for word in message.texts("keywords", 64) if word and not set(word) & set(" \n\0")]
        return {"done": self._here.put_expunged(
            _mailbox(message), message.text("partition"), message.number("when", 0, _U32), message.number("modseq"),
            keywords, rows, first=message.truth("first"))}

    def _purged(self, message: Message) -> None:
        self._here.forget_expunged(_mailbox(message), message.number("when", 0, _U32), message.number("modseq"))

    def _user(self, message: Message) -> None:
        try:
            row = User.from_bytes(self._here.user, message.octets)
            row.to_bytes()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadMessage(f"the user's row cannot be read: {error}") from None
        limits = {}
        for root in message.list("roots", MANY):
            if not isinstance(root, list) or len(root) != 5 or not isinstance(root[0], str):
                raise BadMessage("that is no quota root")
            octets, messages = (whole(each, "limit", DEFAULT) for each in root[1:3])
            refused, warned = (whole(each, "date") for each in root[3:])
            limits[root[0]] = QuotaUse(0, 0, octets, messages, refused, warned)
        self._here.describe_user(row, limits)

    def _subscriptions(self, message: Message) -> None:
        self._here.subscribe([name for name in message.texts("names", MANY)
                              if name and len(name.encode()) <= names.MAX_PATH + 300 and not set(name) & set("\0\1\n")])

    def _mailbox(self, message: Message) -> None:
        text = b"".join(self._data(message.number("octets", 0, HEAD_LIMIT)))
        try:
            head = Head.from_bytes(text)
        except ValueError as error:
            raise BadMessage(f"what is said of a mailbox cannot be read: {error}") from None
        if not isinstance(message.fields.get("figures"), dict):
            raise BadMessage("figures are no object")
        figures = Message(message.fields["figures"])
        state = MailboxState(
            head.uidvalidity, figures.number("uidnext", 1, _U32), figures.number("highestmodseq", 1),
            figures.number("changed"), figures.number("recent", 0, _U32), figures.number("messages", 0, _U32),
            figures.number("unseen", 0, _U32), figures.number("deleted", 0, _U32), figures.number("octets"),
            self._here.partition.epoch, figures.number("log_since"), figures.number("logged", 0, _U32),
            figures.number("removed", 0, _U32), False, figures.text("quota_root", 2000),
            tuple(head.keywords))
        if state.removed != head.removed or max(state.changed, state.log_since) > state.highestmodseq:
            raise BadMessage("what is said of a mailbox contradicts itself")
        self._here.describe(_mailbox(message), head, state, message.text("digest", 64))

    def _vanished(self, message: Message) -> None:
        modseqs, lengths = message.numbers("modseqs", MANY), message.numbers("lengths", MANY)
        if len(modseqs) != len(lengths) or sum(lengths) != len(message.octets) or any(each % 8 for each in lengths):
            raise BadMessage("the log of expunged UIDs cannot be read")
        ends = np.cumsum(lengths).tolist()
        self._here.put_vanished(_mailbox(message), [
            (modseq, message.octets[end - length:end])
            for modseq, length, end in zip(modseqs, lengths, ends, strict=True)])

    def _own(self, message: Message) -> None:
        chunks = [whole(each, "chunk", 0, MAX_UID // CHUNK + 1) for each in message.list("chunks", MANY)]
        readers = message.texts("readers", MANY)
        own = table(message.octets, OWN, MANY * CHUNK)
        if len(chunks) != len(readers) or len(own) != CHUNK * len(chunks):
            raise BadMessage("readers' flags are not those of these chunks")
        if not all(reader and len(reader.encode()) <= acl.MAX_IDENTIFIER for reader in readers):
            raise BadMessage("that is no reader")
        self._here.put_own(_mailbox(message), [
            (number, reader, own[at * CHUNK:(at + 1) * CHUNK])
            for at, (number, reader) in enumerate(zip(chunks, readers, strict=True))])

    def _uidls(self, message: Message) -> None:
        uids = [whole(each, "uid", 1, _U32) for each in message.list("uids", MANY)]
        uidls = [text.encode() for text in message.texts("uidls", MANY)]
        if len(uids) != len(uidls) or not all(map(is_legal, uidls)):
            raise BadMessage("unique-ids that are none")
        self._here.put_uidls(_mailbox(message), dict(zip(uids, uidls, strict=True)))


def _mailbox(message: Message) -> int:
    return message.number("mailbox", 1, _U32)
