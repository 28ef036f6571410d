"""POP3 without passwords and messages (RFC 1939, RFC 5034)."""

import re
from collections import deque

from pop3.states import COMMANDS
from tools.server.transcripts.masking import Lines, hidden, shown

MOST = 1000                 # commands that have not been answered, of which the mask knows what their answers are
_LISTED = re.compile(rb"\d{1,10} [!-~]{1,70}|[A-Z][A-Z0-9-]{1,30}( [!-~]{1,60})*")      # LIST, UIDL; CAPA
_END = b"\r\n.\r\n"


class Pop3Mask:
    """See `masking.Mask`. `answers`: to commands that have come before, and have not been answered. Of a client that
    sends more than MOST without waiting, no answer is shown any more: nobody can tell which of them is a message."""

    def __init__(self, answers: int = 0) -> None:
        self._client, self._server = Lines(), Lines()
        self._expected: deque[bytes] = deque([b""] * answers)      # for each command what its answer is
        self._lost = False
        self._exchange = False      # of AUTH, whose end has not been heard
        self._text = 0              # octets so far of the message that is sent; 0: none
        self._listing = False
        self._last = b""            # octets of it, in which its end may begin

    def received(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found = []
        self._client.feed(data)
        while (line := self._client.line()) is not None:
            found.append(self._line(*line))
        return found

    def _line(self, line: bytes, octets: int) -> str:
        if self._exchange:
            return hidden("response", octets)
        word, space, rest = line.partition(b" ")
        verb = word.upper()
        kind = (b"text" if verb in (b"RETR", b"TOP") else b"list" if verb == b"CAPA" or not rest.strip() and verb in (
            b"LIST", b"UIDL", b"AUTH", b"LANG") else b"")
        self._expected.append(kind)
        self._lost = self._lost or len(self._expected) > MOST
        if self._lost:
            self._expected.clear()
            self._expected.append(kind)
        if verb == b"AUTH" and rest.strip():
            self._exchange = True
            self._expected[-1] = b"exchange"
            mechanism, more, initial = rest.partition(b" ")
            return f"AUTH {shown(mechanism[:40])}" + (f" {hidden('initial response', len(initial))}" if more else "")
        if verb in (b"USER", b"PASS"):
            return f"{shown(verb)} {hidden('argument', len(rest))}"
        return shown(line) if verb in COMMANDS else hidden("line", octets)

    def sent(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found: list[str] = []
        self._server.feed(data)
        while self._server.rest:
            if self._text and not self._lost:
                self._take_text(found)
                continue
            if (line := self._server.line()) is not None:
                found.append(self._answer(*line))
        return found

    def _take_text(self, found: list[str]) -> None:
        rest = self._server.rest
        begun = len(self._last)
        self._server.feed(self._last + rest)
        count, ended = self._server.take_until(_END)
        self._text += count - begun
        if ended:
            found.append(hidden("message", self._text - 1))
            self._text, self._last = 0, b""
        else:
            self._last = (self._last + rest)[-len(_END) + 1:]

    def _answer(self, line: bytes, octets: int) -> str:
        if self._lost:
            return hidden("line", octets)
        if self._listing:
            self._listing = line != b"."
            return shown(line) if line == b"." or _LISTED.fullmatch(line) else hidden("line", octets)
        if line.startswith(b"+ "):
            return hidden("challenge", octets)
        if not line.startswith((b"+OK", b"-ERR")):
            return hidden("line", octets)
        kind = self._expected.popleft() if self._expected else b""
        if kind == b"exchange":
            self._exchange = False
        if line.startswith(b"+OK"):
            self._listing = kind == b"list"
            self._text, self._last = int(kind == b"text"), b"\r\n" if kind == b"text" else b""
        return shown(line)
