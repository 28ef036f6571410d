"""What an administrator can choose about serving: addresses, certificates, processes, the log."""

import re
from functools import partial
from pathlib import Path

from attrs import frozen
from attrs.validators import ge, gt, in_, le

from store.values import setting


def tcp_port(default: int, help: str) -> int:
    """A field that holds a TCP port; 0 is off."""
    return setting(default, help + "; 0: none", check=partial(_up_to, 65535))


def count(default: int, help: str) -> int:
    """A field that holds a number that is not negative."""
    return setting(default, help, check=partial(_up_to, 1024))


def _up_to(most: int, value: int) -> None:
    if not 0 <= value <= most:
        raise ValueError(f"must be between 0 and {most}")


@frozen
class ImapListen:
    """Where IMAP is served."""

    address: tuple[str, ...] = setting(("*",), "addresses to listen on; *: all")
    port: int = tcp_port(143, "port of IMAP, with STARTTLS")
    tls_port: int = tcp_port(993, "port of IMAP under TLS")


@frozen
class Pop3Listen:
    """Where POP3 is served."""

    address: tuple[str, ...] = setting(("*",), "addresses to listen on; *: all")
    port: int = tcp_port(110, "port of POP3, with STLS")
    tls_port: int = tcp_port(995, "port of POP3 under TLS")


@frozen
class ManageSieveListen:
    """Where ManageSieve is served: mail programs keep their users' Sieve scripts there."""

    address: tuple[str, ...] = setting(("*",), "addresses to listen on; *: all")
    port: int = tcp_port(0, "port of ManageSieve, with STARTTLS; its own is 4190")
    tls_port: int = tcp_port(0, "port of ManageSieve under TLS, which has no number of its own")


@frozen
class LmtpListen:
    """Where LMTP is served: whoever can connect from `lmtp.networks` can deliver, so not to the world."""

    address: tuple[str, ...] = setting(("127.0.0.1",), "addresses to listen on; *: all")
    port: int = tcp_port(24, "port of LMTP, with STARTTLS")
    tls_port: int = tcp_port(0, "port of LMTP under TLS")
    socket: Path | None = setting(None, "UNIX socket of LMTP")
    guaranteed_port: int = tcp_port(0, "port of LMTP for mail that no quota stops")
    guaranteed_socket: Path | None = setting(None, "UNIX socket for the same")
    verify_port: int = tcp_port(0, "port where relays ask whether a recipient exists and has room")
    verify_socket: Path | None = setting(None, "UNIX socket for the same")
    socket_mode: int = setting(0o666, "permissions of these sockets", type="mode")


@frozen
class FrontListen:
    """Where proxies ask who may log in, and where to: without TLS, so not to the world."""

    address: tuple[str, ...] = setting(("127.0.0.1",), "addresses to listen on; *: all")
    port: int = tcp_port(0, "port where nginx's mail proxy asks (auth_http)")


@frozen
class HttpListen:
    """Where metrics, health, the API and the console are served."""

    address: tuple[str, ...] = setting(("127.0.0.1",), "addresses to listen on; *: all")
    port: int = tcp_port(0, "port of HTTP: metrics, health, the API, the console")
    tls_port: int = tcp_port(0, "the same under TLS (HTTPS)")


WITHOUT_STANDBY = REFUSE, _ = ("refuse", "continue")


@frozen
class Exchange:
    """How back ends speak to each other, to move users and for standbys: under TLS, and each shows the other a
    certificate."""

    address: tuple[str, ...] = setting(("*",), "addresses to listen on; *: all")
    port: int = tcp_port(0, "port for other back ends")
    peers: tuple[str, ...] = setting((), "the other back ends: host=address:port, each by its own store.host, with "
                                     "commas between them")
    host: str = setting("", "the name of this machine to other back ends, and in its certificate; default: store.host, "
                            "which a standby has in common with the one that it follows")
    standbys: tuple[str, ...] = setting((), "back ends that may copy all of this store, and follow it, each by its own "
                                        "exchange.host or store.host, with commas between them; host=address:port "
                                        "where the name, or the port, is not that at which it can be asked")
    start_alone: bool = setting(True, "whether the server starts when a machine that has followed it cannot be asked "
                                "whether it has been promoted")
    synchronous: tuple[str, ...] = setting((), "those of exchange.standbys that answers wait for, with commas between "
                                           "them: no change is answered before each has it on its disk, too")
    without_standby: str = setting(
        REFUSE, "what follows while one of exchange.synchronous is away: refuse (what it has is not changed until it "
        "is back), or continue (answers do not wait for it)", validator=in_(WITHOUT_STANDBY))
    standby_wait: float = setting(10.0, "how long one of exchange.synchronous may say nothing while an answer waits, "
                                  "until it counts as away", type="duration", validator=gt(0))
    reading_age: float = setting(900.0, "how old mail may be that `onecopy standby serve` shows, before it makes a "
                                 "newer copy of what the standby has", type="duration", validator=gt(0))
    reading_indexes: bool = setting(False, "whether such a copy has the store.idx of all mailboxes, which Spark reads")
    compression: bool = setting(False, "whether this machine, as a standby, has what comes compressed (zlib): for slow "
                                "networks; where the network is fast it costs more than it saves")
    certificate: Path | None = setting(None, "PEM file of the certificate that other back ends are shown, with "
                                       "store.host among its DNS names, and its chain; default: a self-signed one that "
                                       "onecopy makes")
    key: Path | None = setting(None, "PEM file of its private key; default: that of the certificate")
    authorities: Path | None = setting(None, "PEM file of what other back ends are known by: certificates of "
                                       "authorities, or their own as `onecopy config certificate` prints it there")
    secret: Path | None = setting(None, "not used any more: see exchange.authorities")
    connections: int = count(8, "back ends that may be connected at a time")
    timeout: float = setting(120.0, "how long one waits for the other before the move is given up", type="duration",
                             validator=gt(0))


def _ciphers(value: str) -> None:
    import ssl  # here: it takes its time, and most commands need no TLS
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(value)
    except ssl.SSLError:
        raise ValueError("selects no cipher suite") from None


@frozen
class Tls:
    """The certificates for STARTTLS and the ports under TLS."""

    certificate: Path | None = setting(None, "PEM file of the certificate and its chain; default: the self-signed one "
                                       "that init made")
    key: Path | None = setting(None, "PEM file of the private key; default: that of the certificate")
    certificates: Path | None = setting(None, "folder of further certificates, each for the host names in it: NAME.pem "
                                        "with the key in it or in NAME.key, or NAME/fullchain.pem and NAME/privkey.pem")
    minimum_version: str = setting("1.2", "the oldest version of TLS that is spoken: 1.2, 1.3",
                                   validator=in_(("1.2", "1.3")))
    ciphers: str = setting("ECDHE+AESGCM:ECDHE+CHACHA20", "cipher suites for TLS 1.2, in OpenSSL's words; those of 1.3 "
                           "are all good", check=_ciphers)
    ticket_time: int = setting(86400, "time after which session tickets have another key", type="duration",
                               validator=ge(60))


@frozen
class Workers:
    """How the work is spread over processes."""

    all: int = count(0, "processes that do everything; 0 here and below: one")
    imap: int = count(0, "processes for IMAP alone")
    pop3: int = count(0, "processes for POP3 alone")
    lmtp: int = count(0, "processes for LMTP alone")
    http: int = count(0, "processes for HTTP alone; 0: one, where any of these is not 0 and HTTP has a port")
    stop_time: float = setting(10.0, "how long sessions have to end at a stop", type="duration")
    drain_time: float = setting(600.0, "how long those who have logged in may stay at `onecopy drain`", type="duration")
    restarts: int = count(10, "give up after so many restarts in ten minutes")
    user: str = setting("", "as whom the processes run when root starts them, once the ports are bound; empty: as the "
                            "owner of the store")
    group: str = setting("", "the same for the group; default: the user's own")


LEVELS = ("debug", "info", "warning", "error")


def _level(value: str) -> None:
    if value not in LEVELS:
        raise ValueError("must be one of " + ", ".join(LEVELS))


def levels_of_parts(values: tuple[str, ...]) -> dict[str, str]:
    """The level of each part, of part=level. Raises ValueError."""
    found: dict[str, str] = {}
    for text in values:
        part, _, level = (word.strip() for word in text.partition("="))
        if not part or level not in LEVELS:
            raise ValueError(f"{text} is no part=level, such as imap=debug, with one of {', '.join(LEVELS)}")
        found[part] = level
    return found


FORMATS = ("text", "json")


@frozen
class Log:
    """Where events are told."""

    level: str = setting("info", ", ".join(LEVELS), check=_level)
    levels: tuple[str, ...] = setting((), "parts that have a level of their own, by the names of modules or of what is "
                                      "above them, as the log has them: imap=debug, store.delivery=warning",
                                      check=levels_of_parts)
    format: str = setting("text", "how a line is written: " + ", ".join(FORMATS), validator=in_(FORMATS))
    slow: float = setting(1.0, "commands and work in threads that take longer are told with where the time went; "
                          "0: none", type="duration")
    file: Path | None = setting(None, "file to write to; default: standard error")
    transcripts: int = setting(64 << 20, "octets of all transcripts of sessions (onecopy transcript) together; none is "
                               "longer than 4 MiB", type="size", validator=ge(0))
    transcript_time: int = setting(7 * 86400, "how long transcripts are kept", type="duration", validator=ge(0))


def _collector(value: str) -> None:
    if value and not re.fullmatch(r"https?://[^/@\s?#]+(/[^?#\s]*)?", value):
        raise ValueError("must be http://HOST:PORT/v1/traces, or https://")


@frozen
class Trace:
    """Where spans of OpenTelemetry go."""

    collector: str = setting("", "URL of a collector that takes spans of commands and deliveries by OTLP over HTTP, "
                             "such as http://127.0.0.1:4318/v1/traces; empty: none are made. It needs the Python "
                             "packages of onecopy[traces]", check=_collector)
    rate: float = setting(0.01, "the part of commands of which spans are made, from 0 to 1", validator=(ge(0), le(1)))


def tls_folder(root: Path) -> Path:
    """Where the certificate is that init makes."""
    return root / "tls"
