"""What an administrator can choose about the directory: where it is, and how long what it says is believed."""

from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from attrs import evolve, frozen
from attrs.validators import ge, in_

from store.values import setting

PORTS = {"ldap": 389, "ldaps": 636}
SCOPES = ("subtree", "one level")
REFERRALS = ("fail", "ignore", "follow")


@frozen
class ServerUri:
    """Where an LDAP server is (RFC 4516 §2, without a DN): `tls` from the first octet on."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, text: str) -> "ServerUri":
        """From ldap://HOST:PORT or ldaps://HOST. Raises ValueError."""
        parts = urlsplit(text)
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(f"{text}: more than a server")
        return cls.of(parts, text)

    @classmethod
    def of(cls, parts: SplitResult, text: str) -> "ServerUri":
        """The server of a URI that may say more. Raises ValueError."""
        if parts.scheme not in PORTS or not parts.hostname or "@" in parts.netloc:
            raise ValueError(f"{text}: not ldap://HOST or ldaps://HOST")
        return cls(parts.hostname, parts.port or PORTS[parts.scheme], parts.scheme == "ldaps")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ldaps' if self.tls else 'ldap'}://{host}:{self.port}"


def _uris(value: tuple[str, ...]) -> None:
    for text in value:
        ServerUri.parse(text)


@frozen
class Settings:
    """Settings of the connections to an outside directory; times in seconds."""

    uris: tuple[str, ...] = setting((), "LDAP servers, the first one that answers is asked: ldap://a.example.org, "
                                    "ldaps://b.example.org; empty: the users are those of the built-in directory",
                                    check=_uris)
    starttls: bool = setting(True, "whether to ask ldap:// servers for TLS, and insist on it")
    ca: Path | None = setting(None, "PEM file of the authorities of the servers' certificates; default: those of the "
                              "system")
    bind_dn: str = setting("", "as whom to search; empty: anonymously")
    bind_password_file: Path | None = setting(None, "file whose first line is the password for that")
    scope: str = setting("subtree", "how far below directory.base users are: subtree, one level", validator=in_(SCOPES))
    referrals: str = setting("fail", "answers that some of it is on other servers: fail (for now), ignore (what these "
                             "know does not count; Active Directory needs it), follow (to servers of directory.uris "
                             "only)", validator=in_(REFERRALS))
    connect_time: float = setting(3.0, "how long to wait for a connection, with TLS", type="duration",
                                  validator=ge(0.01))
    bind_time: float = setting(5.0, "how long to wait for the answer to a bind", type="duration", validator=ge(0.01))
    search_time: float = setting(5.0, "how long to wait for the answer to a search", type="duration",
                                 validator=ge(0.01))
    retry_first: float = setting(1.0, "time after which a server that failed is tried again; doubled with each further "
                                 "failure", type="duration", validator=ge(0))
    retry_longest: float = setting(60.0, "that time at most", type="duration", validator=ge(0))
    connections: int = setting(8, "connections to a server that each process keeps open", validator=ge(0))
    idle_time: float = setting(60.0, "how long a connection is kept that is not used", type="duration", validator=ge(0))
    cache_size: int = setting(10_000, "answers that each process remembers", validator=ge(0))
    cache_time: float = setting(900.0, "how long what the directory said of a user is believed", type="duration",
                                validator=ge(0))
    cache_negative_time: float = setting(60.0, "how long it is believed that there is no such user", type="duration",
                                         validator=ge(0))
    session_time: float = setting(300.0, "how long after it was asked about a user who has sessions open it is asked "
                                  "again, so that what has changed reaches these; 0: never, then a session hears what "
                                  "the next login or mail of that user brings", type="duration", validator=ge(0))
    cache_host_time: float = setting(10.0, "how long it is believed that another back end keeps a user's mail: for so "
                                     "long after a move proxies may go to the wrong one", type="duration",
                                     validator=ge(0))
    write_uris: tuple[str, ...] = setting((), "LDAP servers that take changes, and are asked where a user's mail is "
                                          "after a move; default: directory.uris", check=_uris)
    write_dn: str = setting("", "as whom to write a user's new back end when `onecopy user move` moves one; empty: "
                            "that is not done")
    write_password_file: Path | None = setting(None, "file whose first line is the password for that")
    local: tuple[str, ...] = setting((), "user ids that the built-in directory alone decides about, such as those of "
                                     "proxies")

    @property
    def writing(self) -> "Settings | None":
        """Those of the connections that change something, if there are to be any."""
        if not self.write_dn:
            return None
        return evolve(self, uris=self.write_uris or self.uris, bind_dn=self.write_dn,
                      bind_password_file=self.write_password_file)
