"""The relays as they are set up in front of a server, and a server for them."""

from collections.abc import Callable, Sequence
from pathlib import Path

from store.mailboxes import firstuse
from store.opening import open_store
from store.settings import Settings
from tests.support.processes.ports import free_port
from tests.support.servers.exim import Exim
from tests.support.servers.opensmtpd import OpenSmtpd
from tests.support.servers.postfix import Postfix
from tests.support.servers.relay import Relay
from tests.support.servers.server import Server
from tests.support.stores.stores import HASH

VERIFY = "lmtp.verify_port"

RelayFor = Callable[[Server], Relay]


def make_server(folder: Path, users: Sequence[str]) -> Server:
    """A server that can be asked who is there."""
    server = Server(folder, options={VERIFY: str(free_port())})
    store = open_store(server.root, Settings(special_mailboxes=()))
    for user in users:
        firstuse.inbox(store, store.directory.add(user, HASH))        # hashing the password for each takes a while
    store.close()
    return server


def postfix_with_policy(server: Server) -> Relay:
    """Postfix asks by check_policy_service who is there."""
    return Postfix(server.lmtp, policy=int(server.options[VERIFY]))


def postfix_with_map(server: Server) -> Relay:
    """Postfix asks by socketmap."""
    return Postfix(server.lmtp, map=int(server.options[VERIFY]))


def exim(server: Server) -> Relay:
    """Exim asks by a callout to LMTP."""
    return Exim(server.lmtp)


def opensmtpd(server: Server) -> Relay:
    """OpenSMTPD does not ask."""
    return OpenSmtpd(server.lmtp)
