"""The generated messages are what they claim to be."""

import pytest

from tests.support.stores import messages


@pytest.mark.parametrize("number", range(len(messages.KINDS) * 3))
@pytest.mark.parametrize("size", [1024, 1025, 1026, 1027, 5000, 65_537])
def test_a_message(number: int, size: int) -> None:
    message = messages.make(7, number, size)
    assert len(message) == size
    assert message == messages.make(7, number, size) != messages.make(8, number, size)
    assert message.endswith(b"\r\n")
    assert b"\0" not in message
    lines = message.split(b"\r\n")
    assert max(map(len, lines)) <= messages.LONGEST_LINE
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    assert messages.number_of(b"Received: from x\r\n" + message) == (7, number)


def test_sizes() -> None:
    sizes = messages.sizes(1, 500)
    assert len(sizes) == 500
    assert (min(sizes), max(sizes)) == (1024, 1024 * 1024)
