"""The header of the PROXY protocol: what proxy-protocol.txt §2.1 and §2.2 allow, and nothing else."""

import struct
from ipaddress import ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from store.net.proxies.proxyheader import LIMIT, Header, Source, crc32c, is_begun, parse

SIGNATURE = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a"
IPV4 = bytes([192, 0, 2, 1, 198, 51, 100, 2]) + struct.pack(">HH", 56324, 24)
IPV6 = ip_address("2001:db8::1").packed + ip_address("2001:db8::2").packed + struct.pack(">HH", 56324, 24)
MAPPED = ip_address("::ffff:192.0.2.1").packed + IPV6[16:]
UNIX = b"/run/one".ljust(108, b"\0") + b"/run/two".ljust(108, b"\0")


def binary(block: bytes, family: int, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(block)) + block


def vector(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">H", len(value)) + value


def summed(block: bytes, family: int, wrong: int = 0) -> bytes:
    """With a checksum between two other vectors."""
    header = binary(block + vector(4, b"\0" * 5) + vector(3, b"\0" * 4) + vector(5, b"one"), family)
    at = 16 + len(block) + 8 + 3
    return header[:at] + struct.pack(">I", crc32c(header) ^ wrong) + header[at + 4:]


def source(address: str, port: int = 56324) -> Source:
    return Source(ip_address(address), port)


GOOD = [
    (b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24\r\n", source("192.0.2.1")),
    (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", source("255.255.255.255", 65535)),
    (b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", source("0.0.0.0", 0)),
    (b"PROXY TCP6 2001:db8::1 2001:DB8::2 56324 24\r\n", source("2001:db8::1")),
    (b"PROXY TCP6 " + b" ".join([b":".join([b"ffff"] * 8)] * 2) + b" 65535 65535\r\n",
     source("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 65535)),
    (b"PROXY TCP6 ::ffff:192.0.2.1 ::1 56324 24\r\n", source("192.0.2.1")),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN \xff anything \r at \n all\r\n", None),
    (b"PROXY UNKNOWN " + b" ".join([b":".join([b"ffff"] * 8)] * 2) + b" 65535 65535\r\n", None),    # 107 octets
    (binary(IPV4, 0x11), source("192.0.2.1")),
    (binary(IPV6, 0x21), source("2001:db8::1")),
    (binary(MAPPED, 0x21), source("192.0.2.1")),
    (binary(IPV4, 0x12), None),
    (binary(IPV6, 0x22), None),
    (binary(UNIX, 0x31), None),
    (binary(UNIX, 0x32), None),
    (binary(b"", 0x00), None),
    (binary(b"whatever", 0x00), None),
    (binary(b"", 0x00, 0x20), None),
    (binary(IPV4, 0x11, 0x20), None),
    (binary(b"no address", 0xff, 0x20), None),          # LOCAL: the block counts for nothing, the family included
    (binary(IPV4 + vector(1, b"h2") + vector(0xee, b""), 0x11), source("192.0.2.1")),
    (binary(IPV4 + vector(4, b"\0" * (LIMIT - 16 - 12 - 3)), 0x11), source("192.0.2.1")),
    (summed(IPV4, 0x11), source("192.0.2.1")),
    (summed(IPV6, 0x21), source("2001:db8::1")),
]

BAD = [
    b"LHLO client.example.org\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01",                # TLS without a header
    b"GET / HTTP/1.1\r\n",
    b"proxy TCP4 192.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY\r\n",
    b"PROXY \r\n",
    b"PROXY  TCP4 192.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24 \r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24 1\r\n",
    b"PROXY TCP4 192.0.2.1  198.51.100.2 56324 24\r\n",
    b"PROXY TCP5 192.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY UDP4 192.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY unknown\r\n",
    b"PROXY UNKNOWNS\r\n",
    b"PROXY TCP4 192.0.2.01 198.51.100.2 56324 24\r\n",
    b"PROXY TCP4 192.0.2 198.51.100.2 56324 24\r\n",
    b"PROXY TCP4 192.0.2.256 198.51.100.2 56324 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.02 56324 24\r\n",
    b"PROXY TCP4 2001:db8::1 2001:db8::2 56324 24\r\n",
    b"PROXY TCP6 192.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY TCP6 2001:db8:::1 2001:db8::2 56324 24\r\n",
    b"PROXY TCP6 fe80::1%eth0 2001:db8::2 56324 24\r\n",
    b"PROXY TCP6 2001:db8::1/64 2001:db8::2 56324 24\r\n",
    b"PROXY TCP4 \xd9\xa1.0.2.1 198.51.100.2 56324 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 65536\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 056324 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 00 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 -1 24\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24\n" + b"\r\n",
    b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24\r" + b" \r\n",
    b"PROXY UNKNOWN " + b"x" * 92 + b"\r\n",            # 108 octets
    b"PROXY UNKNOWN " + b"x" * 1000,
    SIGNATURE[:-1] + b"\r" + binary(IPV4, 0x11)[12:],
    binary(IPV4, 0x11, 0x11),                           # version 1, in the form of version 2
    binary(IPV4, 0x11, 0x31),
    binary(IPV4, 0x11, 0x22),
    binary(IPV4, 0x10),
    binary(IPV4, 0x13),
    binary(IPV4, 0x01),
    binary(UNIX, 0x41),
    binary(IPV4[:-1], 0x11),
    binary(IPV6[:-1], 0x21),
    binary(IPV4, 0x21),
    binary(UNIX[:-1], 0x31),
    binary(IPV4 + b"\4", 0x11),
    binary(IPV4 + b"\4\0", 0x11),
    binary(IPV4 + b"\4\0\1", 0x11),
    binary(IPV4 + vector(3, b""), 0x11),
    binary(IPV4 + vector(3, b"\0" * 5), 0x11),
    binary(IPV4 + vector(4, b"\0" * (LIMIT - 16 - 12 - 2)), 0x11),
    binary(b"\0" * 65535, 0x00)[:16],                   # refused before all of it has come
    summed(IPV4, 0x11, wrong=1),
]


@pytest.mark.parametrize(("octets", "expected"), GOOD, ids=range(len(GOOD)))
def test_a_header_however_it_is_cut(octets: bytes, expected: Source | None) -> None:
    assert all(parse(octets[:end]) is None for end in range(len(octets)))
    for rest in (b"", b"\r\n", b"LHLO client.example.org\r\n", SIGNATURE):
        assert parse(octets + rest) == Header(expected, len(octets))


@pytest.mark.parametrize("octets", BAD, ids=range(len(BAD)))
def test_what_is_none(octets: bytes) -> None:
    with pytest.raises(ValueError):
        parse(octets)


@pytest.mark.parametrize(("octets", "expected"), [
    (b"\x00" * 32, 0x8a9136aa),
    (b"\xff" * 32, 0x62a8ab43),
    (bytes(range(32)), 0x46dd794e),
    (bytes(range(31, -1, -1)), 0x113fdb5c),
])
def test_checksums_of_rfc_3720_b_4(octets: bytes, expected: int) -> None:
    assert crc32c(octets) == expected


def outcome(octets: bytes) -> object:
    try:
        return parse(octets)
    except ValueError:
        return ValueError


TCP4 = [b"TCP4", b"192.0.2.1", b"198.51.100.2", b"1", b"2"]


@given(st.one_of(
    st.binary(max_size=200),
    st.builds(b" ".join, st.lists(st.sampled_from([b"PROXY", *TCP4, b"TCP6", b"UNKNOWN", b"::1", b"", b"\r\n"]))),
    st.binary(max_size=60).map(b"PROXY ".__add__),
    st.binary(max_size=60).map(SIGNATURE.__add__),
    st.builds(binary, st.binary(max_size=80), st.sampled_from([0x00, 0x11, 0x12, 0x21, 0x31]),
              st.sampled_from([0x20, 0x21])),
))
@example(b"")
def test_junk_is_refused_or_ends_at_the_same_octet_however_it_is_cut(octets: bytes) -> None:
    seen = [outcome(octets[:end]) for end in range(len(octets) + 1)]
    told = [each for each in seen if each is not None]
    assert all(each == told[0] for each in told)
    assert seen[:len(seen) - len(told)] == [None] * (len(seen) - len(told))
    if told and told[0] is not ValueError:
        assert told[0].length == len(seen) - len(told)


@pytest.mark.parametrize("header", [b"PROXY TCP4 ", b"PROXY TCP6 ", b"PROXY UNKNOWN", b"\r\n\r\n\0\r\nQUIT\n"])
def test_how_a_header_begins(header):
    assert [is_begun(header[:end]) for end in range(len(header))] == [None] * len(header)
    assert is_begun(header) and is_begun(header + b"more")
    for end in range(1, len(header)):
        assert is_begun(header[:end] + b"!") is False
