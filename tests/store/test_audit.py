"""The audit trail: what is noted stays, and what somebody does to it afterwards is found, with its place."""

import errno
import json
import os
import stat
import threading

import pytest

from mboxlist import privatefiles
from store.audit import auditline, trail
from store.audit.auditline import BEGUN, FOLDER, HEAD, Head
from store.audit.auditverification import GONE, read, verify
from store.audit.trail import Trail, append, remove
from store.check import layout
from tests.support.stores.stores import make_store

JANUARY, FEBRUARY, MARCH = 1767225600.0, 1769904000.0, 1772323200.0     # the first second of each, in 2026


class Clock:
    now = JANUARY

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def written(tmp_path, clock):
    """A trail of six lines in two files."""
    noted = Trail(tmp_path, clock=clock)
    for number in range(6):
        if number == 4:
            clock.now = FEBRUARY
        assert noted.write("delete", f"act {number}", actor="alice")
    return tmp_path


def paths(root):
    return sorted((root / FOLDER).glob("*.jsonl"))


def change(path, work):
    """Have the lines of a file be what `work` makes of them."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(work(lines)))


def whats(root):
    return [line.facts and line.facts["what"] for line in read(root)]


def test_what_is_noted_is_there_in_order_and_nobody_else_can_read_it(written):
    assert whats(written) == [f"act {number}" for number in range(6)]
    assert [path.name for path in paths(written)] == ["000001-2026-01.jsonl", "000002-2026-02.jsonl"]
    found = verify(written)
    assert (found.lines, found.faults, found.head.number) == (6, [], 6)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in (written / FOLDER).iterdir())
    assert next(read(written)).facts["time"] == "2026-01-01T00:00:00.000+00:00"


def swap(lines):
    return [lines[0], lines[2], lines[1], lines[3]]


@pytest.mark.parametrize(("work", "place", "told"), [
    (lambda lines: [lines[0], lines[1].replace(b"alice", b"mallo"), *lines[2:]], "000001-2026-01.jsonl, line 2",
     "line 2 was changed"),
    (lambda lines: [lines[0], *lines[2:]], "000001-2026-01.jsonl, line 2", "line 2 before it was removed"),
    (lambda lines: [lines[0], lines[3]], "000001-2026-01.jsonl, line 2", "lines 2 to 3 before it were removed"),
    (lambda lines: [*lines[:2], lines[1], *lines[2:]], "000001-2026-01.jsonl, line 3", "it was inserted or moved"),
    (swap, "000001-2026-01.jsonl, line 3", "line 2 stands behind line 3: it was inserted or moved"),
    (lambda lines: [lines[0], b"\n", *lines[2:]], "000001-2026-01.jsonl, line 2", "cannot be read"),
    (lambda lines: lines[:-1], "000002-2026-02.jsonl, line 1", "line 4 before it was removed"),
    (lambda lines: lines[1:], "000001-2026-01.jsonl, line 1", "not by `onecopy audit remove`"),
])
def test_what_somebody_does_to_a_line_is_found_where_it_was_done(written, work, place, told):
    change(paths(written)[0], work)
    assert any(where == place and told in what for where, what in verify(written).faults)


def test_a_line_that_was_inserted_with_the_right_digest_is_found(written):
    def insert(lines):
        false = auditline.made({"kind": "delete", "what": "false"}, 3, auditline.digest_of(lines[1][:-1]), JANUARY)
        return [*lines[:2], false + b"\n", *lines[2:]]

    change(paths(written)[0], insert)
    assert [place for place, _ in verify(written).faults] == ["000001-2026-01.jsonl, line 4"]


@pytest.mark.parametrize("work", [lambda lines: lines[:-1], lambda lines: []])
def test_a_tail_that_was_cut_is_found_by_the_head_also_when_others_write_behind_it(written, clock, work):
    change(paths(written)[1], work)
    assert [place for place, _ in verify(written).faults] == ["the end"]
    Trail(written, clock=clock).write("share", "later")
    assert any("before it w" in what and "removed" in what for _, what in verify(written).faults)


def test_the_last_line_is_held_by_the_head(written):
    change(paths(written)[1], lambda lines: [lines[0], lines[1].replace(b"alice", b"mallo")])
    assert verify(written).faults == [("000002-2026-02.jsonl, line 2", "line 6 is not the one that the head names")]


def test_a_head_that_was_kept_elsewhere_finds_a_trail_that_was_written_anew(written, tmp_path_factory, clock):
    kept = verify(written).head
    assert verify(written, kept).faults == []
    anew = tmp_path_factory.mktemp("anew")
    for number in range(7):
        Trail(anew, clock=clock).write("delete", f"false {number}")
    assert verify(anew).faults == []
    assert "is not the one that the head that is known names" in verify(anew, kept).faults[0][1]
    shorter = tmp_path_factory.mktemp("shorter")
    Trail(shorter, clock=clock).write("delete", "false")
    assert verify(shorter, kept).faults[0][0] == "the end"


def test_a_head_that_is_removed_is_told_also_after_the_next_line(written, clock):
    change(paths(written)[1], lambda lines: lines[:-1])
    (written / FOLDER / HEAD).unlink()
    assert verify(written).faults == [("head", "it is missing, or cannot be read")]
    Trail(written, clock=clock).write("share", "later")
    assert [what[:20] for _, what in verify(written).faults] == ["the head was missing"]


# A process that is killed

def test_what_was_written_before_the_head_is_taken_up(written, clock):
    head = (written / FOLDER / HEAD).read_bytes()
    Trail(written, clock=clock).write("share", "killed behind its line")
    (written / FOLDER / HEAD).write_bytes(head)
    assert verify(written).faults == []
    Trail(written, clock=clock).write("share", "later")
    assert (verify(written).faults, verify(written).head.number) == ([], 8)


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_line_that_was_cut_off_is_closed_by_the_next_writer_and_told(written, clock, left):
    head = (written / FOLDER / HEAD).read_bytes()
    Trail(written, clock=clock).write("share", "killed within its line")
    (written / FOLDER / HEAD).write_bytes(head)
    path = paths(written)[1]
    whole = path.read_bytes()
    at = whole[:-1].rindex(b"\n") + 1
    path.write_bytes(whole[:at + left] if left > 0 else whole[:left])
    assert verify(written).faults == []
    Trail(written, clock=clock).write("share", "later")
    found = verify(written)
    assert (found.faults, found.cut, found.head.number) == ([], int(left > 0), 9)
    assert whats(written)[-2:] == [auditline.CUT, "later"]


def test_a_whole_line_that_is_made_unreadable_does_not_pass_for_one_that_was_cut_off(written, clock):
    change(paths(written)[1], lambda lines: [lines[0], lines[1][:40]])
    Trail(written, clock=clock).write("share", "later")
    assert verify(written).faults != []


@pytest.mark.parametrize("step", ["make_folder", "open_handle", "fdatasync", "pwrite", "sync_folder", "replace_file"])
def test_killed_at_each_step_the_trail_goes_on(tmp_path, clock, monkeypatch, step):
    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        place = next(each for each in (trail, trail.os, privatefiles) if hasattr(each, step))
        patched.setattr(place, step, killed)
        with pytest.raises(Killed):
            append(tmp_path, [(JANUARY, {"kind": "share", "what": "killed"})])
    assert verify(tmp_path).faults == []
    Trail(tmp_path, clock=clock).write("share", "later")
    assert verify(tmp_path).faults == []
    assert whats(tmp_path)[-1] == "later"


# A trail that is removed whole

@pytest.mark.parametrize("left", [(), ("lock",)])
def test_a_trail_that_is_removed_whole_is_noticed_also_after_the_next_line(written, clock, left):
    for path in (written / FOLDER).iterdir():
        if path.name not in left:
            path.unlink()
    if not left:
        (written / FOLDER).rmdir()
    assert verify(written).faults == [(FOLDER, GONE)]
    Trail(written, clock=clock).write("share", "later")
    assert whats(written) == [auditline.NO_HEAD, "later"]
    assert [what[:20] for _, what in verify(written).faults] == ["the head was missing"]


def test_a_trail_that_begins_while_it_is_read_lacks_no_head(tmp_path):
    def begins(read):
        append(tmp_path, [(JANUARY, {"kind": "share", "what": "first"})])
        return read

    found = verify(tmp_path, watched=begins)
    assert (found.lines, found.faults) == (1, [])
    (tmp_path / FOLDER / HEAD).unlink()
    assert verify(tmp_path).faults == [("head", "it is missing, or cannot be read")]


def test_where_nothing_was_noted_nothing_is_gone(tmp_path):
    assert verify(tmp_path).faults == []
    (tmp_path / FOLDER).mkdir()
    assert verify(tmp_path).faults == []


def test_a_trail_of_an_earlier_version_is_known_from_its_next_line_on(written, clock):
    (written / BEGUN).unlink()
    assert verify(written).faults == []
    Trail(written, clock=clock).write("share", "later")
    assert verify(written).faults == [] and (written / BEGUN).exists()


def test_a_volume_that_is_full_keeps_no_line_from_being_noted(tmp_path, clock, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(trail, "replace_file", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        assert Trail(tmp_path, clock=clock).write("share", "first")
    assert not (tmp_path / BEGUN).exists()
    assert Trail(tmp_path, clock=clock).write("share", "second") and verify(tmp_path).faults == []
    assert (tmp_path / BEGUN).read_text() == "2026-01-01T00:00:00+00:00\n"


def test_killed_before_the_first_line_no_trail_is_gone(tmp_path, clock, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    monkeypatch.setattr(trail, "_opened", killed)
    with pytest.raises(Killed):
        append(tmp_path, [(JANUARY, {"kind": "share", "what": "killed"})])
    assert (tmp_path / BEGUN).exists() and verify(tmp_path).faults == []


# What is in a line

def test_nothing_that_a_client_says_ends_a_line_and_what_is_long_is_cut(tmp_path, clock):
    hostile = "a\r\n{\"number\": 2}\x00\x1b[2J\x7f\x85\u2028\ud800" + "x" * 5000
    Trail(tmp_path, clock=clock).write("share", hostile, mailbox=hostile, arguments=[hostile] * 100)
    line, = paths(tmp_path)[0].read_bytes().splitlines()
    assert all(32 <= octet < 127 for octet in line)
    facts = json.loads(line)
    assert facts["mailbox"].startswith("a\r\n{") and len(facts["mailbox"]) == auditline.LONGEST
    assert len(facts["arguments"]) == auditline.MOST + 1


def test_what_is_not_wanted_is_not_noted_and_nothing_makes_no_folder(tmp_path, clock):
    assert Trail(tmp_path, (), clock=clock).write("delete", "not wanted")
    assert not (tmp_path / FOLDER).exists()
    noted = Trail(tmp_path, ("share",), clock=clock)
    noted.write("delete", "not wanted")
    noted.write("share", "wanted")
    assert whats(tmp_path) == ["wanted"]


def test_what_cannot_be_written_is_told(tmp_path, clock, capsys):
    (tmp_path / FOLDER).write_text("a file is where the folder belongs")
    assert not Trail(tmp_path, clock=clock).write("delete", "not lost", user="bob")
    said = capsys.readouterr().err
    assert "not lost" in said and "bob" in said


def test_many_threads_and_trails_write_one_chain(tmp_path):
    noted = Trail(tmp_path)

    def write():
        other = Trail(tmp_path)
        for _ in range(10):
            assert noted.write("share", "shared")
            assert other.write("share", "own")

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (verify(tmp_path).lines, verify(tmp_path).faults) == (160, [])


# Retention

def test_old_files_go_and_the_chain_goes_on(written, clock):
    clock.now = MARCH
    Trail(written, clock=clock).write("share", "of March")
    assert remove(written, "2026-02", {"actor": "root"}, clock) == ["000001-2026-01.jsonl"]
    found = verify(written)
    assert (found.faults, found.removed) == ([], 4)
    assert remove(written, "2027-01", {"actor": "root"}, clock) == ["000002-2026-02.jsonl"]      # never the last
    assert (verify(written).faults, verify(written).removed) == ([], 6)
    paths(written)[0].write_bytes(b"")
    assert verify(written).faults != []


def test_a_removal_that_was_cut_off_is_no_fault_and_is_done_by_the_next(written, clock, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(type(written), "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove(written, "2026-02", {}, clock)
    assert verify(written).faults == []
    assert remove(written, "2026-02", {}, clock) == ["000001-2026-01.jsonl"]
    assert verify(written).faults == []


def test_a_file_is_not_written_without_end(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(trail, "FILE_OCTETS", 300)
    for _ in range(5):
        Trail(tmp_path, clock=clock).write("share", "x" * 100)
    assert len(paths(tmp_path)) > 1 and all(path.stat().st_size < 700 for path in paths(tmp_path))
    assert verify(tmp_path).faults == []


def test_the_check_knows_the_files(tmp_path, clock):
    store = make_store(tmp_path / "store")
    Trail(store.root, clock=clock).write("share", "shared")
    store.close()
    owner = os.geteuid(), os.getegid()
    assert layout.look(store.root, owner) == []
    (store.root / FOLDER / "other").write_text("")
    (store.root / FOLDER / HEAD).chmod(0o644)
    assert len(layout.look(store.root, owner)) == 2


def test_a_head_is_what_it_says():
    head = Head(7, "ab" * 32, 3, 4096)
    assert Head.from_bytes(head.to_bytes()) == head and len(head.to_bytes()) == auditline.HEAD_OCTETS
    assert Head.from_bytes(b"\0" * 256) is None and Head.from_bytes(b'{"number": "7"}') is None


def test_a_volume_that_is_full_leaves_no_part_of_a_line(written, clock, monkeypatch):
    """Twice: what the second writer leaves is behind what the first one has left."""
    real = os.write

    def half(handle, octets):
        if len(octets) > 20:
            return real(handle, octets[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    before, told = paths(written)[1].read_bytes(), []
    with monkeypatch.context() as patched:
        patched.setattr(trail.os, "write", half)
        for number in range(2):
            assert not Trail(written, clock=clock, unwritten=told.append).write("share", f"full {number}")
    assert paths(written)[1].read_bytes() == before and len(told) == 2
    Trail(written, clock=clock).write("share", "later")
    assert (verify(written).faults, whats(written)[-2:]) == ([], ["act 5", "later"])


def test_a_head_that_is_no_head_keeps_nobody_from_what_is_done(written, clock):
    (written / FOLDER / HEAD).write_bytes(b'{"number": 6, "digest": "", "file": 2, "size": -5}')
    assert Trail(written, clock=clock).write("share", "later")
    assert [what[:20] for _, what in verify(written).faults] == ["the head was missing"]


def test_the_first_head_is_on_disk_before_the_first_line(tmp_path, clock, monkeypatch):
    synced = []
    monkeypatch.setattr(trail.os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    monkeypatch.setattr(trail.os, "fdatasync", lambda handle: synced.append("line"))
    Trail(tmp_path, clock=clock).write("share", "first")
    assert synced.index(str(tmp_path / FOLDER / HEAD)) < synced.index("line")


def test_of_months_that_a_clock_has_repeated_none_is_removed_behind_one_that_stays(tmp_path, clock):
    for clock.now in (FEBRUARY, JANUARY, MARCH):
        Trail(tmp_path, clock=clock).write("share", "noted")
    assert remove(tmp_path, "2026-02", {}, clock) == [] and verify(tmp_path).faults == []
    assert len(remove(tmp_path, "2026-03", {}, clock)) == 2 and verify(tmp_path).faults == []


@pytest.mark.parametrize("kept", [0, 1, 30])
def test_one_who_is_killed_as_it_tells_of_a_line_that_was_cut_off_makes_no_change_of_it(written, clock, kept):
    """0: behind the end of line that closes it."""
    head = (written / FOLDER / HEAD).read_bytes()
    path = paths(written)[1]
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 7, "ti' + b"\n" + b'{"number": 8, "time": "2026-02-01T'[:kept])
    assert verify(written).faults == []
    Trail(written, clock=clock).write("share", "later")
    found = verify(written)
    assert (found.faults, found.cut, whats(written)[-2:]) == ([], 1 + bool(kept), [auditline.CUT, "later"])
    assert (written / FOLDER / HEAD).read_bytes() != head


def test_a_line_before_one_that_was_cut_off_is_not_taken_for_one(written, clock):
    """The line that tells of it says how many were cut off."""
    path = paths(written)[1]
    with path.open("ab") as file:
        file.write(b'{"number": 7, "ti')
    Trail(written, clock=clock).write("share", "later")
    change(path, lambda lines: [lines[0], b"x" * 40 + b"\n", *lines[2:]])
    assert [place for place, _ in verify(written).faults][0] == f"{path.name}, line 2"
