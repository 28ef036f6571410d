"""The SASL mechanisms, as state machines apart from how each protocol carries them (RFC 4422).

An exchange is a generator. It yields either a `Challenge`, to be sent the client's response, or a question for the
directory, to be sent the answer, or thrown the StoreError that it came to; the end is `Proved`. The first is always a
challenge, which an initial response answers before it is said. A message that is none raises `Malformed`; what the
client cannot prove, StoreError BAD_LOGIN.
"""

import hmac
import os
from collections.abc import Callable, Generator
from typing import Any

from attrs import field, frozen

from store.accounts.base import Account
from store.accounts.sasl import bearer, scram
from store.accounts.sasl.bearer import Bearer
from store.accounts.sasl.scram import PLUS, Keys
from store.errors import Problem, StoreError
from store.values import Secret


class Malformed(Exception):
    """The octets are no message of the mechanism; the text may be shown to the client."""


class NotOffered(Exception):
    """There is no such mechanism, here and now."""


class GivenUp(Exception):
    """The client has given an exchange up, or (`malformed`) what it has said is no response; the text says so."""

    def __init__(self, text: str, *, malformed: bool = False) -> None:
        super().__init__(text)
        self.malformed = malformed


@frozen
class Challenge:
    """To be said to the client, whose response goes on with the exchange."""

    octets: bytes


@frozen
class CheckPassword:
    """Answered with the account of the one who logs in."""

    user: str
    password: Secret


@frozen
class FindKeys:
    """Answered with the user's keys and the account; for an unknown user with keys that nothing fits, and None."""

    user: str
    mechanism: str


@frozen
class Turn:
    """Answered with None when the proof of this user may be looked at: guesses wait for each other."""

    user: str


@frozen
class CheckToken:
    """Answered with the account of the one to whom the token was given. `user`: who that is, as the client says."""

    user: str
    token: Secret


@frozen
class FindNamed:
    """Answered with the account that has one of the names of a client's certificate."""

    names: tuple[str, ...]


Question = CheckPassword | FindKeys | Turn | CheckToken | FindNamed


@frozen
class Proved:
    """Who the client is, and as whom it wants to act ("": as the same)."""

    account: Account
    acts_as: str = ""


Exchange = Generator[Challenge | Question, Any, Proved]


@frozen
class Channel:
    """What mechanisms want to know of the connection."""

    secure: bool = False
    certificate: tuple[str, ...] = ()               # the names of the client's, which has been verified
    binding: Callable[[str], bytes | None] = field(default=lambda kind: None)     # data of a channel binding by name
    plus: bool = False                              # whether we offer mechanisms that bind


@frozen
class Wanted:
    """What a client hears whose token is not taken (RFC 7628 §3.2.2)."""

    scope: str = ""
    configuration: str = ""


# By rank: what proves most comes first, so that a client that takes the first it knows takes the best.
MECHANISMS = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS", "SCRAM-SHA-256", "SCRAM-SHA-1", "EXTERNAL", "OAUTHBEARER",
              "XOAUTH2", "PLAIN", "LOGIN")


WITHOUT_PASSWORD = frozenset({"EXTERNAL", "OAUTHBEARER", "XOAUTH2"})


def begin(mechanism: str, channel: Channel, wanted: Wanted = Wanted()) -> Exchange:
    """An exchange by one of `MECHANISMS`."""
    if mechanism == "PLAIN":
        return _plain()
    if mechanism == "LOGIN":
        return _login()
    if mechanism == "EXTERNAL":
        return _external(channel)
    if mechanism in ("OAUTHBEARER", "XOAUTH2"):
        return _token(bearer.oauthbearer if mechanism == "OAUTHBEARER" else bearer.xoauth2, wanted)
    return _scram(mechanism.removesuffix(PLUS), channel, binds=mechanism.endswith(PLUS))


@frozen
class Plain:
    """A message of PLAIN (RFC 4616 §2): who logs in, with which password, and as whom ("": as the same)."""

    acts_as: str
    user: str
    password: Secret

    @classmethod
    def from_bytes(cls, message: bytes) -> "Plain":
        """[authzid] NUL authcid NUL passwd. Raises ValueError, whose text may be shown to the client."""
        parts = message.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise ValueError("That is not a message of PLAIN")
        try:
            return cls(parts[0].decode(), parts[1].decode(), Secret(parts[2]))
        except UnicodeDecodeError:
            raise ValueError("The names of PLAIN are UTF-8") from None


def _plain() -> Exchange:
    """RFC 4616"""
    message = _parsed(Plain.from_bytes, (yield Challenge(b"")))
    account = yield CheckPassword(message.user, message.password)
    return Proved(account, message.acts_as)


def _login() -> Exchange:
    """LOGIN, which no RFC has: a name, then a password. Clients look for these very words."""
    name = _parsed(_utf8, (yield Challenge(b"Username:")))
    password = yield Challenge(b"Password:")
    if not name or not password or b"\0" in password:
        raise Malformed("A name and a password are wanted")
    account = yield CheckPassword(name, Secret(password))
    return Proved(account)


def _external(channel: Channel) -> Exchange:
    """RFC 4422 appendix A: who the client is says its certificate."""
    acts_as = _parsed(_utf8, (yield Challenge(b"")))
    account = yield FindNamed(channel.certificate)
    return Proved(account, acts_as)


def _token(parse: Callable[[bytes], Bearer], wanted: Wanted) -> Exchange:
    """RFC 7628 §3.2: a client whose token is not taken hears why, and says something before the exchange fails."""
    message = _parsed(parse, (yield Challenge(b"")))
    try:
        if message.token is None:
            raise StoreError(Problem.BAD_LOGIN, detail="no token")
        account = yield CheckToken(message.user, message.token)
    except StoreError as error:
        if error.problem is Problem.BAD_LOGIN:
            yield Challenge(bearer.failure("invalid_token", wanted.scope, wanted.configuration))
        raise
    return Proved(account, message.user)


def _scram(mechanism: str, channel: Channel, *, binds: bool) -> Exchange:
    """RFC 5802 §5"""
    first = _parsed(scram.client_first, (yield Challenge(b"")))
    data = b""
    if bool(first.binding) is not binds:
        raise Malformed("The mechanism ending in PLUS, and no other, binds to the channel")
    if first.believes_none and channel.plus:        # RFC 5802 §6: somebody has cut our offer
        raise StoreError(Problem.BAD_LOGIN, detail="the client was not told of channel binding")
    if binds:
        found = channel.binding(first.binding)
        if found is None:
            raise StoreError(Problem.BAD_LOGIN, detail=f"there is no channel binding {first.binding}")
        data = found
    keys: Keys
    account: Account | None
    keys, account = yield FindKeys(first.user, mechanism)
    nonce = first.nonce + scram.encoded(os.urandom(18))
    said = scram.server_first(keys, nonce)
    final = _parsed(scram.client_final, (yield Challenge(said)))
    yield Turn(first.user)
    verifier = scram.server_final(keys, first, said, final)
    same = hmac.compare_digest(final.channel, first.header + data) and final.nonce == nonce
    if account is None or verifier is None or not same or not account.status.may_log_in:
        raise StoreError(Problem.BAD_LOGIN)
    if (yield Challenge(verifier)):                 # the protocols have no other place for it
        raise Malformed("Nothing more is wanted")
    return Proved(account, first.acts_as)


def _parsed(parse: Callable[[bytes], Any], message: bytes) -> Any:
    try:
        return parse(message)
    except ValueError as error:
        raise Malformed(str(error)) from None


def _utf8(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ValueError("Names are UTF-8") from None
    if "\0" in text:
        raise ValueError("There is a NUL in the name")
    return text
