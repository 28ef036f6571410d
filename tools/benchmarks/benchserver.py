"""`tools/bench`: a server for load generators and conformance suites, on a fresh store in a temporary folder."""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from mboxlist import privatefiles
from store.settings import CONCEALED, SYNC_LEVELS
from tools.benchmarks import benchstandby
from tools.benchmarks import sizing as bench_sizing
from tools.benchmarks.bystanders import bystander, sharingtime
from tools.benchmarks.temporaryserver import is_running, make_users, server_ports, start, stop, write_state
from tools.cli import program
from tools.cli.storeaccess import init
from tools.exits import Failure
from tools.server.process import reactor

STATE = Path(__file__).resolve().parents[2] / "var" / "bench.json"


def parse(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and those that are for `onecopy serve`."""
    parser = argparse.ArgumentParser("tools/bench", allow_abbrev=False, description=__doc__)
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE",
                        help="notes what runs (var/bench.json); several can be up, each with its own")
    commands = parser.add_subparsers(dest="command", metavar="up|restart|promote|down|store", required=True)
    up = commands.add_parser("up", help="start on a fresh store; other options are given to `onecopy serve`",
                             allow_abbrev=False)
    up.add_argument("--workers", type=int, default=1, metavar="N", help="processes that serve (1)")
    up.add_argument("--users", type=int, default=200, metavar="N", help="bench0000 and on (200)")
    up.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    up.add_argument("--standby", choices=benchstandby.MODES, help="a standby beside it, which follows so")
    commands.add_parser("promote", help="stop the server, and have its standby serve in its place", allow_abbrev=False)
    commands.add_parser("restart", help="start the same store again, on the same ports", allow_abbrev=False)
    alone = commands.add_parser("store", help="measure the store by itself", allow_abbrev=False)
    alone.add_argument("--messages", type=int, default=100_000, metavar="N", help="of the large mailbox (100000)")
    alone.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    alone.add_argument("--json", action="store_true")
    sizing = commands.add_parser("sizing", help="what so many users need", allow_abbrev=False)
    sizing.add_argument("--users", type=int, default=1_000_000, metavar="N", help="on all back ends (1000000)")
    sizing.add_argument("--kept", type=int, default=2000, metavar="N", help="messages of a user (2000)")
    sizing.add_argument("--arriving", type=int, default=40, metavar="N", help="messages for a user in a day (40)")
    sizing.add_argument("--sharing", type=float, default=3.0, metavar="X",
                        help="mailboxes of a back end that have each message (3)")
    sizing.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    sizing.add_argument("--json", action="store_true")
    other = commands.add_parser("bystander", help="what one user feels while another does the worst",
                                allow_abbrev=False)
    other.add_argument("--messages", type=int, default=262_144, metavar="N", help="of the large mailbox (262144)")
    other.add_argument("--attack", metavar="TEXT", help="only those with this in their names")
    other.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    other.add_argument("--json", action="store_true")
    told = commands.add_parser("sharing", help="whether time tells that others hold a message", allow_abbrev=False)
    told.add_argument("--tries", type=int, default=2000, metavar="N", help="of each way (2000)")
    told.add_argument("--size", type=int, default=8192, metavar="N", help="octets of a message (8192)")
    told.add_argument("--conceal", choices=CONCEALED, action="append",
                      help="a value of store.conceal_sharing; can be repeated (clients)")
    told.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    told.add_argument("--json", action="store_true")
    cost = commands.add_parser("commands", help="what each command of a client costs", allow_abbrev=False)
    cost.add_argument("--sync", choices=SYNC_LEVELS, default="messages", help="store.sync (messages)")
    cost.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    cost.add_argument("--json", action="store_true")
    commands.add_parser("down", help="stop, and remove the folder", allow_abbrev=False)
    arguments, rest = parser.parse_known_args(words)
    if rest and arguments.command != "up":
        parser.error(f"unknown: {rest[0]}")
    if arguments.command == "up" and not (1 <= arguments.workers <= 1024 and 0 <= arguments.users <= 10_000):
        parser.error("--workers from 1 to 1024, --users up to 10000")
    return arguments, rest


def up(place: Path, workers: int, users: int, parent: Path | None, options: list[str], standby: str | None = None
       ) -> dict[str, Any]:
    """Start on a fresh store, with a standby if a mode is given. Raises Failure."""
    if (state := read_state(place)) is not None:
        if is_running(state):
            raise Failure(f"it is up already, pid {state['pid']}: tools/bench down", 1)
        down(place)
    folder = privatefiles.new_folder("onecopy-bench-", parent)
    root = folder / "store"
    init(root)
    make_users(root, users)
    ports = server_ports()
    state = {"folder": str(folder), "root": str(root), "ports": ports, "workers": workers, "users": users,
             "options": options, "pid": 0}
    if standby is not None:
        state["standby"], more = benchstandby.prepare(folder, root, standby)
        state["options"] = [*options, *more]
    return _start(place, state)


def _start(place: Path, state: dict[str, Any]) -> dict[str, Any]:
    found = start(place, state)
    if "standby" not in state:
        return found
    benchstandby.begin(state["standby"])
    write_state(place, state)
    return found | benchstandby.described(place, state)


def restart(place: Path) -> dict[str, Any]:
    """Start the same store again. Raises Failure."""
    state = read_state(place)
    if state is None:
        raise Failure("there is nothing to restart: tools/bench up", 1)
    _stop(state)
    return _start(place, state)


def promote(place: Path) -> dict[str, Any]:
    """Have the standby serve in the place of the server. Raises Failure."""
    state = read_state(place)
    if state is None:
        raise Failure("there is nothing to promote: tools/bench up --standby", 1)
    return benchstandby.promote(place, state)


def _stop(state: dict[str, Any]) -> None:
    if "standby" in state:
        stop(state["standby"])
    stop(state)


def down(place: Path) -> None:
    """Stop, and remove the folder."""
    state = read_state(place)
    if state is not None:
        _stop(state)
        shutil.rmtree(state["folder"], ignore_errors=True)
        place.unlink(missing_ok=True)


def read_state(place: Path) -> dict[str, Any] | None:
    """What was started last."""
    try:
        found: dict[str, Any] = json.loads(privatefiles.read_text(place))
    except FileNotFoundError:
        return None
    return found


def run(words: list[str]) -> int:
    """The command."""
    arguments, rest = parse(words)
    if arguments.command == "store":
        from tools.benchmarks import storecost  # here: it makes a reactor
        storecost.run(arguments.dir, arguments.messages, as_json=arguments.json)
        return 0
    if arguments.command == "sizing":
        load = bench_sizing.Load(arguments.users, arguments.kept, sharing=arguments.sharing,
                                 arriving=arguments.arriving)
        bench_sizing.run(arguments.dir, load, as_json=arguments.json)
        return 0
    if arguments.command == "bystander":
        bystander.run(arguments.dir, arguments.messages, arguments.attack, as_json=arguments.json)
        return 0
    if arguments.command == "sharing":
        sharingtime.run(arguments.dir, arguments.tries, arguments.size, arguments.conceal or CONCEALED[:1],
                        as_json=arguments.json)
        return 0
    if arguments.command == "commands":
        reactor.install()
        from tools.benchmarks import commandcost  # here: it imports the reactor
        commandcost.run(arguments.dir, arguments.sync, as_json=arguments.json)
        return 0
    if arguments.command == "down":
        down(arguments.state)
        return 0
    if arguments.command == "up":
        found = up(arguments.state, arguments.workers, arguments.users, arguments.dir, rest, arguments.standby)
    else:
        found = (promote if arguments.command == "promote" else restart)(arguments.state)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: run(sys.argv[1:])))
