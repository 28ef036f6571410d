"""What an administrator can choose about logging in, to all servers alike."""

from pathlib import Path
from urllib.parse import urlsplit

from attrs import frozen
from attrs.validators import ge, in_

from store.accounts.accessrules import Rules
from store.accounts.mechanisms import MECHANISMS, Wanted
from store.accounts.networks import Networks
from store.accounts.sasl.scram import HASHES, PLUS
from store.accounts.throttle.slowdown import Scale
from store.values import setting

OFF, ALLOWED, REQUIRED = "off", "allowed", "required"      # app passwords


def _mechanisms(value: tuple[str, ...]) -> None:
    for name in value:
        if name.upper() not in MECHANISMS:
            raise ValueError(f"{name} is none of {', '.join(MECHANISMS)}")


def _hashes(value: tuple[str, ...]) -> None:
    for name in value:
        if name.upper() not in HASHES:
            raise ValueError(f"{name} is none of {', '.join(HASHES)}")


def _url(value: str) -> None:
    parts = urlsplit(value)
    if value and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise ValueError("not the address of a page, http:// or https://")


@frozen
class Settings:
    """Settings of every login; times in seconds."""

    mechanisms: tuple[str, ...] = setting(MECHANISMS, "SASL mechanisms that may be offered; those are that the "
                                          "connection, the directory and scram_keys allow", check=_mechanisms)
    scram_keys: tuple[str, ...] = setting((), "mechanisms of SCRAM whose keys are kept beside the hash of a password "
        "that is set, and that are offered: SCRAM-SHA-256, SCRAM-SHA-1; empty: none. Who has stolen keys guesses the "
        "password many times faster than from the hash, with SCRAM-SHA-1 faster still", check=_hashes)
    app_passwords: str = setting(ALLOWED, "app passwords, which users make for their mail programs: off, allowed, or "
        "required: then IMAP, POP3 and SMTP take no password of the directory from anybody, and offer no SCRAM",
        validator=in_((OFF, ALLOWED, REQUIRED)))
    second_factor_requires: bool = setting(True, "yes: who has a second factor for the console needs app passwords for "
        "mail, which the password alone would open otherwise; not with app_passwords = off")
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
    oauth_issuer: str = setting("", "who must have made the token (iss); needed with oauth_keys; empty: anybody whom "
                                "oauth_introspection vouches for")
    oauth_audience: str = setting("", "for whom it must be (aud), as the provider calls this server; without it no "
                                  "token is taken: one that was made for another application would do here, too")
    oauth_scope: str = setting("", "what it must allow (scope); empty: anything")
    oauth_user: str = setting("", "the claim that is the login name; default: the first of username, "
                              "preferred_username, email, sub")
    oauth_trust_email: bool = setting(False, "yes: the provider guarantees that the claim email is the user's own "
                                      "address, also where email_verified is not true")
    oauth_configuration: str = setting("", "page that tells clients where to get a token (openid-configuration)",
                                       check=_url)

    @property
    def oauth(self) -> bool:
        """Whether tokens can be checked."""
        return bool(self.oauth_introspection or self.oauth_keys) and not self.oauth_lacks

    @property
    def oauth_lacks(self) -> str:
        """The option without which no token can be taken; "" if there is none, or tokens are not wanted."""
        if not (self.oauth_introspection or self.oauth_keys):
            return ""
        if not self.oauth_audience:
            return "login.oauth_audience"
        return "login.oauth_issuer" if self.oauth_keys and not self.oauth_issuer else ""

    @property
    def kept_keys(self) -> frozenset[str]:
        """`scram_keys`, as they are written."""
        return frozenset(name.upper() for name in self.scram_keys)

    @property
    def offered(self) -> frozenset[str]:
        """The mechanisms that may be offered: of SCRAM those whose keys are kept."""
        names = frozenset(name.upper() for name in self.mechanisms)
        without = () if self.oauth else ("OAUTHBEARER", "XOAUTH2")
        return frozenset(name for name in names.difference(without) if not name.startswith("SCRAM-")
                         or name.removesuffix(PLUS) in self.kept_keys)

    @property
    def wanted(self) -> Wanted:
        """What clients hear whose token is not taken."""
        return Wanted(self.oauth_scope, self.oauth_configuration)

    @property
    def scale(self) -> Scale:
        """How failed logins slow down."""
        return Scale(self.slow_first, self.slow_longest, self.slow_half_life, self.slow_free_address,
                     self.slow_free_user, self.slow_free_network)
