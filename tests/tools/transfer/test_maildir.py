"""Maildirs: flags and keywords in names, lists of UIDs, layouts, and what is odd in them."""

import os
from pathlib import Path

import pytest

from store.values import Flag, Flags, InternalDate
from tools.transfer.maildir import Maildirs
from tools.transfer.sourcevalues import Mail


def make(root: Path, files: dict[str, bytes]) -> Path:
    for part in ("cur", "new", "tmp"):
        (root / part).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
        os.utime(root / name, (1706779800, 1706779800))
    return root


def taken(root: Path) -> tuple[list[tuple[Mail, bytes]], list[str]]:
    told: list[str] = []
    source = Maildirs(root, warn=told.append)
    box = source.opened(next(source.boxes()))
    mails = source.mails(box, told.append)
    return [(mail, b"".join(data)) for mail, data in source.read(box, mails, told.append)], told


def test_flags_keywords_and_dates(tmp_path: Path) -> None:
    make(tmp_path, {"cur/1.a:2,FSb": b"Subject: 1\n\none\n", "cur/2.b:2,PRTDa,x": b"Subject: 2\r\n\r\ntwo\r\n",
                    "new/3.c": b"", "dovecot-keywords": b"0 work\n1 $Junk\n77 too-high\nnonsense\n2 not(one\n"})
    found, told = taken(tmp_path)
    assert [(mail.flags, data) for mail, data in found] == [
        (Flags(Flag.FLAGGED | Flag.SEEN, ("$Junk",)), b"Subject: 1\r\n\r\none\r\n"),
        (Flags(Flag.ANSWERED | Flag.DELETED | Flag.DRAFT, ("$Forwarded", "work")), b"Subject: 2\r\n\r\ntwo\r\n"),
        (Flags(), b"")]
    assert {mail.received for mail, _ in found} == {InternalDate(1706779800)}
    assert not told


@pytest.mark.parametrize(("name", "content"), [
    ("dovecot-uidlist", b"3 V1700000000 N99 Gabc\n5 W22 :1.a,S=4:2,S\n8 P0001 W9 :2.b\n8 :3.c\nrubbish\n70 :gone\n"),
    ("courierimapuiddb", b"1 1700000000 99\n5 1.a,S=4\n8 2.b\n"),
])
def test_lists_of_uids(tmp_path: Path, name: str, content: bytes) -> None:
    make(tmp_path, {"cur/1.a,S=4:2,FS": b"x\ny\n", "cur/2.b:2,": b"", "new/3.c": b"", name: content})
    source = Maildirs(tmp_path)
    box = source.opened(next(source.boxes()))
    assert (box.uidvalidity, box.uidnext) == (1700000000, 99)
    mails = source.mails(box, print)
    assert [mail.uid for mail in mails] == [5, 8, 0]
    if name.startswith("dovecot"):
        assert [(mail.size, mail.uidl) for mail in mails] == [(22, b""), (9, b"0001"), (-1, b"")]


def test_layouts(tmp_path: Path) -> None:
    flat, nested = tmp_path / "flat", tmp_path / "nested"
    for name in ("", ".Sent", ".A.B", ".&ZeVnLIqe-", ".Gr\u00fc\u00dfe"):
        make(flat / name, {})
    (flat / ".NoMaildir").mkdir()
    for name in ("", "Sent", "A/B", "A", "&ZeVnLIqe-"):
        make(nested / name, {})
    japanese = "\u65e5\u672c\u8a9e"
    assert sorted(box.name for box in Maildirs(flat).boxes()) == ["A/B", "Gr\u00fc\u00dfe", "INBOX", "Sent", japanese]
    assert sorted(box.name for box in Maildirs(nested).boxes()) == ["A", "A/B", "INBOX", "Sent", japanese]
    assert sorted(box.name for box in Maildirs(flat, "Old").boxes())[:2] == ["Old", "Old/A/B"]


def test_odd_ones_stop_nothing(tmp_path: Path) -> None:
    make(tmp_path, {"cur/1.a:2,Sz": b"1", "cur/2:2,": b"2", "cur/3:1,x": b"3", "cur/4:2,SS": b"4"})
    make(tmp_path / ".&bad", {})
    (tmp_path / "cur" / "folder").mkdir()
    (tmp_path / "cur" / "dangling").symlink_to("nowhere")
    (tmp_path / "cur" / ".nfs1").write_bytes(b"x")
    (tmp_path / os.fsdecode(b"cur/5\xff:2,F")).write_bytes(b"5")
    told: list[str] = []
    source = Maildirs(tmp_path, warn=told.append)
    boxes = list(source.boxes())
    assert [box.name for box in boxes] == ["INBOX"]
    found, more = taken(tmp_path)
    assert sorted(data for _, data in found) == [b"1", b"2", b"3", b"4", b"5"]
    assert len(told) == 1 and "modified UTF-7" in told[0]
    assert len(more) == 3
    assert all(any(word in line for line in more) for word in ("no flag for z", "folder", "dangling"))


def test_files_that_go_or_get_other_flags_meanwhile(tmp_path: Path) -> None:
    make(tmp_path, {"cur/1:2,": b"1", "new/2": b"2", "cur/3:2,S": b"3"})
    source, told = Maildirs(tmp_path), list[str]()
    box = source.opened(next(source.boxes()))
    mails = source.mails(box, told.append)
    (tmp_path / "cur/1:2,").rename(tmp_path / "cur/1:2,FS")
    (tmp_path / "new/2").rename(tmp_path / "cur/2:2,S")
    (tmp_path / "cur/3:2,S").unlink()
    assert sorted(b"".join(data) for _, data in source.read(box, mails, told.append)) == [b"1", b"2"]
    assert len(told) == 1 and told[0].endswith("cur/3:2,S: No such file or directory")


@pytest.mark.parametrize(("name", "content"), [
    ("subscriptions", b"V\t2\n\nSent\nA\tB\n&ZeVnLIqe-\n"),
    ("subscriptions", b"Sent\nA.B\n&ZeVnLIqe-\n"),
    ("courierimapsubscribed", b"INBOX.Sent\nINBOX.A.B\nINBOX.&ZeVnLIqe-\n"),
])
def test_subscriptions(tmp_path: Path, name: str, content: bytes) -> None:
    make(tmp_path, {name: content})
    assert Maildirs(tmp_path).subscriptions() == ["Sent", "A/B", "\u65e5\u672c\u8a9e"]


def test_a_link_is_no_message(tmp_path: Path) -> None:
    """Whoever owns the Maildir could have root take a TLS key, or the mail of somebody else, for a message."""
    (tmp_path / "key.pem").write_bytes(b"secret")
    root = make(tmp_path / "mail", {"cur/1.a:2,S": b"Subject: 1\r\n\r\none\r\n"})
    (root / "cur" / "2.b:2,S").symlink_to(tmp_path / "key.pem")
    (root / "dovecot-keywords").symlink_to(tmp_path / "key.pem")
    make(tmp_path / "other", {"cur/3.c:2,S": b"theirs"})
    (root / ".Other").symlink_to(tmp_path / "other", target_is_directory=True)
    (root / "new").rmdir()
    (root / "new").symlink_to(tmp_path / "other" / "cur", target_is_directory=True)
    found, told = taken(root)
    assert [data for _, data in found] == [b"Subject: 1\r\n\r\none\r\n"]
    assert told == [f"{root}/cur/2.b:2,S: is a symbolic link, which is not followed",
                    f"{root}/new: is a symbolic link, which is not followed"]
    assert [box.name for box in Maildirs(root).boxes()] == ["INBOX"]


def test_a_file_that_becomes_a_link_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(b"secret")
    root = make(tmp_path / "mail", {"cur/1.a:2,S": b"one"})
    told: list[str] = []
    source = Maildirs(root, warn=told.append)
    box = source.opened(next(source.boxes()))
    mails = source.mails(box, told.append)
    (root / "cur" / "1.a:2,S").unlink()
    (root / "cur" / "1.a:2,S").symlink_to(tmp_path / "key.pem")
    assert list(source.read(box, mails, told.append)) == []
    assert told == [f"{root}/cur/1.a:2,S: is a symbolic link, which is not followed"]
