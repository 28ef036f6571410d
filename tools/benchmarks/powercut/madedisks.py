"""The disks that cuts begin with: an empty file system, and one with stores that have users and mail."""

from contextlib import closing
from random import Random

from mboxlist import privatefiles
from tools.benchmarks.powercut.ledger import State, Who
from tools.benchmarks.powercut.looking import Eyes
from tools.benchmarks.powercut.machine import Machine, Site
from tools.benchmarks.powercut.mail import text
from tools.benchmarks.powercut.mailclients import Imap, Lmtp
from tools.benchmarks.powercut.workloads import (
    CLIENTS,
    EMPTY,
    FILLED,
    MAIN,
    MOVED,
    ONE,
    OTHERS,
    PASSWORD_LINE,
    RECEIVERS,
    SECOND,
    TWO,
)
from tools.benchmarks.temporaryserver import ADDRESS, free_ports

MAILBOXES = ("INBOX", "Work", "Work/2026")
MESSAGES = 5                    # in each


def sites(machine: Machine) -> dict[str, Site]:
    """The stores."""
    ports = free_ports(2)
    hosts = {name: f"{name}.example.org" for name in (ONE, TWO)}
    made = {MAIN: Site(MAIN, machine.volume / MAIN, dict(machine.options))}
    for at, (name, other) in enumerate(((ONE, TWO), (TWO, ONE))):
        made[name] = Site(name, machine.volume / name, {
            **machine.options, "store.host": hosts[name], "exchange.address": ADDRESS, "exchange.port": str(ports[at]),
            "exchange.peers": f"{hosts[other]}={ADDRESS}:{ports[1 - at]}",
            "exchange.authorities": str(machine.folder / "authorities.pem")})
    return made


def prepare(machine: Machine, kind: str, places: dict[str, Site], *, with_move: bool) -> dict[Who, State]:
    """Make both disks, and give the users of the second one as they are."""
    machine.make(kind)
    machine.keep(EMPTY)
    machine.make(kind)
    main = places[MAIN]
    machine.must(main, "init")
    machine.must(main, "user", "add", "--password-stdin", *RECEIVERS, *CLIENTS, *OTHERS, octets=PASSWORD_LINE)
    machine.must(main, "partition", "add", SECOND)
    machine.serve(main)
    for user in (*CLIENTS, *OTHERS):
        _fill(main, user)
    with closing(Lmtp(main.ports["lmtp"])) as lmtp:
        assert all(reply.startswith(b"250") for _, reply in lmtp.deliver(OTHERS, b"Subject: before\r\n\r\nText.\r\n"))
    machine.must(main, "snapshot", "create")
    with closing(Imap(main.ports["imap"], OTHERS[0])) as imap:
        imap.ok('APPEND "Work" (\\Seen)', b"Subject: after the snapshot\r\n\r\nText.\r\n")
    served = [main]
    if with_move:
        served += _two(machine, places)
    eyes = Eyes(places)
    users = [(MAIN, user) for user in (*CLIENTS, *OTHERS)] + ([(ONE, MOVED)] if with_move else [])
    base = {who: state for who in users if (state := eyes.look(who)[0]) is not None}
    for site in served:
        machine.end(site)
    machine.keep(FILLED)
    return base


def _two(machine: Machine, places: dict[str, Site]) -> list[Site]:
    pair = [places[ONE], places[TWO]]
    certificates = b""
    for site in pair:
        machine.must(site, "init")
        machine.must(site, "user", "add", "--password-stdin", "--host", pair[0].options["store.host"], MOVED,
                     octets=PASSWORD_LINE)
        begun = machine.log.stat().st_size
        machine.must(site, "config", "certificate")
        certificates += privatefiles.read(machine.log)[begun:]
    privatefiles.write(machine.folder / "authorities.pem", certificates)
    for site in pair:
        machine.serve(site)
    _fill(pair[0], MOVED)
    return pair


def _fill(site: Site, user: str) -> None:
    random = Random(user)
    with closing(Imap(site.ports["imap"], user)) as imap:
        for name in MAILBOXES:
            if name != "INBOX":
                imap.ok(f'CREATE "{name}"')
            for number in range(MESSAGES):
                flags = ("\\Seen", "\\Flagged todo", "")[number % 3]
                imap.ok(f'APPEND "{name}" ({flags})', b"Subject: %d\r\n\r\n%b\r\n" % (number, text(random)))
