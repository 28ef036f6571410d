"""Two real machines on loopback: a server, and a standby that follows it over mutual TLS."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.processes import command
from tests.support.processes.ports import free_port
from tests.support.servers.backends import BackEnd

SERVED, OWN = "mail.example.org", "second.example.org"
USERS = ("alice", "bob")


class StandbyMachine(BackEnd):
    """The second machine. Its store is a standby until it is promoted."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        folder.mkdir()
        (folder / "store").mkdir()
        super().__init__(folder, (), options)

    @contextlib.contextmanager
    def following(self) -> Iterator[Any]:
        streams = [self.root.parent / name for name in ("follow.in", "follow.out", "follow.err")]
        for path in streams:
            path.touch()
        process = command.start(("standby", "follow"), self.environment(), streams, ended=True)
        try:
            yield process
        finally:
            process.terminate()
            process.join()

    def is_current(self, since: float) -> bool:
        """Whether all that there was at that time is here."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return json.loads((self.root / "run/standby").read_text())["current"] > since
        return False


@contextlib.contextmanager
def two_machines(folder: Path, **options: str) -> Iterator[tuple[BackEnd, StandbyMachine]]:
    """The first one serves; the second one knows it. `options` are further ones of `exchange` of the first."""
    authorities, port = folder / "authorities.pem", free_port()
    (folder / "one").mkdir()
    common = {"store.host": SERVED, "exchange.authorities": str(authorities), "store.cache": "8M"}
    one = BackEnd(folder / "one", (), {
        **common, "exchange.address": "127.0.0.1", "exchange.port": str(port), "exchange.standbys": OWN,
        **{f"exchange.{name}": value for name, value in options.items()}})
    one.command("user", "add", "--password-stdin", "--host", SERVED, *USERS, octets=b"secret\n")
    two = StandbyMachine(folder / "two", {**common, "exchange.host": OWN})
    two.source = f"{SERVED}=127.0.0.1:{port}"
    authorities.write_text("".join(each.command("config", "certificate") for each in (one, two)))
    with one, contextlib.ExitStack() as ending:
        ending.callback(two.__exit__)
        yield one, two
