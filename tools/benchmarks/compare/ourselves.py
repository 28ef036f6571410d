"""onecopy as it is installed, but for the number of its processes and for how much is on disk before it is answered."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attrs import frozen

from store import VERSION
from store.opening import PRIMARY
from tools.benchmarks.compare.starting import running
from tools.benchmarks.load.target import Target
from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD, SERVERS, USER, make_users, server_ports
from tools.cli.storeaccess import init


@frozen
class Ourselves:
    """`sync`: store.sync. `make`: puts so many users, and what else there is to be, into the new store."""

    name: str
    sync: str = "messages"
    workers: int = 2
    options: Sequence[str] = ()
    make: Callable[[Path, int], None] = partial(make_users, scripts=True)


@contextmanager
def onecopy(place: Path, users: int, style: Ourselves) -> Iterator[Target]:
    """A server with so many users, as long as the block lasts. Raises Failure."""
    root, ports = place / "store", server_ports()
    init(root)
    style.make(root, users)
    command = [sys.executable, "-P", "-m", "tools.cli.program", "serve", "--root", str(root), "--store-sync",
               style.sync, "--imap-tls-port", "0", "--pop3-tls-port", "0", "--log-level", "warning"]
    for server in SERVERS:
        command += [f"--{server}-address", ADDRESS, f"--{server}-port", str(ports[server])]
    if style.workers > 1:
        command += ["--workers-all", str(style.workers)]
    with running(style.name, [*command, *style.options], place / "said",
                 tuple([ports[server] for server in SERVERS])) as pid:
        imap, pop3, lmtp = ((ADDRESS, ports[server]) for server in SERVERS)
        yield Target(style.name, USER, PASSWORD, users, imap, pop3, lmtp, pid, root / "partitions" / PRIMARY,
                     f"onecopy {VERSION}{commit()}")


def commit() -> str:
    """Of the sources, where they are known to git; else nothing."""
    done = subprocess.run(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
                          capture_output=True, text=True, check=False)
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""
