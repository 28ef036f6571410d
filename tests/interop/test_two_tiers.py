"""The two tiers as we ship them, each part a real one: LDAP twice, Postfix, nginx, a front, two back ends. Mail takes
the ways that it takes in a deployment, and none is lost whichever part stops.
"""

import imaplib
import os
import poplib
import re
import smtplib
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from tests.conftest import MEMORY
from tests.support.clients import clients
from tests.support.clients.two_tiers_load import FOR_NOW, STRANGER, WAIT, Load, contents, fetchmail, mbsync
from tests.support.processes import command, wait
from tests.support.readers import trace
from tests.support.servers.relay import DOMAIN
from tests.support.servers.server import PASSWORD, Server
from tests.support.servers.slapd import BASE
from tests.support.servers.two_tiers import HOSTS, INSIDE, OUTSIDE, TwoTiers, user
from tests.support.stores import messages

T = TypeVar("T")

CROWD = [f"load{number}" for number in range(8)]        # by turns on the first back end and on the second
MOVERS = [f"mover{number}" for number in range(3)]
EACH = int(os.environ.get("STORM", "1"))                # how often each part stops

QUICK = {f"directory.{name}": "1s" for name in ("search_time", "bind_time", "connect_time")} | {
    "directory.retry_first": "200ms", "directory.retry_longest": "1s", "directory.cache_time": "1s",
    "directory.cache_host_time": "1s"}
ODD = 'all of "\\{}%&+=; grün'
MESSAGE = b"From: x@example.com\r\nSubject: hello\r\n\r\nHello.\r\n"
USERS = "".join([
    user("ann", f"mailHost: {HOSTS[0]}", "mailAlternateAddress: ann.smith@example.org"),
    user("ben", f"mailHost: {HOSTS[1]}"),
    user("cat", f"mailHost: {HOSTS[1]}", "mailAlternateAddress: info@example.net"),
    user("dora"),                                       # where the domain's users are
    user("off", f"mailHost: {HOSTS[1]}", "mailUserStatus: disabled"),
    user("held", f"mailHost: {HOSTS[0]}", "mailUserStatus: hold"),
    user("oda", f"mailHost: {HOSTS[1]}", "mailAllowedServiceAccess: +imaps,pops:127.0.0.0/8").replace(
        f"userPassword: {PASSWORD}", f"userPassword:: {b64encode(ODD.encode()).decode()}"),
    *(user(name, f"mailHost: {HOSTS[number % 2]}") for number, name in enumerate(CROWD)),
    *(user(name, f"mailHost: {HOSTS[0]}") for name in MOVERS[:-1]),
    user(MOVERS[-1]),                                   # likewise where the domain's users are, until moved
    user("stays", f"mailHost: {HOSTS[0]}")])

@pytest.fixture(scope="module")
def tiers() -> Iterator[TwoTiers]:
    with TemporaryDirectory(prefix="onecopy-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        with TwoTiers(Path(folder), USERS, QUICK) as made:
            yield made
            for server in made.servers:
                assert server.stop() == 0
                said = server.log.read_text(errors="replace")
                assert "Traceback" not in said, said[said.index("Traceback"):][:4000]
                assert "between us" not in said and ODD not in said
                server.check()


def address(name: str) -> str:
    return f"{name}@{DOMAIN}"


def below(found: list[bytes], sender: str) -> list[bytes]:
    """Messages without what relays and the store have put before them."""
    return [trace.below(octets, sender, relayed=True) for octets in found]


# How mail flows (the four ways of Sun's guide)

def test_the_four_flows(tiers: TwoTiers) -> None:
    """A user to users on both back ends and outside; the world to users; and users fetch it, by IMAP and POP3."""
    sent, received = messages.make(8, 1, 3000), messages.make(8, 2, 70_000)
    before = [len(server.messages) for server in tiers.back_ends]
    assert tiers.submit(address("ann"), [address("ben"), address("cat"), address("dora"), STRANGER], sent) == {}
    assert tiers.submit(STRANGER, [address("ann.smith"), address("ben"), "info@example.net"], received,
                        source=OUTSIDE) == {}
    tiers.relay.empty(WAIT)
    # Each back end has both messages, once, for however many of its users.
    assert [len(server.messages) - least for server, least in zip(tiers.back_ends, before, strict=True)] == [2, 2]
    assert below(mbsync(tiers, "dora"), address("ann")) == [sent]
    assert below(mbsync(tiers, "ann"), STRANGER) == [received]
    for who in ("ben", "cat"):
        found = (fetchmail if who == "ben" else mbsync)(tiers, who)
        assert len(found) == 2
        assert {octets[octets.index(messages.mark(8, number)):] == part[part.index(messages.mark(8, number)):]
                for number, part in ((1, sent), (2, received))
                for octets in found if messages.mark(8, number) in octets} == {True}
    client = tiers.imap("ben")
    assert client.select() == ("OK", [b"0"])            # fetchmail has taken them
    client.logout()
    tiers.relay.until(lambda: len(tiers.outside.taken()) == 1, "the world has its copy", WAIT)
    assert messages.mark(8, 1).replace(b"\r\n", b"\n") in tiers.outside.taken()[0]


def test_a_sub_address(tiers: TwoTiers) -> None:
    """It names a mailbox of the user's, wherever that is."""
    client = tiers.imap("cat")
    client.create("Lists")
    assert tiers.submit(STRANGER, [address("cat+Lists")], b"Subject: to a list\r\n\r\nx\r\n", source=OUTSIDE) == {}
    tiers.relay.empty(WAIT)
    assert client.select("Lists") == ("OK", [b"1"])
    client.logout()


def test_who_is_refused(tiers: TwoTiers) -> None:
    """Before anything is queued: unknown users, and those whose status says so, by the policy of the front; without it
    by the tables. Nobody outside can send through us."""
    asked = {name: tiers.submit(STRANGER, [name], b"Subject: no\r\n\r\nno\r\n", source=OUTSIDE)[name]
             for name in (address("nobody"), address("off"), address("held"), "x@other.example", "nobody@example.net")}
    assert asked[address("nobody")] == (550, asked[address("nobody")][1]) and b"5.1.1" in asked[address("nobody")][1]
    assert asked[address("off")][0] == 550 and b"5.2.1" in asked[address("off")][1]
    assert asked[address("held")][0] == 450 and b"4.2.1" in asked[address("held")][1]
    assert asked["x@other.example"][0] == 454
    assert asked["nobody@example.net"][0] == 550
    tiers.front.stop()
    try:
        refused = tiers.submit(STRANGER, [address("nobody"), address("ann")], b"Subject: one\r\n\r\none\r\n",
                               source=OUTSIDE)
        assert {name: code for name, (code, _) in refused.items()} == {address("nobody"): 550}
        tiers.relay.empty(WAIT)
    finally:
        tiers.front.launch()
        tiers.ready(tiers.front)


# Clients and the proxy

def new(server: Server, before: str) -> str:
    """What it has logged since."""
    return server.log.read_text().removeprefix(before)


def logged(server: Server, before: str, who: str, times: int = 1) -> None:
    """It has logged since then so many logins or more, a moment after they were."""
    wait.until(lambda: new(server, before).count(f"{who} logged in from {INSIDE}") >= times, "it is logged",
               pid=server.pid, limit=WAIT)


def test_each_door(tiers: TwoTiers) -> None:
    """IMAP and POP3, with STARTTLS and under TLS: to the right back end, which hears where the client is."""
    before = [server.log.read_text() for server in tiers.back_ends]
    for who, at in (("ann", 0), ("ben", 1)):
        for admission in ("starttls", "tls"):
            client = tiers.imap_client(admission)
            client.login(who, PASSWORD)
            client.append("INBOX", "", "", MESSAGE)
            client.select()
            assert client.fetch("*", "(BODY.PEEK[])")[1][0][1] == MESSAGE       # type: ignore[index]
            client.logout()
            pop3 = tiers.pop3_client(admission)
            pop3.user(who)
            pop3.pass_(PASSWORD)
            assert pop3.retr(pop3.stat()[0])[1] == MESSAGE.split(b"\r\n")[:-1]
            pop3.quit()
        logged(tiers.back_ends[at], before[at], who, times=2)
        assert f"{who} " not in new(tiers.back_ends[1 - at], before[1 - at])


def test_each_mechanism(tiers: TwoTiers) -> None:
    """A password of odd octets, by LOGIN with literals, PLAIN with an initial response or without, LOGIN of SASL; and
    rules of access that want TLS, which only the proxy sees."""
    client = tiers.imap_client("tls")
    for line in (b"a LOGIN {3}\r\n", b"oda {%d}\r\n" % len(ODD.encode()), ODD.encode() + b"\r\n"):
        client.send(line)
        said = client.readline()
    assert said.startswith(b"a OK [CAPABILITY ") and b"QRESYNC" in said
    client.shutdown()
    client = tiers.imap_client("starttls")
    client.authenticate("PLAIN", lambda _: f"\0oda\0{ODD}".encode())
    client.logout()
    pop3 = tiers.pop3_client("tls")
    pop3.user("oda")
    pop3.pass_(ODD)
    pop3.quit()
    for url, mechanism in ((f"imaps://localhost:{tiers.nginx.imaps}/", "PLAIN"),
                           (f"imaps://localhost:{tiers.nginx.imaps}/", "LOGIN"),
                           (f"pop3s://localhost:{tiers.nginx.pop3s}/", "PLAIN")):
        told = clients.run(["curl", "--silent", "--show-error", "--verbose", "--sasl-ir", "--cacert",
                            str(tiers.authority.file), "--login-options", f"AUTH={mechanism}", "--user", f"oda:{ODD}",
                            url], tiers.folder)
        assert re.search(rf"> (\S+ AUTHENTICATE|AUTH) {mechanism} \S", told), told


def test_a_wrong_password_and_then_the_right_one(tiers: TwoTiers) -> None:
    client = tiers.imap_client("tls")
    with pytest.raises(imaplib.IMAP4.error, match=r"\[AUTHENTICATIONFAILED\] The user name or the password is wrong"):
        client.login("ben", "guess")
    client.login("ben", PASSWORD)
    client.logout()
    pop3 = tiers.pop3_client("tls")
    pop3.user("nobody")
    with pytest.raises(poplib.error_proto, match=r"\[AUTH\] The user name or the password is wrong"):
        pop3.pass_("guess")
    pop3.user("ann")
    pop3.pass_(PASSWORD)
    pop3.quit()


def test_after_too_many_the_connection_ends(tiers: TwoTiers) -> None:
    client = tiers.imap_client("tls")
    for _ in range(3):
        with pytest.raises(imaplib.IMAP4.error, match="AUTHENTICATIONFAILED"):
            client.login("ann", "guess")
    with pytest.raises((imaplib.IMAP4.abort, OSError)):
        client.login("ann", PASSWORD)


def test_no_password_in_the_clear(tiers: TwoTiers) -> None:
    """nginx itself says no, before it asks anybody."""
    before = tiers.front.log.read_text()
    with pytest.raises(imaplib.IMAP4.error):
        tiers.imap_client("clear").login("ann", PASSWORD)
    with pytest.raises(poplib.error_proto):
        tiers.pop3_client("clear").user("ann")
    assert new(tiers.front, before) == ""


def test_who_is_not_there_cannot_come_in(tiers: TwoTiers) -> None:
    """An empty password above all, which a directory may take for no password at all (RFC 4513 §5.1.2)."""
    for who, password in (("ann", ""), ("off", PASSWORD), ("held", PASSWORD), ("nobody", PASSWORD), ("*", PASSWORD),
                          ("ann)(uid=*", PASSWORD), ("oda", PASSWORD)):
        with pytest.raises((imaplib.IMAP4.error, OSError)):
            tiers.imap_client("tls").login(who, password)


def test_mail_goes_on_while_a_client_listens(tiers: TwoTiers) -> None:
    client = tiers.imap("dora")
    client.select()
    client.send(b"i IDLE\r\n")
    assert client.readline().startswith(b"+")
    assert tiers.submit(STRANGER, [address("dora")], MESSAGE, source=OUTSIDE) == {}
    assert re.fullmatch(rb"\* \d+ (EXISTS|RECENT)\r\n", client.readline())
    client.shutdown()


def test_mail_that_comes_to_the_wrong_back_end(tiers: TwoTiers) -> None:
    """Nobody sends it on, so it cannot go in circles; whoever looks into the log sees where it belongs."""
    before = tiers.back_ends[0].log.read_text()
    with smtplib.LMTP(HOSTS[0], int(tiers.back_ends[0].options["lmtp.port"]), "relay.example.org") as lmtp:
        lmtp.ehlo()
        lmtp.mail(STRANGER)
        assert lmtp.rcpt(address("ben"))[0] == 450
    assert HOSTS[1] in new(tiers.back_ends[0], before)


# Users move from one back end to the other

def test_users_move_while_mail_arrives(tiers: TwoTiers) -> None:
    """There and back, with a client connected and mail under way all the time: the directory says so, and proxy and
    relay find the way; nothing is lost, doubled, or another than it was."""
    who = MOVERS[0]
    client = tiers.imap(who)
    for name in ("Archive", "Archive/2026"):
        client.create(name)
    client.subscribe("Archive/2026")
    for number, flags in enumerate((r"\Seen \Answered", "$Later", r"\Flagged $Later Work")):
        client.append("Archive", flags, f'"0{number + 1}-Feb-2020 10:11:12 +0130"', messages.make(9, number, 2000))
    client.select("Archive")
    client.copy("2:3", "INBOX")
    client.copy("1", "Archive/2026")
    client.store("1", "+FLAGS", r"(\Deleted)")
    client.expunge()
    client.logout()
    before = contents(tiers, who)
    with Load(tiers, MOVERS, gentle=True) as load:
        for source, target in ((0, 1), (1, 0)):
            load.more(**{"sent to 0": 2, "read from 0": 2})
            listener = patiently(tiers, lambda: tiers.imap(who))
            listener.select()
            listener.send(b"i IDLE\r\n")
            log, relayed = tiers.back_ends[target].log.read_text(), tiers.relay.log()
            said = tiers.back_ends[source].command("user", "move", *MOVERS, "--to", HOSTS[target])
            assert said.count("mailboxes") == len(MOVERS), said
            heard = []
            for line in iter(listener.readline, b""):
                heard.append(line)
                assert not line.startswith(b"i "), heard                # IDLE goes on until the end
            assert re.match(rb"\* BYE .*UNAVAILABLE", heard[-1]), heard
            listener.shutdown()
            for slapd in (tiers.provider, tiers.replica):
                for name in MOVERS:
                    slapd.copied(f"(&(uid={name})(mailHost={HOSTS[target]}))")
            patiently(tiers, lambda: tiers.imap(who)).shutdown()
            logged(tiers.back_ends[target], log, who)
            tiers.relay.until(lambda target=target, relayed=relayed: all(               # type: ignore[misc]
                re.search(rf"to=<{name}@example.org>, relay={re.escape(HOSTS[target])}\[.*status=sent",
                          tiers.relay.log().removeprefix(relayed)) for name in MOVERS), "mail goes there", WAIT)
            load.more(**{"sent to 0": 2, "read from 0": 2})
            assert not load.wrong, load.wrong
    assert not load.wrong, load.wrong
    tiers.relay.flush()
    tiers.relay.empty(WAIT)
    for name in MOVERS:
        found = patiently(tiers, lambda name=name: load.numbers(name))                    # type: ignore[misc]
        arrived = Counter(int(text) for text in found.values() if text.isdigit())
        assert set(arrived) == load.taken[name] and set(arrived.values()) == {1}, name
    after = patiently(tiers, lambda: contents(tiers, who))
    validity, inbox = after.pop("INBOX")
    was, old = before.pop("INBOX")
    assert after == before
    assert validity == was and {uid: inbox[uid] for uid in old} == old
    client = patiently(tiers, lambda: tiers.imap(who))
    assert [line.rpartition(b" ")[2] for line in client.lsub()[1]] == [b"Archive/2026"]     # type: ignore[union-attr]
    client.logout()


@pytest.mark.parametrize(("change", "why"), [
    ({"write_dn": ""}, "see directory.write_dn"),
    ({"write_dn": f"cn=onecopy,ou=services,{BASE}", "write_password_file": "{folder}/service"},
     "insufficientAccessRights"),
    ({"write_password_file": "{folder}/service"}, f"cn=onecopy-move,ou=services,{BASE} .* is not let in"),
    ({"write_uris": "{replica}"}, "referral"),
    ({"write_uris": "ldap://127.0.0.1:1"}, "no server of the directory answers")],
    ids=["nobody may", "no right", "wrong password", "a replica", "nowhere"])
def test_no_move_without_the_directory(tiers: TwoTiers, change: dict[str, str], why: str) -> None:
    """What is wrong is said before anything is moved, and the client notices nothing."""
    first, second = tiers.back_ends
    client, log = tiers.imap("stays"), second.log.read_text()
    client.append("INBOX", "", "", MESSAGE)
    found = client.select()
    options = {f"ONECOPY_DIRECTORY_{name.upper()}": value.format(folder=tiers.folder, replica=tiers.replica.uri)
               for name, value in change.items()}
    status, out, error = command.run(["user", "move", "stays", "--to", HOSTS[1]], first.environment() | options, b"",
                                     WAIT)
    assert (status, out) == (1, "")
    assert re.search(f"^onecopy: stays: The directory cannot be told .*{why}", error, re.MULTILINE), error
    assert "stays" not in new(second, log)
    assert f"mailHost: {HOSTS[0]}\n" in tiers.provider.search("(uid=stays)", "mailHost")
    assert tiers.submit(STRANGER, [address("stays")], MESSAGE, source=OUTSIDE) == {}
    tiers.relay.empty(WAIT)
    assert client.noop()[0] == "OK"
    assert int(client.response("EXISTS")[1][-1]) == int(found[1][0]) + 1          # type: ignore[arg-type]
    client.logout()


def patiently(tiers: TwoTiers, ask: Callable[[], T]) -> T:
    """What is found once the user gets in: each process may believe for directory.cache_host_time that the user is
    where it was, and says until then to come again."""
    def asked() -> T | None:
        try:
            return ask()
        except imaplib.IMAP4.error as error:
            assert FOR_NOW.search(str(error)) or isinstance(error, imaplib.IMAP4.abort), error
            return None

    return wait.until(asked, "the user gets in", pid=tiers.front.pid, limit=WAIT, step=0.1)


# Each part stops

@pytest.mark.parametrize("seed", [8])
def test_each_part_stops_under_load(tiers: TwoTiers, seed: int) -> None:
    """Mail is late, never lost; a client is cut off or asked to come again, and never told that its password is wrong
    or that a message has gone."""
    first, second = tiers.back_ends
    parts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "the provider is killed": (tiers.provider.kill, tiers.provider.start),
        "the replica hangs": (tiers.replica.hang, tiers.replica.resume),
        "the first back end is stopped": (first.stop, lambda: (first.launch(), tiers.ready(first))),
        "the second back end is killed": (second.kill, lambda: (second.launch(), tiers.ready(second))),
        "Postfix is stopped": (tiers.relay.stop, tiers.relay.start),
        "nginx is stopped": (tiers.nginx.stop, tiers.nginx.start),
        "the front is killed": (tiers.front.kill, lambda: (tiers.front.launch(), tiers.ready(tiers.front)))}
    order = [name for name in parts for _ in range(EACH)]
    Random(seed).shuffle(order)
    flowing = {f"{what} {number}": 1 for what in ("sent to", "read from") for number in (0, 1)}
    with Load(tiers, CROWD) as load:
        load.more(**flowing)
        for name in order:
            stop, start = parts[name]
            stop()
            load.more(**{"tried to send": 5, "tried to read": 5})
            start()
            load.more(**flowing)
            assert not load.wrong, (name, load.wrong)
    assert not load.wrong
    tiers.relay.flush()
    tiers.relay.empty(WAIT)
    assert sum(map(len, load.taken.values())) > 20
    for name in CROWD:
        found = Counter(int(text) for text in load.numbers(name).values())
        assert load.taken[name] <= set(found), f"{name}: {load.taken[name] - set(found)} is lost"
        # A relay that stops, or hears no answer, sends again what has come: lmtp.duplicate_window sees to that.
        assert set(found.values()) == {1}
