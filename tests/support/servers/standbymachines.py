"""Two real machines on loopback: a server, and a standby that follows it over mutual TLS."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.clients.imap import Imap
from tests.support.processes import command, wait
from tests.support.processes.ports import free_port
from tests.support.servers.backends import BackEnd

SERVED, OWN, FURTHER = "mail.example.org", "second.example.org", "third.example.org"
USERS = ("alice", "bob")


class StandbyMachine(BackEnd):
    """The second machine. Its store is a standby until it is promoted."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "store").mkdir()
        super().__init__(folder, (), options)

    def is_current(self, since: float) -> bool:
        """Whether all that there was at that time is here."""
        return is_current(self, since)

    def following(self) -> Any:
        """See the function of that name."""
        return following(self)

    @contextlib.contextmanager
    def serving_for_reading(self) -> Iterator[None]:
        """Its `onecopy standby serve`, which makes a copy as often as it can, from its first greeting on."""
        with _process(self, "serve", "--exchange-reading-age", "0.1") as process:
            wait.until(self._greets_for_reading, "the first copy", pid=process.pid, limit=300)
            yield

    def _greets_for_reading(self) -> bool:
        with contextlib.suppress(OSError), Imap(self.imap):
            return True
        return False


def following(machine: BackEnd) -> Any:
    """Its `onecopy standby follow`, as a process."""
    return _process(machine, "follow")


@contextlib.contextmanager
def _process(machine: BackEnd, *words: str) -> Iterator[Any]:
    streams = [machine.root.parent / f"{words[0]}.{name}" for name in ("in", "out", "err")]
    for path in streams:
        path.touch()
    process = command.start(("standby", *words), machine.environment(), streams, ended=True,
                            network=machine.network)
    try:
        yield process
    finally:
        process.terminate()
        process.join()


def is_current(machine: BackEnd, since: float) -> bool:
    """Whether all that there was at that time is there."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return json.loads((machine.root / "run/standby").read_text())["current"] > since
    return False


def is_superseded(machine: BackEnd) -> bool:
    """Whether `onecopy serve` there says that the second one has been promoted, and what to type. Where nobody answers
    within five seconds it begins to serve, and ends soon."""
    found, _, complaint = command.run(("serve",), machine.environment(), b"", 300)
    return found != 0 and "second.example.org has been promoted" in complaint and "standby rejoin" in complaint


@contextlib.contextmanager
def two_machines(folder: Path, *, serve: bool = True, addresses: tuple[str, str] = ("127.0.0.1", "127.0.0.1"),
                 **options: str) -> Iterator[tuple[BackEnd, StandbyMachine]]:
    """The first one serves; the second one knows it. `options` are further ones of `exchange` of the first,
    `addresses` where each reaches the other one."""
    authorities, port, other = folder / "authorities.pem", free_port(), free_port()
    (folder / "one").mkdir()
    common = {"store.host": SERVED, "exchange.authorities": str(authorities), "store.cache": "8M"}
    here, there = addresses
    one = BackEnd(folder / "one", (), {**common, "exchange.port": str(port), "exchange.address": here,
                                       "exchange.standbys": f"{OWN}={there}:{other}",
                                       **{f"exchange.{name}": value for name, value in options.items()}})
    one.command("user", "add", "--password-stdin", "--host", SERVED, *USERS, octets=b"secret\n")
    two = StandbyMachine(folder / "two", {**common, "exchange.host": OWN, "exchange.port": str(other),
                                          "exchange.address": there, "exchange.standbys": f"{SERVED}={here}:{port}"})
    two.source, one.source = f"{SERVED}={here}:{port}", f"{OWN}={there}:{other}"
    authorities.write_text("".join(each.command("config", "certificate") for each in (one, two)))
    with contextlib.ExitStack() as ending:
        if serve:
            ending.enter_context(one)
        ending.callback(two.__exit__)
        yield one, two


@contextlib.contextmanager
def three_machines(folder: Path, **options: str) -> Iterator[tuple[BackEnd, StandbyMachine, StandbyMachine]]:
    """The third one is a standby of the second. Each knows the others."""
    with two_machines(folder, serve=False, **options) as (one, two):
        port, common = free_port(), ("exchange.", "store.host", "store.cache")
        three = StandbyMachine(folder / "three", {
            **{name: value for name, value in two.options.items() if name.startswith(common)},
            "exchange.host": FURTHER, "exchange.port": str(port)})
        three.options["exchange.standbys"] += "," + one.source
        for each in (one, two):
            each.options["exchange.standbys"] += f",{FURTHER}=127.0.0.1:{port}"
        three.source = one.source
        with open(one.options["exchange.authorities"], "a") as file:
            file.write(three.command("config", "certificate"))
        with contextlib.ExitStack() as ending:
            ending.enter_context(one)
            ending.callback(three.__exit__)
            yield one, two, three


def in_step(machine: BackEnd) -> bool:
    """Whether answers of the machine that it follows wait for it, for all that it has been told."""
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads((machine.root / "run/standby").read_text()).get("step") == "in step")
    return False
