"""What a script can learn beside the message: the envelope, the time, mailboxes. The store says it; a test of a
script may say something else."""

from collections.abc import Mapping
from datetime import UTC, datetime

from attrs import Factory, frozen

from store.sieve.receivedmail import ReceivedMail


@frozen
class Envelope:
    """RFC 5321: `sender` is "" for <>; `recipient` as RCPT had it."""

    sender: str = ""
    recipient: str = ""


@frozen
class Surroundings:
    """A site that has no mailbox but the INBOX, and no other script; the store has another one.

    None of these may wait for the disk longer than a glance at a cached page, and each is asked at most once a step.
    """

    now: datetime = Factory(lambda: datetime.now(UTC).astimezone())
    environment: Mapping[str, str] = Factory(dict)      # RFC 5183 §4.1: domain, host, location, name, phase, ...
    separator: str = "+"                                # between user and detail of a local part (RFC 5233)

    def has_mailbox(self, name: str) -> bool:
        """Whether the owner has that mailbox and may file into it (RFC 5490 §3.1)."""
        return name.upper() == "INBOX"

    def has_mailbox_id(self, mailbox_id: str) -> bool:
        """Whether there is a mailbox of that id into which the owner may file (RFC 9042 §4)."""
        return False

    def has_special_use(self, mailbox: str, use: str) -> bool:
        """Whether the mailbox, or with "" any, has that use (RFC 8579 §3)."""
        return False

    def metadata(self, mailbox: str | None, name: str) -> str | None:
        """The annotation of a mailbox, or with None of the server (RFC 5490 §3.3, §4.3)."""
        return None

    def spam(self, message: ReceivedMail) -> float | None:
        """How surely a message is spam, 0 to 1, as the filter in front has said; None: nobody tested it (RFC 5235)."""
        return None

    def virus(self, message: ReceivedMail) -> int:
        """0 not tested, 1 no virus, to 5 surely one (RFC 5235 §2.3)."""
        return 0

    def seen(self, key: str) -> bool:
        """Whether the owner's scripts have filed a message with that key before (RFC 7352)."""
        return False

    def has_list(self, name: str) -> bool:
        """Whether there is that list, and the owner may ask about it (RFC 6134 §2.4). Raises RunProblem."""
        return False

    def in_list(self, name: str, address: str) -> bool:
        """Whether the address, local@domain, is a member of that list (RFC 6134 §2.2); not for one that the owner may
        not ask about. Raises RunProblem."""
        return False

    def script(self, name: str, site: bool) -> str | None:
        """Another script of the owner, or of the site, to be included (RFC 6609 §3.2)."""
        return None
