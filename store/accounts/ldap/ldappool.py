"""The LDAP servers of a directory: which one is asked, and the connections to it that are kept. For threads.

The first one that works is asked. One that failed is left alone for a while, which doubles with each further failure;
then one thread tries it, and the others go on without. A search uses a kept connection, bound as the service; a
password is proved on a connection of its own, so none is ever left bound as a user.
"""

import logging
import ssl
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from attrs import define, evolve, field, frozen

from mboxlist import privatefiles
from store.accounts import clienttls
from store.accounts.ldap.ldapsettings import ServerUri, Settings
from store.accounts.ldap.ldapwire import NO_SUCH_OBJECT, SUCCESS, Answer, Broken, Connection, Refused
from store.errors import Problem, StoreError
from store.values import Secret

log = logging.getLogger(__name__)

T = TypeVar("T")
LONGEST_PASSWORD = 1024
_HOPS = 3                   # referrals that lead to referrals


@frozen
class Health:
    """How a server does: `failures` in a row, the last of them, and when it may be tried again."""

    uri: str
    failures: int = 0
    failure: str = ""
    until: float = 0.0


@define(eq=False)
class _Kept:
    connection: Connection
    until: float


@define(eq=False)
class _Server:
    """One of them."""

    uri: ServerUri
    _settings: Settings
    _clock: Callable[[], float]
    health: Health = field(init=False)
    _kept: list[_Kept] = field(factory=list, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.health = Health(str(self.uri))

    def may_try(self) -> bool:
        """Whether to ask it now. When it has failed, the first to come after the pause tries; the others wait for what
        comes of that."""
        with self._lock:
            health, now = self.health, self._clock()
            if health.failures and now < health.until:
                return False
            if health.failures:
                patience = self._settings.connect_time + self._settings.bind_time + self._settings.search_time
                self.health = evolve(health, until=now + patience)
            return True

    def works(self) -> None:
        """It has answered."""
        with self._lock:
            before, self.health = self.health, Health(self.health.uri)
        if before.failures:
            log.warning("directory: %s answers again", self.uri)

    def failed(self, why: Broken) -> None:
        """It has not. What was kept of it goes."""
        settings = self._settings
        with self._lock:
            failures = self.health.failures + 1
            pause = min(settings.retry_first * 2 ** min(failures - 1, 30), settings.retry_longest)
            self.health = Health(self.health.uri, failures, str(why), self._clock() + pause)
            kept, self._kept = self._kept, []
        for each in kept:
            each.connection.close()
        log.warning("directory: %s: %s; it is tried again after %g s", self.uri, why, pause)

    def take(self) -> Connection | None:
        """A connection that was kept."""
        with self._lock:
            now = self._clock()
            old = [each for each in self._kept if each.until <= now]
            self._kept = [each for each in self._kept if each.until > now]
            found = self._kept.pop().connection if self._kept else None
        for each in old:
            each.connection.close()
        return found

    def keep(self, connection: Connection) -> None:
        """It is not used any more."""
        with self._lock:
            room = len(self._kept) < self._settings.connections and not self.health.failures
            if room:
                self._kept.append(_Kept(connection, self._clock() + self._settings.idle_time))
        if not room:
            connection.close()

    def close(self) -> None:
        """Keep nothing."""
        with self._lock:
            kept, self._kept = self._kept, []
        for each in kept:
            each.connection.close()


@define(eq=False)
class Servers:
    """All of them, in the order in which they are asked."""

    _settings: Settings
    _clock: Callable[[], float] = time.monotonic
    _servers: list[_Server] = field(init=False)
    _password: Secret = field(init=False)
    _context: ssl.SSLContext | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        """Raises OSError, ValueError for files that do not hold what they should."""
        settings = self._settings
        self._servers = [_Server(ServerUri.parse(text), settings, self._clock) for text in settings.uris]
        self._password = _first_line(settings)
        if settings.ca is not None or settings.starttls or any(server.uri.tls for server in self._servers):
            self._context = clienttls.context(settings.ca)

    def search(self, base: str, filter: str, attributes: Sequence[str], *, scope: str = "", most: int = 2,
               may_lack: bool = False, of_all: bool = False) -> Answer:
        """Up to `most` entries; with `follow`, those of other servers too. `may_lack`: there need be no entry `base`.
        `of_all`: as long as none is found, all servers that work are asked.

        Raises StoreError UNAVAILABLE.
        """
        where = scope or self._settings.scope
        answer = self._ask(lambda one: self._search(one, base, where, filter, attributes, most, may_lack=may_lack),
                           enough=lambda found: bool(found.entries or found.referrals or not of_all))
        referrals = self._settings.referrals
        if not answer.referrals or (referrals == "ignore" and not answer.elsewhere):
            return evolve(answer, referrals=())
        if referrals == "follow":
            return self._follow(answer, filter, attributes, where, most)
        raise _unavailable(f"a referral to {', '.join(answer.referrals)} (see directory.referrals)")

    def _search(self, server: _Server, base: str, scope: str, filter: str, attributes: Sequence[str], most: int, *,
                may_lack: bool = False) -> Answer:
        """On a kept connection; when the server has closed that meanwhile, on a new one."""
        connection = server.take()
        while True:
            kept, connection = connection is not None, connection or self._as_service(server)
            try:
                answer = connection.search(base, scope, filter, attributes, most, self._settings.search_time)
            except Broken as broken:
                if not kept or not broken.closed:
                    raise
                server.close()                      # the others are as old
                connection = None
            except Refused as refused:
                server.keep(connection)
                if may_lack and refused.code == NO_SUCH_OBJECT:
                    return Answer(())
                raise
            else:
                server.keep(connection)
                return answer

    def _as_service(self, server: _Server) -> Connection:
        connection = self._connect(server)
        if self._settings.bind_dn:
            try:
                code = connection.bind(self._settings.bind_dn, self._password, self._settings.bind_time)
            except Refused:
                connection.close()
                raise
            if code != SUCCESS:
                connection.close()
                raise Refused(f"{self._settings.bind_dn} (directory.bind_dn or write_dn) is not let in: result code "
                              f"{code}")
        return connection

    def _connect(self, server: _Server) -> Connection:
        """Raises Broken, Refused."""
        context = self._context if self._settings.starttls or server.uri.tls else None
        return Connection(server.uri, context, self._settings.connect_time, self._clock)

    def _follow(self, answer: Answer, filter: str, attributes: Sequence[str], scope: str, most: int) -> Answer:
        """The rest from where the referrals say (RFC 4511 §4.1.10, §4.5.3), if it is one of the configured servers: to
        no other does the service's password go."""
        known = {server.uri: server for server in self._servers}
        entries, complete, left = list(answer.entries), answer.complete, [answer.referrals]
        for _ in range(_HOPS):
            if not left:
                return Answer(tuple(entries), complete)
            further = []
            for text in (text for texts in left for text in texts[:most + _HOPS]):
                server, base, within = _referred(text, known, scope)
                found = self._ask(lambda one, base=base, within=within: self._search(     # type: ignore[misc]
                    one, base, within, filter, attributes, most), [server])
                entries += found.entries
                complete = complete and found.complete and len(entries) <= most
                further += [found.referrals] if found.referrals else []
            left = further
        raise _unavailable("referrals that lead to referrals without end")

    def proves(self, dn: str, password: Secret, *, of_all: bool = False) -> bool:
        """Whether the password lets that entry in; `of_all`: at any server. Raises StoreError UNAVAILABLE."""
        octets = password.reveal()
        if not dn or not octets or len(octets) > LONGEST_PASSWORD:      # without a password a bind succeeds: `bind`
            return False

        def work(server: _Server) -> bool:
            connection = self._connect(server)
            try:
                return connection.bind(dn, password, self._settings.bind_time) == SUCCESS
            finally:
                connection.close()

        return self._ask(work, enough=lambda right: right or not of_all)

    def replace(self, dn: str, attribute: str, values: Sequence[bytes]) -> None:
        """Have the attribute of that entry have those values and no others. Raises StoreError UNAVAILABLE."""
        def work(server: _Server) -> None:
            connection = self._as_service(server)
            try:
                connection.replace(dn, attribute, values, self._settings.bind_time)
            finally:
                connection.close()

        self._ask(work)

    def _ask(self, work: Callable[[_Server], T], servers: Sequence[_Server] = (),
             enough: Callable[[T], bool] = lambda result: True) -> T:
        """What the first server that works says; the others are asked, too, until that is enough.

        Raises StoreError UNAVAILABLE.
        """
        said: list[T] = []
        for server in servers or self._servers:
            if not server.may_try():
                continue
            try:
                result = work(server)
            except Broken as broken:
                server.failed(broken)
            except Refused as refused:
                server.works()
                raise _unavailable(f"{server.uri}: {refused}") from None
            except BaseException as error:          # a fault of ours must not leave it untried for ever
                server.failed(Broken(type(error).__name__))
                raise
            else:
                server.works()
                said.append(result)
                if enough(result):
                    return result
        if said:
            return said[0]
        raise StoreError(Problem.UNAVAILABLE, detail="no server of the directory answers")

    def health(self) -> list[Health]:
        """How each does, as far as is known here."""
        return [server.health for server in self._servers]

    def try_each(self, base: str) -> list[tuple[str, float, str]]:
        """Connect to each, as the service, and read the entry `base`: URI, seconds, and what went wrong."""
        found = []
        for server in self._servers:
            began, wrong = self._clock(), ""
            try:
                connection = self._as_service(server)
                try:
                    answer = connection.search(base, "base", "(objectClass=*)", (), 1, self._settings.search_time)
                    wrong = "" if answer.entries else f"{base} is not there, or not to be seen"
                finally:
                    connection.close()
            except (Broken, Refused) as error:
                wrong = str(error)
            found.append((str(server.uri), self._clock() - began, wrong))
        return found

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return len(self._servers) > 1

    def close(self) -> None:
        """Keep no connection."""
        for server in self._servers:
            server.close()


def _referred(text: str, known: dict[ServerUri, _Server], scope: str) -> tuple[_Server, str, str]:
    """The server, base and scope of a referral's URI. Raises StoreError UNAVAILABLE."""
    try:
        parts = urlsplit(text)
        server = known[ServerUri.of(parts, text)]
    except (ValueError, KeyError):
        raise _unavailable(f"a referral to {text}, which is none of directory.uris") from None
    words = parts.query.split("?")          # attributes?scope?filter
    within = {"base": "base", "one": "one level", "sub": "subtree"}.get(words[1] if len(words) > 1 else "", scope)
    return server, unquote(parts.path.removeprefix("/")), within


def _first_line(settings: Settings) -> Secret:
    if settings.bind_password_file is None:
        if settings.bind_dn:
            raise ValueError(f"{settings.bind_dn}: there is no file with the password for it")
        return Secret(b"")
    with privatefiles.open_named(settings.bind_password_file) as stream:
        line = stream.readline(LONGEST_PASSWORD + 2).rstrip(b"\r\n")
    if settings.bind_dn and not line:
        raise ValueError(f"{settings.bind_password_file}: there is no password in it")
    return Secret(line)


def _unavailable(detail: str) -> StoreError:
    log.warning("directory: %s", detail)
    return StoreError(Problem.UNAVAILABLE, detail=detail)
