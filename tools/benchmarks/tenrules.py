"""A script of ten rules (`tenrules.sieve`), the mailboxes that it files into, and what it does with a message."""

import email
from email.policy import default
from pathlib import Path

from mboxlist import privatefiles

_FILE = Path(__file__).with_suffix(".sieve")
NAME = "ten"
MAILBOXES = ("Lists", "Work", "Tickets", "Junk", "Large", "Bulk")
USER = "files%04d"      # names of the users who have it
MOST = 100              # of them


def script() -> bytes:
    """Its text."""
    return privatefiles.read_named(_FILE)


def users(count: int) -> list[str]:
    """The users who have it on a server with so many others."""
    return [USER % number for number in range(min(count, MOST))]


def is_filed(octets: bytes) -> bool:
    """Whether the script files that message of the load generator, by the rules that can apply to one."""
    message = email.message_from_bytes(octets, policy=default)
    subject = str(message["subject"]).lower()
    at_work = any(one.domain == "corp.example" for one in message["from"].addresses)
    return at_work and "newsletter" not in subject or "[ticket #" in subject or "invoice" in subject
