"""A client that keeps a copy of its INBOX, and brings it up to date by QRESYNC alone (RFC 7162 §3.2.5)."""

import re
from collections.abc import Iterable, Iterator, Mapping

from attrs import define, field

from tests.support.clients.imap import Imap, Response

_GONE = re.compile(rb"^\* VANISHED (?:\(EARLIER\) )?([0-9:,]+)$")
_UID, _FLAGS = re.compile(rb"[( ]UID (\d+)"), re.compile(rb"[( ]FLAGS \(([^)]*)\)")

Known = Mapping[int, tuple[bytes, frozenset[bytes]]]        # octets and flags of each message, by UID


@define(eq=False)
class CachingClient:
    """What it knows; `meant` is each UID that it has ever seen, of each UIDVALIDITY."""

    validity: int = 0
    modseq: int = 0
    flags: dict[int, frozenset[bytes]] = field(factory=dict)
    octets: dict[int, bytes] = field(factory=dict)
    meant: dict[tuple[int, int], bytes] = field(factory=dict)
    problems: list[str] = field(factory=list)

    @property
    def known(self) -> Known:
        """All messages that are there, for all that it has been told."""
        return {uid: (self.octets[uid], self.flags[uid]) for uid in sorted(self.flags)}

    def synchronise(self, imap: Imap) -> None:
        """Ask what has changed, and for the messages that are new. What it has it does not ask for again."""
        imap.ok("ENABLE QRESYNC")
        answer = imap.ok(f"SELECT INBOX (QRESYNC ({self.validity} {self.modseq}))" if self.modseq else "SELECT INBOX")
        validity = int(answer.find(rb"\[UIDVALIDITY (\d+)\]")[1])
        if validity != self.validity:
            self.flags, self.octets, self.validity = {}, {}, validity
            self._hear(imap.ok("UID FETCH 1:* (UID FLAGS)").untagged)
        self.modseq = int(answer.find(rb"\[HIGHESTMODSEQ (\d+)\]")[1])
        self._hear(answer.untagged)
        if new := sorted(self.flags.keys() - self.octets.keys()):
            self._keep(imap.messages(",".join(map(str, new))))
            for uid in new:
                if uid not in self.octets:
                    del self.flags[uid]         # it was expunged just now

    def _hear(self, responses: Iterable[Response]) -> None:
        for response in responses:
            if gone := _GONE.match(response.text):
                for first, last in _ranges(gone[1]):
                    for uid in [uid for uid in self.flags if first <= uid <= last]:
                        del self.flags[uid]
                        self.octets.pop(uid, None)
            elif (uid := _UID.search(response.text)) and (flags := _FLAGS.search(response.text)):
                self.flags[int(uid[1])] = _without_recent(flags[1])

    def _keep(self, octets: Mapping[int, bytes]) -> None:
        self.octets |= octets
        for uid, found in octets.items():
            if self.meant.setdefault((self.validity, uid), found) != found:
                self.problems.append(f"UID {uid} meant {self.meant[self.validity, uid]!r}, and means {found!r}")


def truth(imap: Imap) -> Known:
    """What a client finds that knows nothing."""
    imap.select()
    found = {}
    for response in imap.ok("UID FETCH 1:* (UID FLAGS BODY.PEEK[])").untagged:
        if response.literals:
            uid, flags = _UID.search(response.text), _FLAGS.search(response.text)
            assert uid and flags, response
            found[int(uid[1])] = response.literals[0], _without_recent(flags[1])
    return found


def _without_recent(flags: bytes) -> frozenset[bytes]:
    return frozenset(flags.split()) - {rb"\Recent"}


def _ranges(numbers: bytes) -> Iterator[tuple[int, int]]:
    for each in numbers.split(b","):
        first, _, last = each.partition(b":")
        yield int(first), int(last or first)
