"""Plays conversations (scripts.py) on real sockets, under TLS, against a server with a real event loop:

    python -m tests.support.conversations.over_tls NAME...

prints a line of JSON for each: what went wrong, nothing if all went well. All share one store and one reactor; each has
a listening port and settings of its own. The player's thread does to the store what the script says happens there.
"""

import json
import logging
import select
import socket
import ssl
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

import pytest
from twisted.internet import reactor
from twisted.internet.defer import ensureDeferred
from twisted.internet.threads import blockingCallFromThread
from twisted.protocols.tls import TLSMemoryBIOFactory

from imap.protocol import factory
from store.accounts.loginsettings import Settings as LoginSettings
from store.accounts.sasl.scram import HASHES
from store.check.wholecheck import check
from store.delivery import durable
from store.delivery.commit import Delivered, Target
from store.mailboxes import deletion, firstuse
from store.net import authentication, sharedsyncs
from store.net.threads import ReactorThreads
from store.opening import make_empty_store, open_store
from store.settings import Settings
from store.users import lifecycle
from store.values import Flags, InternalDate
from tests.support.conversations.scripts import SCRIPTS, Place, Player
from tests.support.servers.certificates import showing
from tests.support.stores import small
from tests.support.stores.purging import purge_mailboxes
from tests.support.stores.stores import HASH
from tools.server.tls.contexts import Certificates
from tools.serversettings import Tls

MEMORY = Path("/dev/shm")
PATIENCE = 180                       # seconds, far more than anything takes
PIECE = 1 << 16


class Socket:
    """A client's side of one connection; the interface is that of `tests.support.wire.Wire`."""

    def __init__(self, port, *, tls):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.closed = False
        self._came = b""
        if tls:
            self.start_tls()

    def start_tls(self):
        self.socket = showing(None).wrap_socket(self.socket)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass                        # what the server said before it went is still to be read

    def more(self):
        """Wait for octets; False when the server has ended the connection. Raises AssertionError when none come."""
        if self.closed:
            return False
        try:
            data = self.socket.recv(PIECE)
        except TimeoutError:
            raise AssertionError(f"nothing more came in {PATIENCE} s") from None
        except OSError:                 # a reset
            data = b""
        self._came += data
        self.closed = not data
        return bool(data)

    def received(self):
        """What has come since the last call, without waiting."""
        while not self.closed and (getattr(self.socket, "pending", lambda: 0)()
                                   or select.select([self.socket], [], [], 0)[0]):
            self.socket.settimeout(0)
            try:
                data = self.socket.recv(PIECE)
            except (BlockingIOError, ssl.SSLWantReadError):     # less than a record of TLS
                break
            except OSError:
                data = b""
            finally:
                self.socket.settimeout(PATIENCE)
            self._came += data
            self.closed = not data
        came, self._came = self._came, b""
        return came

    def settle(self):
        """The server settles by itself."""

    def hang_up(self):
        self.socket.close()
        self.closed = True


class RealPlace(Place):
    """A store that a server with a reactor and threads has open."""

    def __init__(self, store, patch, certificates):
        super().__init__(store, patch)
        self.certificates = certificates
        self.port = None
        self.sockets = []

    def connect(self):
        if self.server is None:
            in_the_clear = self.tls is not None
            made = factory(self.store, self.settings, reactor, self.certificates, implicit_tls=not in_the_clear)
            served = made if in_the_clear else TLSMemoryBIOFactory(self.certificates, False, made)
            self.port = blockingCallFromThread(
                reactor, lambda: reactor.listenTCP(0, served, interface="127.0.0.1"))
            self.server = Stopping(made)
        self.sockets.append(Socket(self.port.getHost().port, tls=self.tls is None))
        return self.sockets[-1]

    def deliver(self, path, data, flags=Flags()):
        async def work():
            entry = self.entry(path)
            staged = self.store.stage(entry)
            staged.write(data)
            return await durable.deliver(self.store, staged, [Target(entry, flags)], InternalDate(1_000_000_000, 60))

        outcome, = blockingCallFromThread(reactor, lambda: ensureDeferred(work()))
        assert isinstance(outcome, Delivered), outcome
        return outcome.uid

    def end(self):
        """Nobody is connected, nothing listens and nothing is left behind."""
        for one in self.sockets:
            one.socket.close()
        if self.server is None:
            return
        blockingCallFromThread(reactor, self.port.stopListening)
        deadline = time.monotonic() + PATIENCE
        while blockingCallFromThread(reactor, lambda: bool(self.server.factory.streams)):
            assert time.monotonic() < deadline, "connections are left"


class Stopping:
    """The factory, which is told to stop in its own thread."""

    def __init__(self, made):
        self.factory = made

    def stop(self):
        blockingCallFromThread(reactor, self.factory.stop)


class RealPlayer(Player):
    """Waits for what is to come."""

    def more(self, which):
        return self.wire(which).more()

    def on_nothing(self, _, which):
        """Whatever comes too much is found at the next line that is expected."""

    def on_tls(self, _, which):
        self.wire(which).start_tls()


def play(store, certificates, name):
    """Play one script, with users that are new. Raises whatever goes wrong."""
    for user in ("alice", "bob"):
        firstuse.inbox(store, store.directory.add(user, HASH))
    patch = pytest.MonkeyPatch()
    place = RealPlace(store, patch, certificates)
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        RealPlayer(place).play((SCRIPTS / f"{name}.txt").read_text())
    finally:
        place.end()
        patch.undo()
        logging.getLogger().removeHandler(errors)
        try:
            found = check(store)
            assert found == [] or place.damaged, found
            assert not errors.found or place.bugs, errors.found
        finally:
            for entry in store.names(""):
                deletion.delete_mailbox(store, entry.name)
            for user in ("alice", "bob"):
                lifecycle.remove_mail(store, user)
                store.directory.remove(user)
            purge_mailboxes(store, time.time() + store.settings.purge_delay + 1)


class Errors(logging.Handler):
    """Keeps what the log says of errors that nobody expects."""

    def __init__(self):
        super().__init__(logging.ERROR)
        self.found = []

    def emit(self, record):
        if record.exc_info or "session failed" in record.getMessage():
            self.found.append(self.format(record))


def play_all(store, certificates, names):
    for name in names:
        error = ""
        try:
            play(store, certificates, name)
        except Exception as problem:
            error = str(problem) if isinstance(problem, AssertionError) and str(problem) else traceback.format_exc()
        print(json.dumps([name, error]), flush=True)


def main(names):
    small.few_folders()
    with tempfile.TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        root = Path(folder) / "store"
        make_empty_store(root)
        certificates = Certificates.from_settings(Tls(), Path(folder) / "tls")
        store = open_store(root, Settings(message_limit=100_000, disk_reserve=0, cache=4 << 20, special_mailboxes=()))
        authentication.attach(store, LoginSettings(slow_first=0, scram_keys=tuple(HASHES)))
        threads = ReactorThreads(reactor.callFromThread)
        sharedsyncs.attach(store, threads)

        def begin():
            store.news.listen_in_this_thread(reactor.callFromThread)
            thread.start()

        def work():
            try:
                play_all(store, certificates, names)
            finally:
                reactor.callFromThread(reactor.stop)

        thread = threading.Thread(target=work)
        reactor.callWhenRunning(begin)
        reactor.run(installSignalHandlers=False)
        thread.join()
        threads.stop()
        store.close()


if __name__ == "__main__":
    main(sys.argv[1:])
