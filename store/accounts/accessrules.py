"""Who may use which service from where: rules in the form that Sun's directories have (mailAllowedServiceAccess).

`+imap,pop:10.0.0.0/8$-ALL:*`: rules with a dollar sign between them, each with + (may) or - (may not), services, a
colon, and clients. The first rule that speaks of the service and the client decides. When none does, the service may be
used if all rules are denials, else it may not. Both lists can have exceptions: `+ALL EXCEPT pop:* EXCEPT 192.0.2.0/24`.

`imap` is IMAP with TLS and without, `imaps` only under TLS; `pop` and `pops`, `lmtp` and `lmtps` likewise.
"""

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache

from attrs import frozen

from store.accounts.networks import LOCAL, Networks

LONGEST = 4000              # characters; a user's row is read at each login

#: Services of others, too: a directory that other servers read, has them.
SERVICES = frozenset({"imap", "imaps", "pop", "pops", "lmtp", "lmtps", "http", "https", "smtp", "smtps"})
_OTHER_NAMES = {"pop3": "pop", "pop3s": "pops"}
_EVERYBODY = ("all", "*")
_QUADS = re.compile(r"(?:[0-9]{1,3}\.){1,3}\*?")                    # 10.  10.*  10.1.
_MASK = re.compile(r"[0-9.]+/[0-9]+\.[0-9.]+")
_EXCEPT = re.compile(r"\s+EXCEPT\s+", re.IGNORECASE)


class BadRule(ValueError):
    """The text is no rule; it says why."""


@frozen
class Words:
    """A list, and those that are excepted from it."""

    everybody: bool
    services: frozenset[str] = frozenset()
    networks: Networks = Networks()
    but: "Words | None" = None

    def has_service(self, service: str, *, secure: bool) -> bool:
        """Whether a service is meant, under TLS or without it."""
        named = self.everybody or service in self.services or (secure and service + "s" in self.services)
        return named and not (self.but is not None and self.but.has_service(service, secure=secure))

    def has_client(self, peer: str) -> bool:
        """Whether a client is meant, whose address is as `Stream.peer` has it."""
        named = self.everybody or peer in self.networks
        return named and not (self.but is not None and self.but.has_client(peer))


@frozen
class Rule:
    """One of them."""

    allows: bool
    services: Words
    clients: Words


@frozen
class Rules:
    """All that are said of a user, a domain, or a server; none: everything may be used."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Rules":
        """Raises BadRule."""
        if len(text) > LONGEST:
            raise BadRule(f"more than {LONGEST} characters")
        return _parsed(text)

    def allow(self, service: str, peer: str, *, secure: bool) -> bool:
        """Whether a client at that address may use the service ("imap", "pop", "lmtp"), under TLS or without it."""
        if not self.rules:          # as of most users; it is asked for each message that a client in IDLE hears of
            return True
        at = self.deciding(service, peer, secure=secure)
        return self.rules[at].allows if at is not None else not any(rule.allows for rule in self.rules)

    def deciding(self, service: str, peer: str, *, secure: bool) -> int | None:
        """Which of the rules decides that; None: none of them speaks of it."""
        for at, rule in enumerate(self.rules):
            if rule.services.has_service(service, secure=secure) and rule.clients.has_client(peer):
                return at
        return None


_Maker = Callable[[bool, list[str], Words | None], Words]


@lru_cache(maxsize=1000)
def _parsed(text: str) -> Rules:
    return Rules(tuple(_rule(part.strip()) for part in text.split("$")) if text.strip() else ())


def _rule(text: str) -> Rule:
    services, colon, clients = text[1:].partition(":")
    if text[:1] not in ("+", "-"):
        raise BadRule(f"{text!r} begins with neither + nor -")
    if not colon:
        raise BadRule(f"{text!r} has no colon between services and clients")
    return Rule(text[0] == "+", _words(services, _services), _words(clients, _clients))


def _words(text: str, make: _Maker) -> Words:
    """list [EXCEPT list [EXCEPT list]]: what is excepted can have exceptions in turn."""
    found: Words | None = None
    for part in reversed(_EXCEPT.split(text.strip())):
        words = [word for word in re.split(r"[,\s]+", part.strip()) if word]
        if not words:
            raise BadRule(f"a list is empty in {text.strip()!r}")
        everybody = any(word.lower() in _EVERYBODY for word in words)
        found = make(everybody, [word for word in words if word.lower() not in _EVERYBODY], found)
    assert found is not None
    return found


def _services(everybody: bool, words: list[str], but: Words | None) -> Words:
    names = [_OTHER_NAMES.get(word.lower(), word.lower()) for word in words]
    for word, name in zip(words, names, strict=True):
        if name not in SERVICES:
            raise BadRule(f"{word!r} is no service: {', '.join(sorted(SERVICES))}, ALL")
    return Words(everybody, services=frozenset(names), but=but)


def _clients(everybody: bool, words: list[str], but: Words | None) -> Words:
    try:
        return Words(everybody, networks=Networks.parse(map(_network, words)), but=but)
    except ValueError as error:
        raise BadRule(str(error)) from None


def _network(word: str) -> str:
    """A client in the forms that there are, as a network. Raises BadRule, ValueError."""
    if word.lower() == LOCAL:
        return LOCAL
    bare = word.strip("[]")
    if _QUADS.fullmatch(bare):                          # 10.1. and 10.1.* are 10.1.0.0/16
        quads = [quad for quad in bare.split(".") if quad not in ("", "*")]
        return str(ipaddress.ip_network(f"{'.'.join(quads + ['0'] * (4 - len(quads)))}/{8 * len(quads)}"))
    if _MASK.fullmatch(bare):                           # 10.1.0.0/255.255.0.0
        return str(ipaddress.ip_network(bare))
    if not re.fullmatch(r"[0-9A-Fa-f.:]+(?:/[0-9]+)?", bare):
        raise BadRule(f"{word!r} is no address or network; names are not looked up: whoever runs the reverse zone "
                      "chooses them")
    return bare
