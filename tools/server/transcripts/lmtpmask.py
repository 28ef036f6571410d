"""LMTP without passwords and messages (RFC 2033, RFC 3030, RFC 4954)."""

import re

from tools.server.transcripts.masking import Lines, hidden, shown

_SHOWN = re.compile(rb"(?:(?:LHLO|EHLO|HELO|XCLIENT) [ -~]+|(?:MAIL FROM|RCPT TO):.*"
                    rb"|(?:DATA|RSET|NOOP|QUIT|STARTTLS|HELP) *|BDAT \d+( LAST)?)", re.IGNORECASE | re.DOTALL)
_CHUNK = re.compile(rb"BDAT (\d{1,15})(?: LAST)? *", re.IGNORECASE)
_REPLY = re.compile(rb"[2-5]\d\d[ -]")
_END = b"\r\n.\r\n"


class LmtpMask:
    """See `masking.Mask`."""

    def __init__(self) -> None:
        self._client, self._server = Lines(), Lines()
        self._chunk = self._size = 0    # octets of a BDAT that have not come, and all of them
        self._text = 0                  # octets so far of the message behind DATA; 0: none
        self._last = b""
        self._asked = False             # for it: 354 has come since DATA
        self._reply = b""               # the last line since DATA
        self._exchange = False

    def received(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found: list[str] = []
        self._client.feed(data)
        # The replies to what came together with DATA come one by one (RFC 2920 §3.1): which of them was DATA's is known
        # when the client goes on, which has waited for it.
        if self._text == 1 and not self._asked and self._reply[:1] in (b"4", b"5"):     # no message comes
            self._text, self._last = 0, b""
        while self._client.rest:
            if self._chunk:
                self._chunk -= len(self._client.take(self._chunk))
                if not self._chunk:
                    found.append(hidden("chunk", self._size))
                continue
            if self._text:
                self._take_text(found)
                continue
            if (line := self._client.line()) is not None:
                found.append(self._line(*line))
        return found

    def _take_text(self, found: list[str]) -> None:
        rest, begun = self._client.rest, len(self._last)
        self._client.feed(self._last + rest)
        count, ended = self._client.take_until(_END)
        self._text += count - begun
        if ended:
            found.append(hidden("message", self._text - 1))
            self._text, self._last = 0, b""
        else:
            self._last = (self._last + rest)[-len(_END) + 1:]

    def _line(self, line: bytes, octets: int) -> str:
        if self._exchange:
            return hidden("response", octets)
        word, space, rest = line.partition(b" ")
        if word.upper() == b"AUTH":
            self._exchange = True
            mechanism, more, initial = rest.partition(b" ")
            return f"AUTH {shown(mechanism[:40])}" + (f" {hidden('initial response', len(initial))}" if more else "")
        if not _SHOWN.fullmatch(line):
            return hidden("line", octets)
        if chunk := _CHUNK.fullmatch(line):
            self._chunk = self._size = int(chunk[1])
        elif line.strip().upper() == b"DATA":
            self._text, self._last, self._asked, self._reply = 1, b"\r\n", False, b""
        return shown(line)

    def sent(self, data: bytes) -> list[str]:
        """See `masking.Mask`."""
        found = []
        self._server.feed(data)
        while (reply := self._server.line()) is not None:
            line, octets = reply
            if line.startswith(b"334"):
                found.append(hidden("challenge", octets))
                continue
            found.append(shown(line) if _REPLY.match(line) else hidden("line", octets))
            self._asked = self._asked or line.startswith(b"354")
            self._exchange, self._reply = False, line
        return found
