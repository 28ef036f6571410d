"""The first messages between two back ends: the version of the language, and the name of the caller.

TLS has verified the certificates of both by then, and says which names each may have. The back end that was called
speaks first: a caller whose certificate was refused waits for nothing else, and reads the alert of TLS.
"""

from collections.abc import Collection

from store.usermove.messageformat import VERSION, Wire, encode, receive

LANGUAGE = "user move"
GREETING_OCTETS = 2000      # of a message of a caller who has not said a name


class Refused(Exception):
    """The other side is not one that a user may be moved to or from; the text says why."""


def greet_caller(wire: Wire, names: Collection[str], peers: Collection[str], full: str = "") -> str:
    """The name of the caller, which is one of `names`, those in its certificate, and one of `peers`; `full` is why
    nobody can be served now.

    Raises Refused, BadMessage, Ended, OSError.
    """
    wire.write(encode({"onecopy": LANGUAGE, "version": VERSION}))
    said = receive(wire.read, GREETING_OCTETS, 0)
    caller, version = said.text("host").lower(), said.number("version")
    refused = ""
    if version != VERSION:
        refused = f"{caller!r} speaks version {version} of this language, and not {VERSION}"
    elif caller not in names:
        refused = f"the certificate does not name {caller!r}"
    elif caller not in peers:
        refused = f"{caller!r} is not among exchange.peers or exchange.standbys"
    elif full:
        refused = full
    wire.write(encode({"refused": refused}))
    if refused:
        raise Refused(refused)
    return caller


def greet_called(wire: Wire, host: str) -> None:
    """Say that this back end is `host`. Raises Refused, BadMessage, Ended, OSError."""
    said = receive(wire.read, GREETING_OCTETS, 0)
    if said.fields.get("onecopy") != LANGUAGE or said.number("version") != VERSION:
        raise Refused(f"it does not speak version {VERSION} of this language")
    wire.write(encode({"version": VERSION, "host": host}))
    if refused := receive(wire.read, GREETING_OCTETS, 0).text("refused"):
        raise Refused(f"it refuses this back end: {refused}")
