"""What a client must hear for what it has sent: RFC 3501 §2.2, §5.2 to §5.5, §7; RFC 2177, RFC 7162 §3.2.10, RFC 7888.

Every command has one tagged answer, in order; what is told of messages fits what the client knows of them.
"""

import re

from attrs import define, field

from tests.support.grammar import TAG, Incomplete, response_at

NUMBERED = (b"FETCH", b"STORE", b"SEARCH", b"SORT", b"THREAD")         # RFC 3501 §7.4.1
SELECTING = (b"SELECT", b"EXAMINE")
STATIC = (b"RFC822.SIZE", b"ENVELOPE", b"BODYSTRUCTURE", b"BODY", b"INTERNALDATE")       # RFC 3501 §9 msg-att-static
_LITERAL = re.compile(rb"\{([0-9]+)(\+?)\}$")
_NAME = re.compile(rb" ((?:UID )?[A-Za-z-]+)", re.IGNORECASE)


@define
class Client:
    """Follows a session from the client's side: gets each piece that is sent with what has been answered to it."""

    line_limit: int
    waiting: bytes = b""                # sent, and not looked at yet
    over: bool = False
    answered: int = 0                   # commands
    well: int = 0                       # of them OK
    # The command being sent or answered: what is due next, and who it is.
    _due: str = "line"                  # line, more (of the command), octets, go, answer, ready (+), done (its line)
    _left: int = 0
    _tag: bytes | None = None           # None: nobody can say which
    _name: bytes = b""                  # nothing between two commands
    # What the client knows.
    exists: int | None = None           # None: nothing is selected
    _opened: bool = False               # this SELECT has told a number of messages, or that the old mailbox is closed
    _uids: list = field(factory=list)
    _static: dict = field(factory=dict)
    _enabled: set = field(factory=set)
    _octets: bytes = b""
    _cut_off: bool = False

    def greeted(self, octets):
        """The connection is there."""
        self._octets = octets
        greeting = self._next()
        assert greeting[0] in ("OK", "BYE")
        self.over = greeting[0] == "BYE"
        self._nothing_more()

    def sent(self, piece, octets, *, cut_off=False):
        """Sent a piece, and got `octets` for it. Raises AssertionError.

        `cut_off`: the server has ended the connection, as it must when it cannot go on with half a response.
        """
        self._cut_off = cut_off
        if self.over:
            assert not octets, octets
            return
        self._octets += octets
        self.waiting += piece
        while not self.over and self._STEPS[self._due](self):
            pass
        self._nothing_more()

    @property
    def utf8(self):
        """Whether quoted strings may have UTF-8."""
        return not self._enabled.isdisjoint((b"IMAP4rev2", b"UTF8=ACCEPT"))

    # Responses

    def _next(self):
        """The next response; None if there is none."""
        if not self._octets:
            return None
        try:
            response, end = response_at(self._octets, utf8=self.utf8)
        except Incomplete:
            if self._cut_off and self._name.endswith(b"FETCH"):
                self.over, self._octets = True, b""
                return None
            raise AssertionError(f"half a response: {self._octets[-300:]!r}") from None
        self._octets = self._octets[end:]
        return response

    def _until(self, *kinds):
        """The next response of these kinds; what comes before is heard. None when the connection has ended."""
        while (response := self._next()) is not None:
            if response[0] in kinds:
                return response
            self._hear(response)
        assert self.over, f"{self._name} has no answer, it is {self._due}"
        return None

    def _nothing_more(self):
        """What is left can only be news while a client waits in IDLE, and a goodbye."""
        while (response := self._next()) is not None:
            if response[0] in ("tagged", "BAD"):
                # The rest of a command would be too much to swallow.
                assert self._due in ("octets", "more") and response[-1 - (response[0] == "tagged")] != "OK"
                self._is_mine(response)
                response = self._next()
                assert response is not None and response[0] == "BYE", response
            assert self._due == "done" or response[0] == "BYE", (self._due, response)
            self._hear(response)

    def _is_mine(self, response):
        """It answers the command."""
        if response[0] == "tagged":
            assert self._tag in (None, response[1]), (self._tag, response)
        else:
            assert self._tag is None, (self._tag, response)

    # What is due. Each returns whether it has come; there may be more then.

    def _command(self):
        line, ended, rest = self.waiting.partition(b"\n")
        if not ended:
            return False
        self.waiting = rest
        line = line.removesuffix(b"\r")
        tag = TAG.match(line)
        whole = tag is not None and tag.end() < self.line_limit and line[tag.end():tag.end() + 1] == b" "
        self._tag = tag[0] if whole else None
        name = _NAME.match(line, tag.end()) if whole else None
        self._name = name[1].upper() if name is not None else b"?"
        if self._name[:4] != b"UID ":
            self._name = self._name.partition(b" ")[0]
        self._opened = False
        return self._announced(line, first=True)

    def _announced(self, line, *, first):
        literal = _LITERAL.search(line)
        if literal is not None:
            self._left = int(literal[1])
            self._due = "octets" if literal[2] else "go"
        else:
            self._due = "ready" if first and self._name in (b"IDLE", b"AUTHENTICATE") else "answer"
        return True

    def _more(self):
        line, ended, rest = self.waiting.partition(b"\n")
        if not ended:
            return False
        self.waiting = rest
        return self._announced(line.removesuffix(b"\r"), first=False)

    def _literal(self):
        taken = min(self._left, len(self.waiting))
        self.waiting, self._left = self.waiting[taken:], self._left - taken
        if not self._left:
            self._due = "more"
        return not self._left

    def _go(self):
        response = self._until("+", "tagged", "BAD")
        if response is None:
            return False
        if response[0] == "+":
            self._due = "octets"
        else:
            assert response[-2] != "OK" or response[0] == "BAD", response
            self._ended(response)
        return True

    def _answer(self):
        response = self._until("tagged", "BAD")
        if response is None:
            return False
        self._ended(response)
        return True

    def _ready(self):
        response = self._until("+", "tagged", "BAD")
        if response is None:
            return False
        if response[0] == "+":
            self._due = "done"
        else:
            self._ended(response)
        return True

    def _done(self):
        line, ended, rest = self.waiting.partition(b"\n")
        if not ended:
            return False
        self.waiting = rest
        self._due = "ready" if self._name == b"AUTHENTICATE" else "answer"      # a mechanism may ask several times
        return True

    def _ended(self, response):
        """The command has been answered."""
        self._is_mine(response)
        status = response[2] if response[0] == "tagged" else "BAD"
        name, self._name, self._due = self._name, b"", "line"
        self.answered += 1
        self.well += status == "OK"
        if name in SELECTING:
            assert status != "OK" or self.exists is not None and self._opened
            if status == "NO" or status == "BAD" and self._opened:
                self.exists = None
        if status != "OK":
            return
        if name in (b"CLOSE", b"UNSELECT", b"UNAUTHENTICATE"):
            self.exists = None
        if name == b"UNAUTHENTICATE":
            self._enabled.clear()
        if name == b"STARTTLS":
            self.waiting = b""          # RFC 3501 §6.2.1: what was sent ahead is dropped
        if name == b"LOGOUT":
            assert self.over

    # What is told

    def _hear(self, response):
        kind = response[0]
        hear = getattr(self, f"_hear_{kind.lower()}", None)
        if hear is not None:
            hear(*response[1:])
        else:
            assert kind not in ("tagged", "+", "BAD"), response

    def _hear_bye(self, _code):
        self.over = True

    def _hear_ok(self, code):
        if code is not None and code[0] == b"CLOSED":
            assert self._name in SELECTING and self.exists is not None
            self.exists, self._opened = None, False
        if code is not None and code[0] == b"INPROGRESS" and len(code) > 1:
            assert code[1] == self._tag

    def _hear_enabled(self, names):
        assert self._name == b"ENABLE"
        self._enabled |= set(names)
        if b"QRESYNC" in names:
            self._enabled.add(b"CONDSTORE")

    def _hear_exists(self, number):
        if self._name in SELECTING and not self._opened:
            self._opened = True
            self.exists, self._uids, self._static = number, [None] * number, {}
            return
        assert self.exists is not None and number >= self.exists, (number, self.exists)
        self._uids += [None] * (number - self.exists)
        self.exists = number

    def _hear_recent(self, number):
        assert self.exists is not None and number <= self.exists and b"IMAP4rev2" not in self._enabled

    def _hear_expunge(self, number):
        self._may_expunge(qresync=False)
        assert number <= self.exists, (number, self.exists)
        del self._uids[number - 1]
        self.exists -= 1

    def _hear_vanished(self, earlier, uids):
        assert b"QRESYNC" in self._enabled
        if earlier:
            assert self._name in (*SELECTING, b"UID FETCH"), self._name
            return
        self._may_expunge(qresync=True)
        assert len(set(uids)) == len(uids) <= self.exists
        if set(uids) <= set(self._uids):
            self._uids = [uid for uid in self._uids if uid not in set(uids)]
        else:
            self._uids = [None] * (self.exists - len(uids))
        self.exists -= len(uids)

    def _may_expunge(self, *, qresync):
        """RFC 3501 §7.4.1; RFC 7162 §3.2.10."""
        assert self.exists is not None
        assert (b"QRESYNC" in self._enabled) == qresync
        assert self._name and self._name not in NUMBERED, f"an expunge in {self._name}"
        assert self._name not in SELECTING or self._opened

    def _hear_fetch(self, number, items):
        assert self.exists is not None and number <= self.exists, (number, self.exists)
        uid = items.get(b"UID")
        assert uid is not None or self._name not in (b"UID FETCH", b"UID STORE"), self._name
        if uid is not None:
            known = self._uids[number - 1]
            assert known in (None, uid), (number, known, uid)
            self._uids[number - 1] = uid
            there = [one for one in self._uids if one is not None]
            assert all(one < two for one, two in zip(there, there[1:], strict=False)), there
        uid = self._uids[number - 1]
        if uid is not None:
            for name in STATIC:
                if name in items:
                    assert self._static.setdefault((uid, name), items[name]) == items[name], (uid, name)
        assert b"\\Recent" not in items.get(b"FLAGS", ()) or b"IMAP4rev2" not in self._enabled
        whole = items.get(b"BODY[]", items.get(b"RFC822"))
        if whole is not None and b"RFC822.SIZE" in items:
            assert len(whole) == items[b"RFC822.SIZE"]

    def _numbers(self, name, numbers):
        """Of a SEARCH and what is like it."""
        assert self._name in (name, b"UID " + name), self._name
        assert len(set(numbers)) == len(numbers)
        if self._name == name:
            assert all(number <= self.exists for number in numbers), (numbers, self.exists)

    def _hear_search(self, numbers, _modseq):
        self._numbers(b"SEARCH", numbers)
        assert b"IMAP4rev2" not in self._enabled        # RFC 9051 §6.4.4

    def _hear_sort(self, numbers, _modseq):
        self._numbers(b"SORT", numbers)

    def _hear_thread(self, numbers):
        self._numbers(b"THREAD", numbers)

    def _hear_esearch(self, tag, by_uid, items):
        assert tag == self._tag and by_uid == self._name.startswith(b"UID ")
        numbers = [*items.get(b"ALL", ())]
        self._numbers(self._name.removeprefix(b"UID "), numbers)
        assert self._name.endswith((b"SEARCH", b"SORT"))
        if not by_uid:
            assert all(items.get(name, 0) <= self.exists for name in (b"MIN", b"MAX"))
        assert b"COUNT" not in items or b"ALL" not in items or items[b"COUNT"] == len(numbers)

    _STEPS = {"line": _command, "more": _more, "octets": _literal, "go": _go, "answer": _answer, "ready": _ready,
              "done": _done}
