"""What a run of a script decides about a message. Whoever runs it carries this out, all in one transaction."""

from attrs import define, field, frozen

KEPT = ""                       # where the message would go without a script


@frozen
class Edition:
    """The message as a script has changed it (RFC 5293, 5703): fields that stand before all others, or all of it."""

    added: bytes = b""                  # fields, each with its CRLF, put before an unchanged message
    whole: bytes | None = None          # the message, where a field was removed or a part replaced

    @property
    def unchanged(self) -> bool:
        return not self.added and self.whole is None


UNCHANGED = Edition()


@frozen
class Filed:
    """The message goes to a mailbox of the owner (RFC 5228 §4.1), or is KEPT (§4.3).

    `create`: it is made if there is none (RFC 5490 §3.2). `special_use` or `mailbox_id`, if not "", choose it before
    its name does (RFC 8579 §4, RFC 9042 §3).
    """

    mailbox: str = KEPT
    flags: tuple[str, ...] = ()
    create: bool = False
    special_use: str = ""
    edition: Edition = UNCHANGED
    mailbox_id: str = ""


JUST_KEPT = [Filed()]           # what scripts say of most mail


@frozen
class Redirected:
    """The message is sent on to an address (RFC 5228 §4.2)."""

    address: str
    edition: Edition = UNCHANGED


@frozen
class Refused:
    """The message is not taken: `reason` for the sender; `at_protocol`: within LMTP's reply alone (RFC 5429 §2)."""

    reason: str
    at_protocol: bool


@frozen
class Copied:
    """Where a copy of what is sent is filed (RFC 8580)."""

    mailbox: str
    flags: tuple[str, ...] = ()
    create: bool = False
    special_use: str = ""
    mailbox_id: str = ""


@frozen
class Answered:
    """An answer that its owner is away (RFC 5230): at most one to each sender in `seconds` for this `handle`."""

    reason: str
    seconds: int
    handle: str
    subject: str = ""
    sender: str = ""                    # :from; "": the owner's address
    addresses: tuple[str, ...] = ()     # more addresses of the owner
    mime: bool = False                  # `reason` is a MIME entity
    copy: Copied | None = None


@frozen
class Notified:
    """A message about the message (RFC 5435, RFC 5436): to a URI of scheme mailto."""

    method: str
    message: str = ""
    sender: str = ""
    importance: int = 2                 # 1 the highest, 3 the lowest
    options: tuple[str, ...] = ()
    copy: Copied | None = None


@frozen
class Seen:
    """What the test `duplicate` (RFC 7352) asked about; if it is filed, it is remembered for `seconds`."""

    key: str
    seconds: int


@define(eq=False)
class Outcome:
    """What is to be done, in the order in which the script said so. Without `keeps` and anything in `files` or
    `refused` the message is discarded."""

    files: list[Filed] = field(factory=list)
    redirects: list[Redirected] = field(factory=list)
    refused: Refused | None = None
    answer: Answered | None = None
    notices: list[Notified] = field(factory=list)
    seen: list[Seen] = field(factory=list)
    failure: str = ""                   # why the script could not run to its end; the message is in the INBOX then

    @property
    def actions(self) -> int:
        return len(self.files) + len(self.redirects) + len(self.notices) + (self.answer is not None) + (
            self.refused is not None)
