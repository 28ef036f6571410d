"""What a relay and the store put on top of a message; everything below it must be the octets that were sent."""

import re

_FIELD = rb"(?:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)"
_OURS = re.compile(rb"Return-Path: <([^\r\n]*)>\r\nReceived: from " + _FIELD)
_RELAYS = re.compile(
    rb"Received: from client\.example\.org \(unknown \[127\.0\.0\.\d+\]\)\r\n"
    rb"\tby relay\.example\.org \(Postfix\) with (?:UTF8SMTP|ESMTP) id \w+;?(?:\r\n\tfor <[^\r\n]*>;)? ?" + _FIELD
    + rb"|Received: from \[127\.0\.0\.1\] \(helo=client\.example\.org\)\r\n"
    rb"\tby relay\.example\.org with (?:utf8)?esmtp \(Exim [\d.]+\)\r\n" + _FIELD
    + rb"|Received: from client\.example\.org \(localhost \[127\.0\.0\.1\]\)\r\n"
    rb"\tby relay\.example\.org \(OpenSMTPD\) with ESMTP id \w+;?\r\n" + _FIELD)


def below(message: bytes, sender: str, *, relayed: bool = False) -> bytes:
    """`message` without Return-Path and Received of the store, and without its relay's Received if it was `relayed`.

    Raises AssertionError unless exactly these are there.
    """
    ours = _OURS.match(message)
    assert ours, f"no trace header: {message[:200]!r}"
    assert ours[1] == sender.encode(), f"Return-Path: <{ours[1]!r}>, sent by {sender}"
    end = ours.end()
    if relayed:
        relay = _RELAYS.match(message, end)
        assert relay, f"no relay's Received is below ours: {message[end:end + 300]!r}"
        end = relay.end()
    return message[end:]
