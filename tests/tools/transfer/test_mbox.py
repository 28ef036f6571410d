"""mbox files: what a message is in them, and what is made of files that are none, or are cut off."""

import io
from pathlib import Path

import pytest

from store.values import Flag, Flags, InternalDate
from tools.transfer.mbox import MboxFiles, from_date, is_separator, own_fields, quoted, separator
from tools.transfer.sourcevalues import Unreadable

FROM = b"From alice@example.org Thu Feb  1 09:30:00 2024\n"


def taken(path: Path, quoting: str = "auto") -> tuple[list[tuple[bytes, Flags, int]], list[str]]:
    """The messages of a file, with flags and UIDs; and what was told."""
    told: list[str] = []
    source = MboxFiles(path, quoting=quoting)
    box = source.opened(next(source.boxes()))
    mails = source.mails(box, told.append)
    return [(b"".join(data), mail.flags, mail.uid) for mail, data in source.read(box, mails, told.append)], told


def octets(path: Path, quoting: str = "auto") -> list[bytes]:
    return [content for content, _, _ in taken(path, quoting)[0]]


@pytest.mark.parametrize(("line", "seconds", "zone"), [
    (b"From a@example.org Thu Feb  1 09:30:00 2024", 1706779800, 0),
    (b"From a Thu Feb  1 09:30:00 2024 +0200", 1706772600, 120),
    (b"From a Thu Feb  1 09:30:00 CET 2024", 1706779800, 0),
    (b"From  Thu Feb  1 09:30 2024", 1706779800, 0),
    (b"From Thu Feb 1 00:00:00 2001 Thu Feb  1 09:30:00 2024", 1706779800, 0),
])
def test_dates(line: bytes, seconds: int, zone: int) -> None:
    assert from_date(line) == InternalDate(seconds, zone)
    assert is_separator(line)


@pytest.mark.parametrize("line", [b"From here on it rains", b"From a Thu Feb  1 09:30:00",
                                  b">From a Thu Feb  1 09:30:00 2024", b"from a Thu Feb  1 09:30:00 2024"])
def test_what_separates_nothing(line: bytes) -> None:
    assert not is_separator(line)


def test_the_quotings(tmp_path: Path) -> None:
    file = tmp_path / "box"
    body = b"one\n\n>From here\n>>From there\n> From far\nlast\n"
    file.write_bytes(FROM + b"Subject: 1\n\n" + body + b"\n" + FROM + b"Subject: 2\n\nFrom now on it rains\n\n")
    second = b"Subject: 2\r\n\r\nFrom now on it rains\r\n"
    assert octets(file, "mboxrd") == octets(file) == [
        b"Subject: 1\r\n\r\none\r\n\r\nFrom here\r\n>From there\r\n> From far\r\nlast\r\n", second]
    assert octets(file, "mboxo") == [
        b"Subject: 1\r\n\r\none\r\n\r\nFrom here\r\n>>From there\r\n> From far\r\nlast\r\n", second]


def test_content_length(tmp_path: Path) -> None:
    file = tmp_path / "box"
    body = b"one\n\n" + FROM + b"Subject: not a message\n\n>From x\n"
    text = b"%bContent-Length: %d\nSubject: 1\n\n%b\n" % (FROM, len(body), body)
    file.write_bytes(text + text)
    wanted = b"Subject: 1\r\n\r\n" + body.replace(b"\n", b"\r\n")
    assert octets(file) == octets(file, "mboxcl2") == [wanted] * 2
    assert octets(file, "mboxcl") == [wanted.replace(b">From x", b"From x")] * 2
    # one that is wrong is not believed, and then none is
    file.write_bytes(text + text.replace(b"%d" % len(body), b"3"))
    assert len(octets(file)) == 4


def test_one_that_is_cut_off_is_said(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_bytes(FROM + b"Content-Length: 100\nSubject: 1\n\nonly this")
    found, told = taken(file, "mboxcl2")
    assert [content for content, _, _ in found] == [b"Subject: 1\r\n\r\nonly this"]
    assert told == ["box: message 1: cut off, 91 octets are missing; what is there is taken"]


def test_wherever_it_is_cut_what_is_whole_comes(tmp_path: Path) -> None:
    file = tmp_path / "box"
    messages = [b"Subject: %d\n\ntext %d\n" % (number, number) for number in range(3)]
    whole = b"".join(FROM + message + b"\n" for message in messages)
    for cut in range(len(FROM), len(whole) + 1):
        file.write_bytes(whole[:cut])
        complete = [message for at, message in enumerate(messages) if sum(map(len, messages[:at + 1])) + (
            len(FROM) + 1) * (at + 1) <= cut]
        wanted, found = [message.replace(b"\n", b"\r\n") for message in complete], octets(file)
        assert found[:len(wanted) - 1] == wanted[:-1], cut
        assert not wanted or found[len(wanted) - 1].startswith(wanted[-1]), cut     # with half a line From behind it


def test_flags_keywords_and_uids(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_bytes(FROM + b"Subject: 1\nX-IMAPbase: 1700000000 0000000012 work $Junk\nX-UID: 7\nStatus: RO\n"
                     b"X-Status: AF\nX-Keywords: work $Junk  \n\ntext\n\n"
                     + FROM + b"status: O\nx-uid: 9\nX-Status: TD\nSubject: 2\n\n\n")
    source = MboxFiles(file)
    box = source.opened(next(source.boxes()))
    assert (box.uidvalidity, box.uidnext) == (1700000000, 13)
    found, told = taken(file)
    assert found == [
        (b"Subject: 1\r\n\r\ntext\r\n", Flags(Flag.SEEN | Flag.ANSWERED | Flag.FLAGGED, ("work", "$Junk")), 7),
        (b"Subject: 2\r\n\r\n", Flags(Flag.DRAFT | Flag.DELETED), 9)]
    assert not told


def test_the_message_that_is_none_stays_there(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_bytes(FROM + b"Subject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\nX-IMAP: 1700000000 12\n"
                     b"Status: RO\n\nThis text is part of the internal format.\n\n" + FROM + b"X-UID: 12\n\nreal\n")
    assert taken(file)[0] == [(b"\r\nreal\r\n", Flags(), 12)]


def test_uids_that_do_not_ascend_are_none(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_bytes(FROM + b"X-IMAPbase: 1700000000 12\nX-UID: 9\n\n1\n\n" + FROM + b"X-UID: 9\n\n2\n")
    assert [uid for _, _, uid in taken(file)[0]] == [0, 0]


@pytest.mark.parametrize("content", [b"Subject: a message and no mbox\n\ntext\n", b"\x00\x01\x02", b"\n\nx"])
def test_what_is_no_mbox(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "box").write_bytes(content)
    with pytest.raises(Unreadable):
        taken(tmp_path / "box")


def test_empty_and_odd_ones(tmp_path: Path) -> None:
    file = tmp_path / "box"
    for content, messages in ((b"", 0), (b"\n\n", 0), (FROM, 1), (FROM + FROM, 2), (FROM + b"\n" + FROM, 2),
                              (FROM.rstrip(), 1), (FROM + b"Subject: x", 1)):
        file.write_bytes(content)
        assert len(taken(file)[0]) == messages, content
    line = b"x" * 300_000
    file.write_bytes(FROM + b"\n" + line + b"\n\n" + FROM + b"\n" + line)
    assert octets(file) == [b"\r\n" + line + b"\r\n", b"\r\n" + line]


def test_a_folder_of_them(tmp_path: Path) -> None:
    for name in ("INBOX.mbox", "Archive.mbox", "Archive/2024.mbox", "plain", ".hidden", "no.mail"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(FROM + b"\n" if name != "no.mail" else b"other\n")
    assert [box.name for box in MboxFiles(tmp_path).boxes()] == ["Archive", "INBOX", "plain", "Archive/2024"]
    assert [box.name for box in MboxFiles(tmp_path, "Old").boxes()][:2] == ["Old/Archive", "Old/INBOX"]


def test_what_is_written() -> None:
    assert separator(b"a@example.org", InternalDate(1706779800, 120)) == FROM.replace(b"alice", b"a")
    assert separator(b"", InternalDate(0)) == b"From MAILER-DAEMON Thu Jan  1 00:00:00 1970\n"
    assert own_fields(Flags(Flag.SEEN | Flag.FLAGGED, ("work", "$Junk")), 5) == (
        b"X-UID: 5\nStatus: RO\nX-Status: F\nX-Keywords: work $Junk\n")
    assert [quoted(line) for line in (b"From x", b">From x", b">> From", b"from", b"x From ")] == [
        b">From x", b">>From x", b">> From", b"from", b"x From "]
    assert io.BytesIO(separator(b"x y\n", InternalDate(0))).readline().startswith(b"From xy ")


def test_a_link_is_no_mbox_file(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"From a@example.org Thu Feb  1 09:30:00 2024\nSubject: x\n\nsecret\n")
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "Sent").symlink_to(tmp_path / "theirs")
    (tmp_path / "mail" / "folder").symlink_to(tmp_path, target_is_directory=True)
    told: list[str] = []
    assert list(MboxFiles(tmp_path / "mail", warn=told.append).boxes()) == []
    assert told == [f"{tmp_path}/mail/{name}: is a symbolic link, which is not followed" for name in ("Sent", "folder")]
    with pytest.raises(Unreadable, match="symbolic link"):
        source = MboxFiles(tmp_path / "mail" / "Sent")
        source.opened(next(source.boxes()))
