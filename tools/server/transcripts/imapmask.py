"""IMAP without passwords, literals and what messages say (RFC 3501, RFC 7888, RFC 4959)."""

import re

from imap.wire.commands import COMMANDS
from tools.server.transcripts.masking import Lines, hidden, shown

_AT_END = re.compile(rb"~?\{(\d{1,20})(\+?)\}$")
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*"')
_STATUS = re.compile(rb"(?:\*|[^ \x00-\x1f]{1,200}) (?:OK|NO|BAD|BYE|PREAUTH)\b", re.IGNORECASE)
_DATA = re.compile(rb"\* (?:\d+ (?:EXISTS|RECENT|EXPUNGE|FETCH)|FLAGS|LIST|LSUB|E?SEARCH|SORT|THREAD|STATUS|CAPABILITY"
                   rb"|ENABLED|NAMESPACE|ID|ACL|LISTRIGHTS|MYRIGHTS|QUOTA|QUOTAROOT|VANISHED)\b", re.IGNORECASE)
_OF_MESSAGES = re.compile(rb"\* \d+ FETCH\b", re.IGNORECASE)
MOST = 1000                 # commands that have not been answered, whose tags are kept
_SECRET = (b"LOGIN", b"AUTHENTICATE")


class ImapMask:
    """See `masking.Mask`."""

    def __init__(self) -> None:
        self._client, self._server = Lines(), Lines()
        self._literal = 0           # octets of the client's literal that have not come; of how many,
        self._size = 0
        self._tag = b""             # of the command,
        self._waits = False         # whose literal the server may yet refuse
        self._within = False        # a line of the client is the rest of a command,
        self._secret = False        # which is not shown
        self._exchange = b""        # the tag of an AUTHENTICATE that has not been answered
        self._tags: dict[bytes, None] = {}      # of commands that are shown, and may not have been answered
        self._sent_literal = self._sent_size = 0
        self._line_of = b""         # the beginning of the server's line whose rest comes behind a literal

    def received(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found = []
        self._client.feed(data)
        while self._client.rest:
            if self._literal:
                self._waits = False
                self._literal -= len(self._client.take(self._literal))
                if not self._literal:
                    found.append(hidden("literal", self._size))
                continue
            if (line := self._client.line()) is not None:
                found.append(self._line(*line))
        return found

    def _line(self, line: bytes, octets: int) -> str:
        if self._exchange and not self._within:
            return hidden("response", octets)
        text = self._rest(line, octets) if self._within else self._first(line, octets)
        literal = _AT_END.search(self._client.tail)
        self._within = literal is not None
        self._waits = literal is not None and not literal[2]
        if literal is not None:
            self._literal = self._size = int(literal[1])
        return text

    def _first(self, line: bytes, octets: int) -> str:
        """Of a command."""
        if line.strip().upper() == b"DONE":
            return "DONE"
        tag, _, rest = line.partition(b" ")
        word, space, rest = rest.partition(b" ")
        name = word.upper()
        if name == b"UID":
            word, space, rest = rest.partition(b" ")
            name = b"UID " + word.upper()
        self._secret = name in _SECRET or name not in COMMANDS
        self._tag = tag
        if name in COMMANDS:            # or else it may be anything
            self._tags[tag] = None
            if len(self._tags) > MOST:
                del self._tags[next(iter(self._tags))]
        if name == b"AUTHENTICATE":
            mechanism, more, initial = rest.partition(b" ")
            self._exchange = tag
            return f"{shown(tag)} AUTHENTICATE {shown(mechanism[:40])}" + (
                f" {hidden('initial response', len(initial))}" if more else "")
        if name == b"LOGIN":
            return f"{shown(tag)} LOGIN {hidden('name and password', len(rest))}"
        return hidden("line", octets) if self._secret or octets > len(line) else shown(line)

    def _rest(self, line: bytes, octets: int) -> str:
        return hidden("rest", octets) if self._secret or octets > len(line) else shown(line)

    def sent(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found = []
        self._server.feed(data)
        while self._server.rest:
            if self._sent_literal:
                self._sent_literal -= len(self._server.take(self._sent_literal))
                if not self._sent_literal:
                    found.append(hidden("literal", self._sent_size))
                continue
            if (line := self._server.line()) is not None:
                found.append(self._answer(*line))
        return found

    def _answer(self, line: bytes, octets: int) -> str:
        begun, self._line_of = self._line_of, b""
        start = begun or line
        if not begun:
            if line.startswith(b"+"):
                return hidden("challenge", octets) if self._exchange else shown(line)
            if _STATUS.match(line):
                return self._status(*line.partition(b" ")[::2])
            if not _DATA.match(line):
                return hidden("line", octets)
        literal = _AT_END.search(self._server.tail)
        if literal is not None:
            self._sent_literal = self._sent_size = int(literal[1])
            self._line_of = start[:200]
        if octets > len(line):
            return hidden("line", octets)
        if _OF_MESSAGES.match(start):
            line = _QUOTED.sub(lambda quoted: b'"<%d octets>"' % (len(quoted[0]) - 2), line)
        return shown(line)

    def _status(self, tag: bytes, text: bytes) -> str:
        """Maybe the answer to a command: what that might still have sent, nobody waits for."""
        refused = tag == b"*" and text[:3].upper() == b"BAD"
        if refused or tag == self._exchange:
            self._exchange = b""
        if self._waits and (refused or tag == self._tag):
            self._literal, self._within, self._waits = 0, False, False
        known = tag == b"*" or tag in self._tags
        self._tags.pop(tag, None)
        return f"{shown(tag)} {shown(text)}" if known else f"<tag> {shown(text)}"
