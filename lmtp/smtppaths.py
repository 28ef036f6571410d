"""Paths and addresses in MAIL and RCPT (RFC 5321 §4.1.2, §4.1.3; RFC 6531 §3.3 for those that are not ASCII)."""

import ipaddress
import re

from attrs import field, frozen

LOCAL_LIMIT = 320       # octets; RFC 5321 §4.5.3.1.1 demands 64, a mailbox in a sub-address needs more;
                        # even quoted it fits in a header line
DOMAIN_LIMIT = 255      # RFC 5321 §4.5.3.1.2

# Repeats of single characters are possessive, and what follows one begins with another character: nothing is tried
# twice, so matching is linear in the input.
_OTHER = r"\u00a1-\U0010ffff"                           # not ASCII, no control characters, no space
_ATOM = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_OTHER}-]++"
_DOT_STRING = rf"{_ATOM}(?:\.{_ATOM})*"
_DOTTED = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_OTHER}.-]++"      # dots anywhere: relays take such addresses, which exist
_QUOTED = rf'"(?:[ !#-\[\]-~{_OTHER}]|\\[ -~])*"'
_LABEL = rf"[A-Za-z0-9_{_OTHER}]++(?:-++[A-Za-z0-9_{_OTHER}]++)*"      # with the underscore, which real senders have
_DOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_LITERAL = r"\[[A-Za-z0-9.:-]++\]"
_ROUTE = rf"(?:@{_DOMAIN}(?:,@{_DOMAIN})*:)?"

_PATH = re.compile(rf"<{_ROUTE}(?:({_DOTTED})|({_QUOTED}))(?:@({_DOMAIN}|{_LITERAL}))?>")
_DOT_STRING_ALONE = re.compile(_DOT_STRING)
_DOMAIN_ALONE = re.compile(_DOMAIN)
_TO_QUOTE = re.compile(r'(["\\])')
_QUOTED_PAIR = re.compile(r"\\(.)")


class PathProblem(ValueError):
    """This is not a path."""


@frozen
class Address:
    """A mailbox as SMTP names it. `local` is without quotes; `domain` None: our own (RFC 5321 §4.1.1.3, Postmaster)."""

    local: str
    domain: str | None = None
    text: str = field(init=False, repr=False, eq=False)         # as it is written,
    plain: str = field(init=False, repr=False, eq=False)        # and as a directory knows it, without quotes

    @text.default
    def _written(self) -> str:
        local = self.local
        if not _DOT_STRING_ALONE.fullmatch(local):
            local = f'"{_TO_QUOTE.sub(_escaped, local)}"'
        return local if self.domain is None else f"{local}@{self.domain}"

    @plain.default
    def _unquoted(self) -> str:
        return self.local if self.domain is None else f"{self.local}@{self.domain}"

    def __str__(self) -> str:
        return self.text

    @property
    def is_ascii(self) -> bool:
        """Whether it can be written without SMTPUTF8."""
        return self.text.isascii()

    def divided(self, separator: str) -> tuple["Address", str] | None:
        """The user and the mailbox of user+mailbox@domain (RFC 5233 §1); None when this is no such address."""
        if not separator:
            return None
        user, found, mailbox = self.local.partition(separator)
        return (Address(user, self.domain), mailbox) if user and found else None


def path(text: str) -> tuple[Address | None, str]:
    """The path at the start of `text`, None for <>, and what follows it; a source route is ignored (RFC 5321 §F.2).

    Raises PathProblem.
    """
    if text.startswith("<>"):
        return None, text[2:]
    match = _PATH.match(text)
    if match is None:
        raise PathProblem
    local, quoted, domain = match.groups()
    if local is None:
        local = _QUOTED_PAIR.sub(r"\1", quoted[1:-1])
    if not local or len(local.encode()) > LOCAL_LIMIT:
        raise PathProblem
    if domain is not None and not _legal_domain(domain):
        raise PathProblem
    return Address(local, domain), text[match.end():]


def is_host(text: str) -> bool:
    """Whether `text` is a domain or an address literal: the argument of LHLO (RFC 5321 §4.1.1.1)."""
    if text.startswith("["):
        return _legal_domain(text)
    return text.isascii() and _DOMAIN_ALONE.fullmatch(text) is not None and len(text) <= DOMAIN_LIMIT


def is_ip(text: str) -> bool:
    """Whether `text` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def literal(address: str) -> str:
    """The address literal of an IP address (RFC 5321 §4.1.3). Raises ValueError when it is none."""
    parsed = ipaddress.ip_address(address)
    return f"[{parsed}]" if parsed.version == 4 else f"[IPv6:{parsed}]"


def _legal_domain(domain: str) -> bool:
    if not domain.startswith("["):
        return len(domain.encode()) <= DOMAIN_LIMIT
    inside = domain[1:-1]
    try:
        if inside[:5].upper() == "IPV6:":
            ipaddress.IPv6Address(inside[5:])
        else:
            ipaddress.IPv4Address(inside)
    except ValueError:
        return False
    return domain.endswith("]")


def _escaped(match: re.Match[str]) -> str:
    return "\\" + match[0]
