"""Inputs that are choices: the octets that the fuzzer changes say what is made, and how it is sent."""

import zlib
from random import Random


class Choices:
    """Numbers from the octets of an input; when these are used up, from a sequence that follows from them."""

    def __init__(self, data):
        self._data = data
        self._at = 0
        self._more = Random(zlib.crc32(data))

    def below(self, end):
        """A number from 0 on."""
        size = 1 if end <= 256 else 2
        octets = self._data[self._at:self._at + size]
        self._at += size
        return int.from_bytes(octets, "big") % end if len(octets) == size else self._more.randrange(end)

    def one(self, things):
        """One of them."""
        return things[self.below(len(things))]


def in_pieces(choices, lines):
    """The lines as the network brings them: each one, all at once (RFC 2920), some together, or cut anywhere."""
    how = choices.below(4)
    if how == 0:
        return lines
    octets = b"".join(lines)
    if how == 1:
        return [octets]
    if how == 2:
        size = 1 + choices.below(200) if len(octets) < 5000 else 1000 + choices.below(60_000)
        return [octets[at:at + size] for at in range(0, len(octets), size)]
    pieces, at = [], 0
    while at < len(lines):
        count = 1 + choices.below(5)
        pieces.append(b"".join(lines[at:at + count]))
        at += count
    return pieces
