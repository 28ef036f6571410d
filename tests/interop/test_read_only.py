"""The file system of the store becomes read-only, as most do after an error, under a real server with load: reading
goes on, writing is refused for now, and comes back by itself once an administrator has mended the volume.

The volume is an ext4 of its own, whose kernel is told that it has met an error.
"""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import define, field

from store.readonly import readingcopy
from tests.support.clients.imap import Imap, Refused
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.faults.mountedimage import MountedImage
from tests.support.processes import wait
from tests.support.readers import trace
from tests.support.servers.server import PASSWORD, Server
from tests.support.stores import messages

pytestmark = pytest.mark.every_file

SENDER = "sender@example.org"
SIZE = 160 << 20
LIMIT = 180          # seconds, far more than anything takes
FIRST = 40          # messages that there are before anything goes wrong
BEGIN, END = "nothing can be written to the store", "the store can be written to again"


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[MountedImage]:
    with MountedImage(tmp_path / "volume", SIZE) as volume:
        yield volume


@define
class Load:
    """Deliveries and flags, one after the other, until told to end; what was acknowledged, and every other answer."""

    server: Server
    kept: list[bytes] = field(factory=list)
    flagged: set[int] = field(factory=set)
    refused: list[str] = field(factory=list)
    enough: threading.Event = field(factory=threading.Event)
    ended: threading.Event = field(factory=threading.Event)

    def deliver(self) -> None:
        number = FIRST
        while not self.ended.is_set():
            try:
                with Lmtp(self.server.lmtp) as lmtp:
                    while not self.ended.is_set():
                        message = messages.make(1, number, 3000)
                        number += 1
                        reply, = lmtp.deliver(SENDER, ["alice"], message)
                        if reply.code == 250:
                            self.kept.append(message)
                        else:
                            self.refused.append(f"{reply.code} {reply.enhanced}")
                            self.enough.set()
            except (OSError, ConnectionError):      # a cut connection says nothing, and all has been said before it
                self.ended.wait(0.05)

    def flag(self) -> None:
        while not self.ended.is_set():
            try:
                with Imap(self.server.imap, "alice", PASSWORD) as imap:
                    imap.select()
                    while not self.ended.is_set():
                        for uid in range(1, FIRST + 1):
                            answer = imap.command(f"UID STORE {uid} +FLAGS (\\Flagged)")
                            if answer.status == "OK":
                                self.flagged.add(uid)
                            else:
                                self.refused.append(f"{answer.status} {answer.text.split('] ')[0]}]")
            except (OSError, ConnectionError, Refused):
                self.ended.wait(0.05)


def reads(server: Server, wanted: set[bytes]) -> dict[int, bytes]:
    """By every protocol all that was acknowledged can be read; the messages by UID."""
    with Imap(server.imap, "alice", PASSWORD) as imap:
        answer = imap.ok("SELECT INBOX")
        assert answer.text.startswith("[READ-ONLY]")
        found = {uid: trace.below(octets, SENDER) for uid, octets in imap.messages().items()}
        assert wanted <= set(found.values())
        assert imap.uids() == sorted(found)
        assert imap.ok("STATUS INBOX (MESSAGES)").find(rb"MESSAGES (\d+)")[1] == b"%d" % len(found)
        assert imap.ok('LIST "" *').find(rb"^\* LIST .*INBOX")
        assert imap.ok("UID SEARCH BODY no-such-text").untagged
    with Pop3(server.pop3, "alice", PASSWORD) as pop3:
        assert trace.below(pop3.message(1), SENDER) == found[min(found)]
    return found


def refuses(server: Server) -> None:
    """Every change is put off with the code of its protocol (RFC 5530, RFC 3463, RFC 3206), and every one that made
    nobody ask for the change is refused before anything is read of it."""
    message = messages.make(9, 0, 2000)
    with Imap(server.imap, "alice", PASSWORD) as imap:
        imap.ok("SELECT INBOX")
        answers = [imap.command(f"UID {words}") for words in (
            "STORE 1 +FLAGS (\\Seen)", "COPY 1 INBOX", "MOVE 1 INBOX", "EXPUNGE 1")]
        answers += [imap.command(words) for words in (
            "CREATE new", "RENAME INBOX other", "SUBSCRIBE INBOX", "SETACL INBOX bob lr", "EXPUNGE")]
        answers.append(imap.append("INBOX", message))
        assert {(answer.status, answer.text.split("] ")[0]) for answer in answers} == {("NO", "[UNAVAILABLE")}, answers
        imap.ok("UID FETCH 1 BODY[]")           # would set \Seen
        imap.ok("NOOP")
        imap.ok("CLOSE")
    with Lmtp(server.lmtp) as lmtp:
        replies = lmtp.deliver(SENDER, ["alice"], message)
        assert [(reply.code, reply.enhanced) for reply in replies] == [(451, "4.3.0")]
    with Pop3(server.pop3, "alice", PASSWORD) as pop3:
        pop3.ok("DELE 1")
        assert pop3.command("QUIT").startswith("-ERR [SYS/TEMP]")


def said(server: Server, text: str, times: int = 1) -> bool:
    return server.log.read_text(errors="replace").count(text) >= times


def answers(server: Server, text: str, times: int) -> None:
    """Wait until the log has said that, and all is started again."""
    wait.until(lambda: said(server, text, times), text, pid=server.pid, limit=LIMIT)
    after = server.log.read_text(errors="replace").rindex(text)
    wait.until(lambda: "serving" in server.log.read_text(errors="replace")[after:], "serving", pid=server.pid,
               limit=LIMIT)


@pytest.mark.parametrize("workers", [{}, {"workers.imap": "1", "workers.lmtp": "1"}], ids=["one", "several"])
def test_an_error_under_load(volume: MountedImage, tmp_path: Path, workers: dict[str, str]) -> None:
    server = Server(volume.folder, ["alice", "bob"], workers)
    server.log = tmp_path / "server.log"        # what is on the volume could not be unmounted
    load = Load(server)
    with server:
        with Lmtp(server.lmtp) as lmtp:
            for number in range(FIRST):
                load.kept.append(messages.make(1, number, 3000))
                assert lmtp.deliver(SENDER, ["alice"], load.kept[-1])[0].code == 250
        threads = [threading.Thread(target=work) for work in (load.deliver, load.flag)]
        for thread in threads:
            thread.start()
        wait.until(lambda: len(load.kept) > 2 * FIRST, "load", pid=server.pid, limit=LIMIT)
        volume.meet_an_error()
        answers(server, BEGIN, 1)
        assert load.enough.wait(LIMIT)
        load.ended.set()
        for thread in threads:
            thread.join(LIMIT)
        assert set(load.refused) <= {"451 4.3.0", "NO [UNAVAILABLE]"}

        found = reads(server, set(load.kept))
        refuses(server)
        assert reads(server, set(load.kept)) == found
        assert "read_only 1" in server.command("stats", "--prometheus")
        assert "a copy for reading" in server.command("status", status=1)
        assert "alice" in server.command("user", "list")
        server.command("user", "add", "carol", "--password-stdin", octets=b"secret\n", status=1)

        shutil.rmtree(readingcopy.find(server.root) or "none")
        answers(server, BEGIN, 2)               # another one is made
        assert reads(server, set(load.kept)) == found

        assert server.stop() == 0
        server.start()                          # a start finds it read-only
        assert reads(server, set(load.kept)) == found

        volume.mend()
        answers(server, END, 1)
        with Lmtp(server.lmtp) as lmtp:
            load.kept.append(messages.make(2, 0, 2000))
            assert lmtp.deliver(SENDER, ["alice"], load.kept[-1])[0].code == 250
        with Imap(server.imap, "alice", PASSWORD) as imap:
            assert imap.ok("SELECT INBOX").text.startswith("[READ-WRITE]")
            now = {uid: trace.below(octets, SENDER) for uid, octets in imap.messages().items()}
            assert set(now.values()) >= set(load.kept), "acknowledged mail is lost"
            assert all(found.get(uid, octets) == octets for uid, octets in now.items()), "a UID means another message"
            flagged = imap.ok("UID SEARCH FLAGGED").find(rb"^\* SEARCH(.*)")[1].split()
            assert set(map(int, flagged)) >= load.flagged, "acknowledged flags are lost"
        assert "read_only 0" in server.command("stats", "--prometheus")
        server.check()
        assert server.stop() == 0
    server.check()
    log = server.log.read_text(errors="replace")
    assert log.count(BEGIN) == 3                # once for each copy
    assert log.count(END) == 1
    assert "Traceback" not in log, log[log.index("Traceback") - 600:][:6000]
    assert "damaged" not in log


def test_one_volume_of_two_under_load(volume: MountedImage, tmp_path: Path) -> None:
    """Bob's partition is on a volume that meets an error: his mail is read, and his alone is put off; alice hears
    nothing of it. A restart, a lost copy, and the volume mended while the server runs."""
    server = Server(tmp_path, ["alice"])
    server.command("partition", "add", "second", "--path", str(volume.folder / "mail"))
    server.command("user", "add", "bob", "--partition", "second", "--password-stdin", octets=b"secret\n")
    load = Load(server)                         # alice's
    one, two = (messages.make(3, number, 2000) for number in (1, 2))
    with server:
        assert both(server, one) == ["250", "250"]
        with Lmtp(server.lmtp) as lmtp:
            for number in range(FIRST):
                assert lmtp.deliver(SENDER, ["alice"], messages.make(1, number, 3000))[0].code == 250
        threads = [threading.Thread(target=work, daemon=True) for work in (load.deliver, load.flag)]
        for thread in threads:
            thread.start()
        wait.until(lambda: len(load.kept) > FIRST, "load", pid=server.pid, limit=LIMIT)
        volume.meet_an_error()
        answers(server, "nothing can be written to partition second", 1)
        for again in (2, 3):
            before = len(load.kept)
            wait.until(lambda before=before: len(load.kept) > before + FIRST, "alice's mail goes on", pid=server.pid,
                       limit=LIMIT)
            assert both(server, two) == ["250", "451 4.3.0"]
            bobs_is_read_and_not_changed(server, one)
            with Imap(server.imap, "alice", PASSWORD) as imap:
                imap.ok(f"CREATE other{before}")
                imap.select()
                imap.ok(f"UID COPY 1 other{before}")
                imap.ok("UID STORE 1 +FLAGS (\\Answered)")
            said = server.command("stats", "--prometheus")
            assert 'partition_read_only{partition="second"} 1' in said and "read_only 0" in said
            assert 'partition_read_only{partition="primary"} 0' in said
            assert "partition second is only read" in server.command("status", status=1)
            for words in (("user", "rename", "bob", "robert"), ("mailbox", "create", "bob", "new"),
                          ("snapshot", "create"), ("deliver", "bob")):
                server.command(*words, octets=one, status=1)
            place, = readingcopy.some(server.root).values()
            shutil.rmtree(place or "none")
            answers(server, "nothing can be written to partition second", again)    # another one is made
        load.ended.set()
        for thread in threads:
            thread.join(LIMIT)
        assert not load.refused
        assert server.stop() == 0
        server.start()                          # a start finds it read-only
        bobs_is_read_and_not_changed(server, one)
        volume.mend()
        answers(server, "partition second can be written to again", 1)
        assert both(server, two) == ["250", "250"]
        with Imap(server.imap, "bob", PASSWORD) as imap:
            assert imap.ok("SELECT INBOX").text.startswith("[READ-WRITE]")
            assert [trace.below(octets, SENDER) for octets in imap.messages().values()] == [one, two]
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.select(examine=True)
            found = [trace.below(octets, SENDER) for octets in imap.messages().values()]
            assert set(load.kept) <= set(found), "acknowledged mail is lost"
        assert 'partition_read_only{partition="second"} 0' in server.command("stats", "--prometheus")
        server.check()
        assert server.stop() == 0
    server.check()
    log = server.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 600:][:6000]
    assert "damaged" not in log


def both(server: Server, message: bytes) -> list[str]:
    """The replies to a message for alice and bob: for RCPT, or for the message."""
    with Lmtp(server.lmtp) as lmtp:
        return [f"{reply.code} {reply.enhanced}" if reply.code != 250 else "250"
                for reply in lmtp.deliver(SENDER, ["alice", "bob"], message)]


def bobs_is_read_and_not_changed(server: Server, message: bytes) -> None:
    with Imap(server.imap, "bob", PASSWORD) as imap:
        assert imap.ok("SELECT INBOX").text.startswith("[READ-ONLY]")
        assert [trace.below(octets, SENDER) for octets in imap.messages().values()] == [message]
        said = [imap.command(words) for words in (
            "UID STORE 1 +FLAGS (\\Seen)", "UID MOVE 1 INBOX", "EXPUNGE", "CREATE new", "RENAME INBOX other",
            "SETACL INBOX alice lr")]
        said.append(imap.append("INBOX", message))
        assert {(each.status, each.text.split("] ")[0]) for each in said} == {("NO", "[UNAVAILABLE")}, said
    with Pop3(server.pop3, "bob", PASSWORD) as pop3:
        assert trace.below(pop3.message(1), SENDER) == message
        pop3.ok("DELE 1")
        assert pop3.command("QUIT").startswith("-ERR [SYS/TEMP]")


def test_a_stop_of_a_server_whose_volume_has_just_become_read_only(volume: MountedImage, tmp_path: Path) -> None:
    """`processes.py` and `notify.py` wrote tracebacks. The store is as after a kill."""
    server = Server(volume.folder, ["alice"])
    server.log = tmp_path / "server.log"
    with server:
        kept = messages.make(1, 0, 3000)
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["alice"], kept)[0].code == 250
        volume.meet_an_error()
        assert server.stop() == 0
        volume.mend()
        server.start()
        with Imap(server.imap, "alice", PASSWORD) as imap:
            imap.select()
            assert [trace.below(octets, SENDER) for octets in imap.messages().values()] == [kept]
        assert server.stop() == 0
    server.check()
    log = server.log.read_text(errors="replace")
    assert "Traceback" not in log, log[log.index("Traceback") - 600:][:6000]
    assert "damaged" not in log


def test_a_start_where_all_is_read_only_the_log_too(volume: MountedImage, tmp_path: Path) -> None:
    server = Server(volume.folder, ["alice"])
    server.log = tmp_path / "server.log"
    kept = messages.make(1, 0, 3000)
    with server:
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["alice"], kept)[0].code == 250
        assert server.stop() == 0
        volume.remount("ro")
        refusal = "Read-only file system"
        server.command("user", "add", "bob", "--password-stdin", octets=b"secret\n", status=1)
        server.options["log.file"] = str(volume.folder / "onecopy.log")
        server.start()
        assert refusal in server.log.read_text()
        assert set(reads(server, {kept}).values()) == {kept}
        volume.remount("rw")
        answers(server, END, 1)
        with Lmtp(server.lmtp) as lmtp:
            assert lmtp.deliver(SENDER, ["alice"], kept)[0].code == 250
        server.check()
        assert server.stop() == 0
    server.check()
    assert "Traceback" not in server.log.read_text()
