"""Python's imaplib as a client: what it sends and expects is not of our making."""

import imaplib
from typing import Any

from tests.support.servers.server import PASSWORD, Server


def login(server: Server, user: str) -> imaplib.IMAP4:
    """A client that has logged in."""
    client = imaplib.IMAP4("127.0.0.1", server.imap)
    client.login(user, PASSWORD)
    return client


def ok(answer: tuple[str, list[Any]]) -> list[Any]:
    """The data of an OK."""
    assert answer[0] == "OK", answer
    return answer[1]
