"""The power goes: on a disk that keeps writes until a flush, under a real ext4 and XFS (`tools/bench powercut`)."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from tests.support.processes import wait
from tools.benchmarks.powercut.cache import BLOCK, SECTOR, CachedDisk
from tools.benchmarks.powercut.ledger import Known, Ledger, Mailbox, digest, judge
from tools.benchmarks.powercut.mailclients import Message

DEVICES = ("/dev/fuse", "/dev/loop-control")
LIMIT = 1800                     # seconds for two cuts, far more than they take
SIZE = 16 * BLOCK
PROGRAM = (sys.executable, "-P", "-m", "tools.benchmarks.powercut.run")
possible = pytest.mark.skipif(os.getuid() != 0 or not all(os.access(name, os.R_OK | os.W_OK) for name in DEVICES),
                              reason="needs root, FUSE and loop devices")


@pytest.fixture
def disk(tmp_path: Path) -> CachedDisk:
    image = tmp_path / "image"
    image.write_bytes(bytes(SIZE))
    with image.open("rb") as file:
        return CachedDisk(os.dup(file.fileno()), SIZE)


def after_cut(disk: CachedDisk, left: str) -> bytes:
    disk.cut(left, Random(1))
    disk.write(0, b"later" * 100)
    disk.flush()
    disk.power_on()
    return disk.read(0, SIZE)


@pytest.mark.parametrize("left", ["none", "all", "writes", "blocks", "sectors"])
def test_what_was_flushed_is_on_the_disk(disk: CachedDisk, left: str) -> None:
    disk.write(0, b"a" * BLOCK)
    disk.flush()
    disk.write(BLOCK, b"b" * BLOCK)
    found = after_cut(disk, left)
    assert found[:BLOCK] == b"a" * BLOCK
    assert set(found[BLOCK:]) <= set(b"b\0")


def test_what_was_not_flushed_is_lost_as_it_is_said(disk: CachedDisk) -> None:
    def written(left: str) -> set[bytes]:
        disk.write(0, b"x" * 8 * BLOCK)
        found = after_cut(disk, left)
        disk.write(0, bytes(SIZE))
        disk.flush()
        return {found[at:at + SECTOR] for at in range(0, 8 * BLOCK, SECTOR)}

    whole, nothing = b"x" * SECTOR, bytes(SECTOR)
    assert written("none") == {nothing}
    assert written("all") == {whole}
    assert written("sectors") == {whole, nothing}
    assert written("writes") in ({whole}, {nothing})


ALICE = "main", "alice"


def test_what_was_acknowledged_and_is_not_there_is_told() -> None:
    ledger = Ledger()
    actor = ledger.actor("a client", {ALICE: {"INBOX": Mailbox(7, {1: Known("one")})}})
    actor.begin("APPEND", {ALICE: {"INBOX": Mailbox(7, {1: Known("one")}, (Known("two"),))}})
    actor.done({ALICE: {"INBOX": Mailbox(7, {1: Known("one"), 2: Known("two")})}})
    actor.begin("STORE", {ALICE: {"INBOX": Mailbox(7, {1: Known("one", frozenset({"todo"})), 2: Known("two")})}})
    ledger.close()
    actor.done()                    # too late

    def found(*messages: Known, uidvalidity: int = 7) -> list[str]:
        inbox = Mailbox(uidvalidity, dict(enumerate(messages, start=1)))
        return judge(ledger, lambda who: ({"INBOX": inbox}, {}))

    assert not found(Known("one"), Known("two"))
    assert not found(Known("one", frozenset({"todo"})), Known("two"))
    assert "UID 2 is None" in found(Known("one"))[0]
    assert "UID 2 of INBOX was two and is another" in found(Known("one"), Known("another"))[0]
    assert "UIDVALIDITY 8" in found(Known("one"), Known("two"), uidvalidity=8)[0]
    assert "more than there should be" in found(Known("one"), Known("two"), Known("three"))[0]
    assert "UID 2 is Known" in found(Known("one"), Known("two", frozenset({"\\Seen"})))[0]
    assert "cannot log in" in judge(ledger, lambda who: (None, {}))[0]


def test_mail_that_was_acknowledged_and_is_not_there_is_told() -> None:
    ledger = Ledger()
    first, octets = ledger.begin(b"Text.", [ALICE])
    second, more = ledger.begin(b"Text.", [ALICE])
    ledger.delivered(ALICE, first)
    ledger.close()
    ledger.delivered(ALICE, second)         # too late

    def found(*messages: bytes) -> list[str]:
        inbox = {uid: Message(b"Received: from x\r\n\tby y\r\n" + each, frozenset())
                 for uid, each in enumerate(messages, start=1)}
        known = Mailbox(7, {uid: Known(digest(message.octets)) for uid, message in inbox.items()})
        return judge(ledger, lambda who: ({"INBOX": known}, inbox))

    assert not found(octets)
    assert not found(octets, more)
    assert "acknowledged and are lost" in found()[0]
    assert "there twice" in found(octets, more, more)[0]
    assert "no message that was sent" in found(octets[:-5])[0]


@pytest.mark.long
@possible
def test_a_program_that_is_killed_leaves_no_mount_no_loop_device_and_no_process(tmp_path: Path) -> None:
    """In the middle, with a file system mounted on a disk that is served by one of those that end."""
    program = subprocess.Popen([*PROGRAM, "--cuts", "1", "--running", "mail"], stdout=subprocess.DEVNULL,
                               env={**os.environ, "TMPDIR": str(tmp_path)}, stderr=subprocess.DEVNULL)
    try:
        loop = wait.until(lambda: next(filter(None, (volume(pid, tmp_path) for pid in wait.tree(program.pid))), None),
                          "the file system is mounted", pid=program.pid, limit=LIMIT)
        family = wait.tree(program.pid)[1:]
        servers = [pid for pid in family if any(name.endswith("/fuse") for name in open_files(pid))]
        assert len(servers) == 1
        assert not volume(servers[0], tmp_path), "it would have to serve its own disk when it is the last to end"
    finally:
        program.kill()
        program.wait(LIMIT)
    for pid in family:
        wait.gone(pid, "a process", limit=LIMIT)
    backing = Path("/sys/block", loop, "loop", "backing_file")
    wait.until(lambda: not backing.exists() or str(tmp_path) not in backing.read_text(), "the loop device is free",
               pid=os.getpid(), limit=LIMIT)


def volume(pid: int, folder: Path) -> str:
    """The name of the device that is mounted below the folder, as that process sees it."""
    try:
        lines = Path(f"/proc/{pid}/mounts").read_text().splitlines()
    except OSError:
        lines = []                      # it has ended
    return next((Path(line.split()[0]).name for line in lines if f" {folder}/" in line and "/volume " in line), "")


def open_files(pid: int) -> list[str]:
    found = []
    with suppress(OSError):             # it has ended, or closed one
        for path in Path(f"/proc/{pid}/fd").iterdir():
            found.append(os.readlink(path))
    return found


@pytest.mark.long
@possible
def test_power_goes() -> None:
    words = ["--cuts", "2", "--json", "--seed", "4715", "--running", "start"]         # while mail runs, and once more
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    *rows, total = json.loads(done.stdout)["rows"]
    assert [(row["running"], row["on"]) for row in rows] == [("start", "ext4"), ("start", "xfs")]
    assert total["cuts"] == 2 and total["answers"] > 0
    assert total["lost"] == total["starts_failed"] == total["check"] == total["other"] == 0
