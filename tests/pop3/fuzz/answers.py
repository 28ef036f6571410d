"""Which answers a client must get to what it has sent, and when: RFC 1939 §3, RFC 2449 §6.6, RFC 5034 §4."""

import re

from attrs import define

_STATUS = re.compile(rb"\+OK(?: [ -~]+)?|-ERR(?: \[(?:[A-Z][A-Z0-9-]*(?:/[A-Z]+)?)\])?(?: [ -Z\\-~][ -~]*)?")
_ALWAYS = frozenset((b"CAPA", b"RETR", b"TOP"))         # +OK to these has several lines
_ALONE = frozenset((b"LIST", b"UIDL", b"AUTH", b"LANG"))        # to these without an argument
_SIZE = re.compile(rb"\+OK (\d+) octets")
_STUFFED = re.compile(rb"(\r\n)\.|(?<=[\r\n])\.(?=\.[\r\n])")      # also lone dots between bare CRs and LFs
LONGEST = 512               # RFC 1939 §3: octets of a first line


@define
class Client:
    """Follows a session from the client's side: gets each piece that is sent with what has been answered to it."""

    waiting: bytes = b""            # sent, and not answered yet
    unread: bytes = b""             # answered, and not taken for an answer yet
    in_challenge: bool = False      # AUTH waits for a response
    over: bool = False              # QUIT was said, or the server has
    answers: int = 0

    def greeted(self, octets):
        """The connection is there."""
        self.unread = octets
        self.over = not self._status().startswith(b"+OK")
        assert not self.unread

    def sent(self, piece, octets):
        """Sent a piece, and got `octets` for it. Raises AssertionError."""
        self.waiting += piece
        self.unread += octets
        while not self.over and self._step():
            pass
        if self.unread:                         # the server has had enough, or there was no time left
            assert self._status().startswith(b"-ERR"), "an answer to nothing"
            self.over = True
        assert not self.unread

    def _step(self):
        line, ended, rest = self.waiting.partition(b"\n")
        if not ended or not self.unread:
            return False
        self.waiting = rest
        if self.in_challenge:
            self.in_challenge = False
            self._exchange()
        else:
            self._command(line)
        return True

    def _command(self, line):
        verb, *arguments = line.upper().split() or [b""]
        if verb == b"AUTH" and arguments:
            self._exchange()
            return
        status = self._status()
        if not status.startswith(b"+OK"):
            return
        if verb in _ALWAYS or verb in _ALONE and not arguments:
            self._lines(status, verb)
        elif verb == b"STLS":
            self.waiting = b""                  # RFC 2595 §4: what was sent ahead is dropped
        elif verb == b"QUIT":
            self.over = True

    def _exchange(self):
        if self.unread.startswith(b"+ "):
            challenge, ended, self.unread = self.unread.partition(b"\r\n")
            assert ended and re.fullmatch(rb"\+ [A-Za-z0-9+/=]*", challenge), challenge
            self.in_challenge = True
        else:
            self._status()

    def _status(self):
        line, ended, self.unread = self.unread.partition(b"\r\n")
        assert ended and len(line) + 2 <= LONGEST and _STATUS.fullmatch(line), line
        self.answers += 1
        return line

    def _lines(self, status, verb):
        """The lines of an answer up to the dot (RFC 1939 §3)."""
        whole = b"\r\n" + self.unread
        end = whole.find(b"\r\n.\r\n")
        assert end >= 0, "an answer without an end"
        lines, self.unread = whole[:end], whole[end + 5:]
        text = _STUFFED.sub(rb"\1", lines)[2:]
        if verb == b"RETR":
            size = int(_SIZE.fullmatch(status)[1])
            assert size in (len(text), len(text) + 2), (size, len(text))       # the last line's end
        elif verb in (b"LIST", b"UIDL"):
            numbers = [int(line.split(b" ")[0]) for line in text.split(b"\r\n") if line]
            assert numbers == sorted(set(numbers)) and all(
                re.fullmatch(rb"\d+ [!-~]{1,70}", line) for line in text.split(b"\r\n") if line)
            names = [line.split(b" ")[1] for line in text.split(b"\r\n") if line]
            assert verb == b"LIST" or len(set(names)) == len(names)
