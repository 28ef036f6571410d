"""What an administrator can choose about logging in, to all servers alike."""

from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen
from attrs.validators import ge

from store.accounts.accessrules import Rules
from store.accounts.mechanisms import MECHANISMS, Wanted
from store.accounts.networks import Networks
from store.accounts.throttle.slowdown import Scale
from store.values import setting


def _mechanisms(value: tuple[str, ...]) -> None:
    for name in value:
        if name.upper() not in MECHANISMS:
            raise ValueError(f"{name} is none of {', '.join(MECHANISMS)}")


def _url(value: str) -> None:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("not the address of a page, http:// or https://")


@frozen
class Settings:
    """Settings of every login; times in seconds."""

    mechanisms: tuple[str, ...] = setting(MECHANISMS, "SASL mechanisms that may be offered; those are that the "
                                          "connection and the directory allow", check=_mechanisms)
    access: str = setting("", "access rules of users who have none, and whose domain has none: "
                          "+imap,pop:10.0.0.0/8$-ALL:*", check=Rules.parse)
    service_access: str = setting("", "access rules that hold for all users, besides their own", check=Rules.parse)
    administrators: tuple[str, ...] = setting((), "user ids of those who may act as any user (SASL authorization "
        "identity)")
    proxies: tuple[str, ...] = setting((), "user ids as which proxies log in, that may act as any user from "
                                       "login.proxy_networks")
    proxy_networks: tuple[str, ...] = setting((), "addresses and networks of these proxies; before login they may also "
        "say in ID for whom they connect (x-originating-ip)", check=Networks.parse)
    proxies_use_tls: bool = setting(False, "yes: who comes through a proxy counts as under TLS, which the proxy has "
                                    "seen to; proxies are those of imap.proxy_networks and pop3.proxy_networks (PROXY "
                                    "header) and of login.proxy_networks (ID)")
    remember_time: int = setting(300, "how long a password or token that was found right is remembered, as a keyed "
                                 "digest in memory; 0: not", type="duration", validator=ge(0))
    slow_first: float = setting(1.0, "what a login waits after too many failed ones; doubled with each further one; 0: "
                                "nothing", type="duration", validator=ge(0))
    slow_longest: float = setting(30.0, "what a login waits at most; those that would wait longer are refused",
                                  type="duration", validator=ge(0))
    slow_half_life: float = setting(600.0, "time after which a failed login counts half", type="duration",
                                    validator=ge(1))
    slow_free_address: int = setting(10, "failed logins from an address that cost nothing", validator=ge(0))
    slow_free_user: int = setting(3, "failed logins of a user that cost nothing", validator=ge(0))
    slow_free_network: int = setting(50, "failed logins from a network (/24 of IPv4, /48 of IPv6) that cost nothing",
                                     validator=ge(0))
    slow_exclude: tuple[str, ...] = setting(("local", "127.0.0.0/8", "::1"),
        "addresses and networks of whose failed logins only the users count, such as those of webmail",
        check=Networks.parse)
    oauth_introspection: str = setting("", "where to ask about tokens (RFC 7662); empty: nowhere", check=_url)
    oauth_client_id: str = setting("", "as whom to ask")
    oauth_secret_file: Path | None = setting(None, "file whose first line is the password to ask with")
    oauth_ca: Path | None = setting(None, "PEM file of the authorities of the one who is asked; default: those of the "
                                    "system")
    oauth_time: float = setting(10.0, "how long to wait for the answer", type="duration", validator=ge(0.1))
    oauth_keys: Path | None = setting(None, "file of public keys, a JWK set or PEM, by which tokens are checked that "
                                      "are JWT; default: none are")
    oauth_issuer: str = setting("", "who must have made the token (iss); empty: anybody")
    oauth_audience: str = setting("", "for whom it must be (aud); empty: for whomever, if it names nobody")
    oauth_scope: str = setting("", "what it must allow (scope); empty: anything")
    oauth_user: str = setting("", "the claim that is the login name; default: the first of username, "
                              "preferred_username, email, sub")
    oauth_configuration: str = setting("", "page that tells clients where to get a token (openid-configuration)",
                                       check=_url)

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
                     self.slow_free_user, self.slow_free_network)
