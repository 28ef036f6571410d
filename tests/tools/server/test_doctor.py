"""`onecopy doctor`: each thing that can be wrong with a deployment is found, and what is right is not complained of."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store.check import lastcheck
from store.operations import clockrecord
from store.values import Finding
from tests.support.processes.ports import free_port
from tests.support.servers.certificates import Authority
from tests.support.servers.postfix import Postfix
from tests.support.servers.server import Server
from tools.cli.options import Config, load
from tools.server.doctor import agelooks, hostlooks, namelooks, postfixlooks
from tools.server.doctor.advice import Advice

MOUNTS = """25 30 0:23 / / rw,relatime shared:1 - ext4 /dev/root rw
31 25 0:24 / {memory} rw,nosuid - tmpfs tmpfs rw,size=100k
32 25 0:25 / {network} rw - nfs4 server:/mail rw,vers=4.2
33 25 0:26 / {unsafe} rw,noatime - ext4 /dev/sdb1 rw,barrier=0
"""


def config(root: Path, **options: str) -> Config:
    """The configuration of a store there; `store__cache` is store.cache."""
    return load({"root": str(root), **{name.replace("__", "."): value for name, value in options.items()}}, {})


def told(found: Iterator[Advice]) -> list[tuple[str, bool]]:
    """What it is about, and whether it is serious."""
    return [(each.about, each.serious) for each in found]


# The host

@pytest.mark.parametrize(("place", "words"), [
    ("plain", ""), ("memory", "on a tmpfs"), ("network", "on nfs4"), ("unsafe", "mounted with barrier=0"),
    ("with space", "on a tmpfs")])
def test_volumes(tmp_path: Path, place: str, words: str) -> None:
    root, mounts = tmp_path / place / "store", tmp_path / "mountinfo"
    root.mkdir(parents=True)
    text = MOUNTS.format(**{name: tmp_path / name for name in ("memory", "network", "unsafe")})
    mounts.write_text(text + rf"34 25 0:27 / {tmp_path}/with\040space rw - tmpfs t rw" + "\n")
    found = list(hostlooks.volumes(root, mounts))
    assert [words in each.text and each.serious for each in found] == ([True] if words else [])


def test_a_volume_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "partitions").mkdir()
    (tmp_path / "partitions/second").symlink_to("/no/such/volume")
    found = list(hostlooks.volumes(tmp_path, Path("/proc/self/mountinfo")))
    assert ("mount its volume", True) in [(each.do, each.serious) for each in found]


def test_clock() -> None:
    assert told(hostlooks.clock(0x2001)) == [] and told(hostlooks.clock(0x40)) == [("clock", False)]
    assert isinstance(hostlooks._clock_status(), int)


def test_the_record_of_the_time(tmp_path: Path) -> None:
    here, day = config(tmp_path), 86400.0
    assert told(agelooks.clock(here, 1e9)) == []
    clockrecord.trust(tmp_path, 1e9)
    assert told(agelooks.clock(here, 1e9)) == [] and told(agelooks.clock(here, 1e9 + 30 * day)) == [("clock", True)]
    (tmp_path / clockrecord.FILE).write_text('{"seen": NaN, "ran": 0}')
    os.utime(tmp_path / clockrecord.FILE, (1e9, 1e9))
    assert told(agelooks.clock(here, 1e9 + day)) == [("clock", False)]
    assert "is damaged" in next(agelooks.clock(here, 1e9 + day)).text
    assert told(agelooks.clock(here, 1e9 + 30 * day)) == [("clock", False), ("clock", True)]


@pytest.mark.parametrize(("limit", "found"), [("65536", []), ("1024", [("file descriptors", True)]), ("unlimited", [])])
def test_descriptors(tmp_path: Path, limit: str, found: list[tuple[str, bool]]) -> None:
    (tmp_path / "limits").write_text("Limit                     Soft Limit           Hard Limit           Units     \n"
                                     f"Max open files            {limit:21}{limit:21}files     \n")
    assert told(hostlooks.descriptors(config(tmp_path, imap__connections="2000"), tmp_path / "limits")) == found
    assert told(hostlooks.descriptors(config(tmp_path), tmp_path / "nothing")) == []


def test_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        2097152 kB\nMemFree:          100000 kB\n")
    (tmp_path / "partitions/primary").mkdir(parents=True)
    assert told(hostlooks.memory(config(tmp_path, store__cache="512M"), tmp_path / "meminfo")) == []
    assert told(hostlooks.memory(config(tmp_path, store__cache="513M"), tmp_path / "meminfo")) == [
        ("store.cache", True)]


# Postfix

@pytest.fixture(scope="module")
def parameters() -> Iterator[tuple[dict[str, str], str, int]]:
    """What a real Postfix says of the configuration that we ship, the line of its client, and the port of LMTP."""
    port = free_port()
    postfix = Postfix(port, policy=2424)
    try:
        words = ["postconf", "-c", str(postfix.folder / "config")]
        yield (postfixlooks._values(postfixlooks._asked([*words, "-x", *postfixlooks._ASKED])),
               postfixlooks._asked([*words, "-M", "lmtp/unix"]), port)
    finally:
        postfix.__exit__()


def test_what_we_ship_is_right(tmp_path: Path, parameters: tuple[dict[str, str], str, int]) -> None:
    values, lmtp, port = parameters
    here = config(tmp_path, lmtp__port=str(port), store__default_domain="example.org")
    assert list(postfixlooks.judged(here, values, lmtp)) == []


@pytest.mark.parametrize(("change", "about", "serious"), [
    ({"virtual_transport": "lmtp:inet:127.0.0.1:9"}, "virtual_transport", True),
    ({"virtual_transport": "lmtp:inet:mail.example.org:9"}, None, False),
    ({"virtual_transport": "lmtp:unix:onecopy/lmtp"}, "virtual_transport", True),
    ({"virtual_transport": "virtual"}, "virtual_transport", True),
    ({"virtual_transport": "virtual", "transport_maps": "hash:/etc/postfix/transport"}, None, False),
    ({"message_size_limit": "0"}, "message_size_limit", True),
    ({"message_size_limit": str(129 << 20)}, "message_size_limit", True),
    ({"lmtp_destination_recipient_limit": "50"}, "lmtp_destination_recipient_limit", False),
    ({"lmtp_destination_recipient_limit": "0"}, "lmtp_destination_recipient_limit", False),
    ({"lmtp_destination_recipient_limit": "100000"}, "lmtp_destination_recipient_limit", False),
    ({"smtpd_recipient_restrictions": "permit_mynetworks, reject_unauth_destination"}, "smtpd_recipient_restrictions",
     True),
    ({"mydestination": "$myhostname, example.org"}, "mydestination", True)])
def test_what_is_wrong_with_it(tmp_path: Path, parameters: tuple[dict[str, str], str, int], change: dict[str, str],
                               about: str | None, serious: bool) -> None:
    values, lmtp, port = parameters
    here = config(tmp_path, lmtp__port=str(port), store__default_domain="example.org")
    found = told(postfixlooks.judged(here, {**values, **change}, lmtp))
    assert found == ([(f"Postfix: {about}", serious)] if about else [])


def test_sockets_and_flags(tmp_path: Path, parameters: tuple[dict[str, str], str, int]) -> None:
    values, lmtp, _ = parameters
    here = config(tmp_path, lmtp__socket=values["queue_directory"] + "/onecopy/lmtp")
    same = {**values, "virtual_transport": "lmtp:unix:onecopy/lmtp"}
    assert told(postfixlooks.judged(here, same, lmtp)) == []
    assert told(postfixlooks.judged(here, {**same, "virtual_transport": "lmtp:unix:other"}, lmtp)) == [
        ("Postfix: virtual_transport", True)]
    assert told(postfixlooks.judged(here, same, "lmtp unix - - n - - lmtp flags=DRhu")) == [
        ("Postfix: master.cf, lmtp", False)]


@pytest.mark.long
def test_a_postfix_that_cannot_be_asked(tmp_path: Path) -> None:
    assert told(postfixlooks.look(config(tmp_path), tmp_path)) == [("Postfix", True)]


# Names

def test_certificates_as_clients_see_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path, "ours")
    options = {"tls.certificate": str(authority.server())}
    with Server(tmp_path, options=options) as server:
        port = int(server.options["imap.tls_port"])
        strange, = namelooks.shown_certificate("imap", "localhost", "127.0.0.1", port)
        assert strange.serious and "cannot be verified" in strange.text
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ours.pem"))
        assert list(namelooks.shown_certificate("imap", "localhost", "127.0.0.1", port)) == []
        other, = namelooks.shown_certificate("imap", "mail.example.org", "127.0.0.1", port)
        assert "mail.example.org" in other.text and "mismatch" in other.text.lower()
        server.options["login.slow_first"] = "7"        # which the server does not know
        found = json.loads(server.command("doctor", "--name", "localhost", "--json", status=1))
        assert "login.slow_first" in next(each["text"] for each in found if each["about"] == "configuration")
        assert {"about", "serious", "text", "do"} == set(found[0]) and [each["serious"] for each in found] == sorted(
            (each["serious"] for each in found), reverse=True)
        server.stop()
    silent, = namelooks.shown_certificate("imap", "localhost", "127.0.0.1", port)
    assert "does not answer" in silent.text


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(namelooks._resolved("localhost")) == []
    assert told(namelooks._resolved("no.such.name.invalid")) == [("no.such.name.invalid", True)]       # RFC 6761 §6.4
    assert told(namelooks._resolved("192.0.2.1")) == [("192.0.2.1", False)]


# What is old

def test_ages(tmp_path: Path) -> None:
    now, here = time.time(), config(tmp_path)
    assert told(agelooks.snapshots(here, now)) == [("snapshots", False)]
    assert told(agelooks.snapshots(config(tmp_path, store__snapshot_interval="0"), now)) == [
        ("store.snapshot_interval", False)]
    assert told(agelooks.last_check(here, now)) == [("check", False)]
    lastcheck.write(tmp_path, now - 60, [])
    assert told(agelooks.last_check(here, now)) == []
    assert told(agelooks.last_check(here, now + 40 * 86400)) == [("check", False)]
    lastcheck.write(tmp_path, now - 60, [Finding("user/alice/INBOX", "is damaged")])
    assert told(agelooks.last_check(here, now)) == [("check", True)]
    assert told(agelooks.look(here))[0] == ("server", True)
