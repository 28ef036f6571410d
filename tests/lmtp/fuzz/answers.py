"""How many replies a client must get for what it has sent, and which: RFC 2033 §4.2, RFC 5321 §4.3.2, RFC 3030 §2."""

import re

from attrs import define, field

from tests.lmtp.test_replies import is_legal

# The replies by which a command succeeds.
SUCCESS = {
    b"LHLO": {250}, b"MAIL": {250}, b"RCPT": {250}, b"DATA": {354}, b"BDAT": {250}, b"RSET": {250}, b"NOOP": {250},
    b"VRFY": {252}, b"HELP": {214}, b"STARTTLS": {220}, b"AUTH": {235, 334}, b"XCLIENT": {220}, b"QUIT": {221},
}
_CHUNK = re.compile(rb"BDAT\t* +([0-9]{1,20})( +LAST)?[ \t]*", re.IGNORECASE)
_LINES = re.compile(rb"(\d{3})(?:-[^\n]*\n\1)* [^\n]*\n")


@define
class Client:
    """Follows a session from the client's side: gets each piece that is sent with what has been answered to it.

    `line_limit`: octets of a command line that the server takes.
    """

    line_limit: int
    waiting: bytes = b""                # sent, and not answered yet
    in_mail: bool = False               # after MAIL
    recipients: int = 0
    in_message: bool = False            # between 354 and the final dot
    in_challenge: bool = False          # AUTH waits for a response
    in_chunk: bool = False              # after a BDAT whose octets are not complete
    last: bool = False                  # the chunk is the last one
    left: int = 0                       # octets of the chunk that were not sent yet
    failed: bool = False                # a chunk was refused
    over: bool = False
    taken: int = 0                      # positive replies to messages
    _replies: list = field(factory=list)

    def greeted(self, octets):
        """The connection is there."""
        self._hear(octets)
        self.over = self._next({220}) != 220
        self._nothing_more()

    def sent(self, piece, octets):
        """Sent a piece, and got `octets` for it. Raises AssertionError."""
        if self.over:
            assert not octets
            return
        self._hear(octets)
        self.waiting += piece
        while not self.over and self._step():
            pass
        self._nothing_more()

    def _hear(self, octets):
        assert not octets or is_legal(octets), octets
        self._replies = [int(match[1]) for match in _LINES.finditer(octets)]

    def _nothing_more(self):
        """What is left may only be a goodbye."""
        if self._replies:
            self.over = self.over or self._replies.pop(0) == 421
            assert self.over and not self._replies, (self.over, self._replies)

    def _next(self, success):
        """The next reply; a command that fails may be answered by any reply that says so."""
        assert self._replies, f"no answer, {self.waiting[:80]!r} follows"
        code = self._replies.pop(0)
        assert code in success or 400 <= code <= 599, (code, success)
        self.over = code in (221, 421)
        return code

    def _step(self):
        """Whether something was complete; its replies have come then."""
        if self.in_chunk:
            return self._chunk()
        if self.in_message:
            end = (b"\r\n" + self.waiting).find(b"\r\n.\r\n")
            if end < 0:
                return False
            self.waiting = self.waiting[end + 3:]
            self.in_message = False
            self._message()
            return True
        line, ended, rest = self.waiting.partition(b"\n")
        if not ended:
            return False
        self.waiting = rest
        if self.in_challenge:
            self.in_challenge = self._next({235, 334}) == 334       # a mechanism may ask several times
        else:
            self._command(line)
        return True

    def _command(self, line):
        line = line.removesuffix(b"\r")
        if len(line) > self.line_limit:
            self._next(())
            return
        if match := _CHUNK.fullmatch(line):
            self.in_chunk, self.left, self.last = True, int(match[1]), match[2] is not None
            return
        name = line.split(b" ")[0].rstrip(b"\t").upper()
        code = self._next(SUCCESS.get(name, ()))
        if code >= 400:
            self.over = self.over or (name == b"XCLIENT" and code == 554)
        elif name == b"RCPT":
            self.recipients += 1
        elif name == b"DATA":
            self.in_message = True
        elif name == b"AUTH":
            self.in_challenge = code == 334
        elif name in (b"LHLO", b"RSET", b"MAIL", b"XCLIENT", b"STARTTLS"):
            self.in_mail, self.recipients, self.failed = name == b"MAIL", 0, False
            if name == b"STARTTLS":
                self.waiting = b""      # RFC 3207 §4.2: what was sent ahead is dropped

    def _chunk(self):
        taken = min(self.left, len(self.waiting))
        self.waiting, self.left = self.waiting[taken:], self.left - taken
        if self.left:
            return False
        self.in_chunk = False
        if self.last and self.recipients and not self.failed:
            self._message()
        elif self.last and self.in_mail and not self.recipients:
            self.in_mail = False        # RFC 2033 §4.3: no replies
        elif self._next({250}) >= 400:
            self.failed = bool(self.recipients)
        return True

    def _message(self):
        """RFC 2033 §4.2: a reply for each recipient."""
        for _ in range(self.recipients):
            if self.over:               # a goodbye takes the place of all that are missing
                return
            self.taken += self._next({250}) == 250
        self.in_mail, self.recipients, self.failed = False, 0, False
