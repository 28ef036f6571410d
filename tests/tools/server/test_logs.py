"""A line for each event, whatever is in it."""

import logging
import sys

from tools.server.process.logs import Line


def line(message: str, *arguments: object, failed: bool = False) -> str:
    record = logging.LogRecord("imap.session", logging.INFO, __file__, 1, message, arguments,
                               sys.exc_info() if failed else None)
    record.created, record.process = 0.0, 77
    return Line().format(record)


def test_a_line() -> None:
    assert line("%s: logged in from %s", "1-2", "127.0.0.1") == (
        "1970-01-01T00:00:00Z 77 INFO imap.session: 1-2: logged in from 127.0.0.1")


def test_what_a_client_sends_cannot_make_lines_or_move_the_cursor() -> None:
    found = line("user %s", "a\r\nb\n1970 \x1b[2J\0\u2028é")
    assert found.endswith("user a\\x0d\\nb\\n1970 \\x1b[2J\\x00\\x2028é")


def test_a_traceback_is_one_line() -> None:
    try:
        raise ValueError("why\nnot")
    except ValueError:
        found = line("failed", failed=True)
    assert "\n" not in found and found.endswith("ValueError: why\\nnot")
