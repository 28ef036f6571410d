"""The server that `tools/bench` and benchmarks start: users with one password, free ports, and how it ends."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from mboxlist.names import MailboxName
from store import VERSION
from store.accounts.passwords import hash_password
from store.filtering import userscripts
from store.mailboxes import namespace
from store.opening import PRIMARY, open_store
from store.settings import Settings
from store.store import Store
from store.users.newuser import NewUser, add_users
from store.values import Secret
from tools.benchmarks import tenrules
from tools.cli.storeaccess import init
from tools.exits import Failure
from tools.http.apitokens import ADMINISTRATOR, Tokens

SERVERS = ("imap", "pop3", "lmtp")
ALL = (*SERVERS, "http", "managesieve")     # of these HTTP says nothing first
ADDRESS = "127.0.0.1"
USER, PASSWORD = "bench%04d", "secret"
START_TIME = 120.0      # seconds until it must answer
STOP_TIME = 30.0        # seconds until it must have ended
CHECK = 0.02


def make_users(root: Path, count: int, *, scripts: bool = False) -> None:
    """Quickly: they share one password hash, as each costs tens of milliseconds. `scripts`: and
    those who have the script of `tenrules`."""
    store = open_store(root, Settings(special_mailboxes=()), who="tools/bench")      # as peers have it
    try:
        fill_with_users(store, count, [PRIMARY])
        if scripts:
            names = tenrules.users(count)
            fill_with_users(store, len(names), [PRIMARY], pattern=tenrules.USER)
            for name in names:
                give_script(store, name)
    finally:
        store.close()


def fill_with_users(store: Store, count: int, partitions: Sequence[str], stored: str | None = None, *,
                    pattern: str = USER) -> None:
    """So many, spread over the partitions; `stored`: a hash of the password."""
    secret = Secret((stored or hash_password(Secret(PASSWORD.encode()))).encode())
    users = [NewUser(pattern % number, secret, partitions[number % len(partitions)]) for number in range(count)]
    for added in add_users(store, users, lambda given: given.reveal().decode()):
        assert not added.refused


def give_script(store: Store, user: str) -> None:
    """Have the script of ten rules run for that user, who has the mailboxes that it files into."""
    row = store.directory.user(user)
    assert row is not None
    userscripts.put(store, row.account, tenrules.NAME, tenrules.script())
    userscripts.activate(store, user, tenrules.NAME)
    for path in tenrules.MAILBOXES:
        if store.mailboxes.find(name := MailboxName(user, path)) is None:
            namespace.create_mailbox(store, name)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((ADDRESS, 0))
        return [each.getsockname()[1] for each in sockets]


def server_ports() -> dict[str, int]:
    """A free port for each server."""
    return dict(zip(ALL, free_ports(len(ALL)), strict=True))


def start(place: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Start the server, wait until it answers, and give the target. Raises Failure."""
    command = [sys.executable, "-P", "-m", "tools.cli.program", "serve", "--root", state["root"]]
    for server in ALL:
        command += [f"--{server}-address", ADDRESS, f"--{server}-port", str(state["ports"][server])]
    command += ["--imap-tls-port", "0", "--pop3-tls-port", "0", "--log-level", "warning"]
    if state["workers"] > 1:
        command += ["--workers-all", str(state["workers"])]
    log = Path(state["folder"]) / "log"
    with privatefiles.open_file(log, "ab") as output:
        process = subprocess.Popen([*command, *state["options"]], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=output, start_new_session=True)
    state["pid"] = process.pid
    if "token" not in state:            # an administrator's
        state["token"] = Tokens(Path(state["root"])).create(ADMINISTRATOR)[1]
    write_state(place, state)
    deadline = time.monotonic() + START_TIME
    for server in SERVERS:
        while not answers(state["ports"][server]):
            if process.poll() is not None:
                raise Failure(f"the server has ended: {_last_line(log)} ({log})", 1)
            if time.monotonic() > deadline:
                raise Failure(f"the server does not answer: {log}", 1)
            time.sleep(CHECK)
    return {**target(state), "token": state["token"]}


@contextmanager
def serving(parent: Path | None, *options: str, fill: Callable[[Path], None] = lambda root: None
            ) -> Iterator[dict[str, Any]]:
    """The state of a server of one process with two users, on a fresh store that `fill` has put something into. It is
    stopped at the end, and the folder removed."""
    folder = privatefiles.new_folder("onecopy-bench-", parent)
    root = folder / "store"
    try:
        init(root)
        make_users(root, 2)
        fill(root)
        state = {"folder": str(folder), "root": str(root), "ports": server_ports(), "workers": 1, "users": 2,
                 "options": list(options), "pid": 0}
        start(folder / "bench.json", state)
        try:
            yield state
        finally:
            stop(state)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def target(state: dict[str, Any]) -> dict[str, Any]:
    """What a load generator needs to know."""
    return {"name": "onecopy", "version": VERSION,
            **{server: [ADDRESS, state["ports"][server]] for server in ALL},
            "user": USER, "password": PASSWORD, "users": state["users"], "pid": state["pid"],
            "data": str(Path(state["root"]) / "partitions" / PRIMARY), "root": state["root"]}


def answers(port: int) -> bool:
    """Whether a server says something to a new client."""
    try:
        with socket.create_connection((ADDRESS, port), timeout=5) as connection:
            return bool(connection.recv(1))
    except OSError:
        return False


def stop(state: dict[str, Any]) -> None:
    """End the server, if it runs: cleanly if it can."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not is_running(state):
            return
        os.kill(state["pid"], number)
        deadline = time.monotonic() + STOP_TIME
        while is_running(state) and time.monotonic() < deadline:
            time.sleep(CHECK)


def is_running(state: dict[str, Any]) -> bool:
    """Whether the process is there, and is the one that was started for that store."""
    try:
        words = privatefiles.read_named(f"/proc/{state['pid']}/cmdline").split(b"\0")
    except OSError:
        return False
    return os.fsencode(state["root"]) in words


def write_state(place: Path, state: dict[str, Any]) -> None:
    """For `restart` and `down`."""
    privatefiles.make_folder(place.parent, exist_ok=True)
    new = place.with_suffix(".new")
    privatefiles.write(new, json.dumps(state))
    new.replace(place)


def _last_line(log: Path) -> str:
    return next(iter(reversed(privatefiles.read_text(log, "replace").splitlines())), "it said nothing")
