"""The header of the PROXY protocol, versions 1 and 2 (proxy-protocol.txt §2): a proxy tells for whom it connects.

What a header says is believed, so it may be looked for only in connections of proxies that the administrator named
(§5).
"""

import re
import struct
from ipaddress import IPv4Address, IPv6Address

from attrs import frozen

LIMIT = 4096                    # octets of a version 2 header; the addresses take 216 at most

_START1, _LIMIT1 = b"PROXY ", 107
_START2 = b"\r\n\r\n\0\r\nQUIT\n"
_STARTS = (b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN", _START2)       # nothing else that begins so makes sense
_FIXED = 16                     # octets of a version 2 header before the addresses
_LOCAL, _PROXY = 0x20, 0x21     # version and command
_TCP4, _TCP6 = 0x11, 0x21       # address family and protocol
_SIZES = {_TCP4: 12, 0x12: 12, _TCP6: 36, 0x22: 36, 0x31: 216, 0x32: 216}       # octets of both addresses
_CRC32C = 0x03
_PORT = re.compile(rb"0|[1-9][0-9]{0,4}")


@frozen
class Source:
    """Where the connection that the proxy passes on comes from."""

    address: IPv4Address | IPv6Address
    port: int


@frozen
class Header:
    """A whole header. `source` None: it does not tell, and the connection counts as the proxy's own."""

    source: Source | None
    length: int


def is_begun(octets: bytes) -> bool | None:
    """Whether `octets`, the first of a connection, begin a header of either version; None when they are too few to
    tell."""
    if any(map(octets.startswith, _STARTS)):
        return True
    return None if any(_begins(octets, start) for start in _STARTS) else False


def parse(octets: bytes) -> Header | None:
    """The header with which `octets` begin; None when they are too few to tell. Raises ValueError."""
    if _begins(octets, _START1):
        return _version1(octets)
    if _begins(octets, _START2):
        return _version2(octets)
    raise ValueError("this is no PROXY header")


def _begins(octets: bytes, start: bytes) -> bool:
    return octets[:len(start)] == start[:len(octets)]


def _version1(octets: bytes) -> Header | None:
    """§2.1"""
    end = octets.find(b"\r\n", 0, _LIMIT1)
    if end < 0:
        if len(octets) >= _LIMIT1:
            raise ValueError("the line of the PROXY header is too long")
        return None
    fields = octets[len(_START1):end].split(b" ")
    if fields[0] == b"UNKNOWN":                     # whatever follows is ignored
        return Header(None, end + 2)
    if len(fields) != 5 or fields[0] not in (b"TCP4", b"TCP6"):
        raise ValueError("the PROXY header has not the fields that it should have")
    kind = IPv4Address if fields[0] == b"TCP4" else IPv6Address
    source, _ = (_address(kind, field) for field in fields[1:3])
    port, _ = (_port(field) for field in fields[3:])
    return Header(Source(source, port), end + 2)


def _address(kind: type[IPv4Address] | type[IPv6Address], field: bytes) -> IPv4Address | IPv6Address:
    if b"%" in field:                               # a zone, which is an interface of another host
        raise ValueError("an address in the PROXY header has a zone")
    return _plain(kind(field.decode("ascii")))


def _port(field: bytes) -> int:
    if not _PORT.fullmatch(field) or int(field) > 65535:
        raise ValueError("a port in the PROXY header is none")
    return int(field)


def _version2(octets: bytes) -> Header | None:
    """§2.2"""
    if len(octets) < _FIXED:
        return None
    command, family, size = struct.unpack_from(">BBH", octets, len(_START2))
    length = _FIXED + size
    if command not in (_LOCAL, _PROXY):
        raise ValueError(f"the PROXY header has the unknown version and command {command:#04x}")
    if length > LIMIT:
        raise ValueError(f"the PROXY header has {length} octets")
    if len(octets) < length:
        return None
    if command == _LOCAL or family == 0:
        return Header(None, length)
    if family not in _SIZES or size < _SIZES[family]:
        raise ValueError(f"the PROXY header has {size} octets for addresses of family and protocol {family:#04x}")
    _check_vectors(octets[:length], _FIXED + _SIZES[family])
    if family == _TCP4:
        address, port = struct.unpack_from(">4s4xH", octets, _FIXED)
        return Header(Source(IPv4Address(address), port), length)
    if family == _TCP6:
        address, port = struct.unpack_from(">16s16xH", octets, _FIXED)
        return Header(Source(_plain(IPv6Address(address)), port), length)
    return Header(None, length)                     # valid, but nothing that reaches a TCP server


def _check_vectors(header: bytes, at: int) -> None:
    """Skip what follows the addresses, but verify a checksum (§2.2.3). Raises ValueError."""
    while at < len(header):
        kind, size = struct.unpack_from(">BH", header.ljust(at + 3, b"\xff"), at)
        value, at = at + 3, at + 3 + size
        if at > len(header):
            raise ValueError("the PROXY header ends within a vector")
        if kind == _CRC32C:
            summed = header[:value] + bytes(size) + header[at:]
            if header[value:at] != crc32c(summed).to_bytes(4, "big"):
                raise ValueError("the checksum of the PROXY header is wrong")


def _shifted(octet: int) -> int:
    for _ in range(8):
        octet = octet >> 1 ^ (0x82F63B78 if octet & 1 else 0)
    return octet


_SHIFTED = tuple(_shifted(octet) for octet in range(256))


def crc32c(octets: bytes) -> int:
    """RFC 3720 §12.1"""
    crc = 0xFFFFFFFF
    for octet in octets:
        crc = crc >> 8 ^ _SHIFTED[(crc ^ octet) & 255]
    return crc ^ 0xFFFFFFFF


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """An IPv4 address as such, also when the proxy's socket saw it through IPv6."""
    return getattr(address, "ipv4_mapped", None) or address
