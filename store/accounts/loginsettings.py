"""What an administrator can choose about logging in, to all servers alike."""

from pathlib import Path
from urllib.parse import urlsplit

from attrs import Attribute, field, frozen
from attrs.validators import ge

from store.accounts.accessrules import Rules
from store.accounts.mechanisms import MECHANISMS, Wanted
from store.accounts.networks import Networks
from store.accounts.slowdown import Scale


def _rules(_settings: object, _attribute: "Attribute[str]", value: str) -> None:
    Rules.parse(value)


def _networks(_settings: object, _attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    Networks.parse(value)


def _mechanisms(_settings: object, _attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for name in value:
        if name.upper() not in MECHANISMS:
            raise ValueError(f"{name} is none of {', '.join(MECHANISMS)}")


def _url(_settings: object, _attribute: "Attribute[str]", value: str) -> None:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("not the address of a page, http:// or https://")


@frozen
class Settings:
    """Settings of every login; times in seconds."""

    mechanisms: tuple[str, ...] = field(default=MECHANISMS, validator=_mechanisms, metadata={
        "help": "SASL mechanisms that may be offered; those are that the connection and the directory allow"})
    access: str = field(default="", validator=_rules, metadata={
        "help": "access rules of users who have none, and whose domain has none: +imap,pop:10.0.0.0/8$-ALL:*"})
    service_access: str = field(default="", validator=_rules, metadata={
        "help": "access rules that hold for all users, besides their own"})
    administrators: tuple[str, ...] = field(default=(), metadata={
        "help": "user ids of those who may act as any user (SASL authorization identity)"})
    proxies: tuple[str, ...] = field(default=(), metadata={
        "help": "user ids as which proxies log in, that may act as any user from login.proxy_networks"})
    proxy_networks: tuple[str, ...] = field(default=(), validator=_networks, metadata={
        "help": "addresses and networks of these proxies; before login they may also say in ID for whom they connect "
                "(x-originating-ip)"})
    proxies_use_tls: bool = field(default=False, metadata={
        "help": "yes: who comes through a proxy counts as under TLS, which the proxy has seen to; proxies are those of "
                "imap.proxy_networks and pop3.proxy_networks (PROXY header) and of login.proxy_networks (ID)"})
    remember_time: int = field(default=300, validator=ge(0), metadata={
        "help": "how long a password or token that was found right is remembered, as a keyed digest in memory; 0: not",
        "type": "duration"})
    slow_first: float = field(default=1.0, validator=ge(0), metadata={
        "help": "what a login waits after too many failed ones; doubled with each further one; 0: nothing",
        "type": "duration"})
    slow_longest: float = field(default=30.0, validator=ge(0), metadata={
        "help": "what a login waits at most", "type": "duration"})
    slow_half_life: float = field(default=600.0, validator=ge(1), metadata={
        "help": "time after which a failed login counts half", "type": "duration"})
    slow_free_address: int = field(default=10, validator=ge(0), metadata={
        "help": "failed logins from an address that cost nothing"})
    slow_free_user: int = field(default=3, validator=ge(0), metadata={
        "help": "failed logins of a user that cost nothing"})
    slow_exclude: tuple[str, ...] = field(default=("local", "127.0.0.0/8", "::1"), validator=_networks, metadata={
        "help": "addresses and networks of whose failed logins only the users count, such as those of webmail"})
    oauth_introspection: str = field(default="", validator=_url, metadata={
        "help": "where to ask about tokens (RFC 7662); empty: nowhere"})
    oauth_client_id: str = field(default="", metadata={"help": "as whom to ask"})
    oauth_secret_file: Path | None = field(default=None, metadata={
        "help": "file whose first line is the password to ask with"})
    oauth_ca: Path | None = field(default=None, metadata={
        "help": "PEM file of the authorities of the one who is asked; default: those of the system"})
    oauth_time: float = field(default=10.0, validator=ge(0.1), metadata={
        "help": "how long to wait for the answer", "type": "duration"})
    oauth_keys: Path | None = field(default=None, metadata={
        "help": "file of public keys, a JWK set or PEM, by which tokens are checked that are JWT; default: none are"})
    oauth_issuer: str = field(default="", metadata={"help": "who must have made the token (iss); empty: anybody"})
    oauth_audience: str = field(default="", metadata={
        "help": "for whom it must be (aud); empty: for whomever, if it names nobody"})
    oauth_scope: str = field(default="", metadata={"help": "what it must allow (scope); empty: anything"})
    oauth_user: str = field(default="", metadata={
        "help": "the claim that is the login name; default: the first of username, preferred_username, email, sub"})
    oauth_configuration: str = field(default="", validator=_url, metadata={
        "help": "page that tells clients where to get a token (openid-configuration)"})

    @property
    def oauth(self) -> bool:
        """Whether tokens can be checked."""
        return bool(self.oauth_introspection or self.oauth_keys)

    @property
    def wanted(self) -> Wanted:
        """What clients hear whose token is not taken."""
        return Wanted(self.oauth_scope, self.oauth_configuration)

    @property
    def scale(self) -> Scale:
        """How failed logins slow down."""
        return Scale(self.slow_first, self.slow_longest, self.slow_half_life, self.slow_free_address,
                     self.slow_free_user)
