"""What is written can be read: by Python's own readers of mailboxes, and by the import here."""

import mailbox
import os
import subprocess
from pathlib import Path

import pytest

from mboxlist.names import MailboxName
from store.mailboxes import namespace, subscribing
from store.store import Store
from store.values import Flag, Flags, InternalDate
from tests.support.stores.stores import deliver
from tools.transfer.exportmail import MailExport
from tools.transfer.importmail import MailImport
from tools.transfer.maildir import Maildirs
from tools.transfer.mbox import MboxFiles

TRACE = b"Return-Path: <sender@example.org>\r\nReceived: from x\r\n"
CONTENTS = [b"From: A <a@example.org>\r\nSubject: 1\r\n\r\none\r\nFrom here\r\n\r\n>From there\r\n>>>From\r\nFrom",
            b"\r\nno header\r\n", b"Subject: raw \xe4 \xff\r\n\r\n" + b"long " * 60_000 + b"\r\n.\r\n",
            b"Subject: no text"]
FLAGS = [Flags(Flag.SEEN | Flag.ANSWERED, ("work", "$Forwarded")), Flags(Flag.FLAGGED | Flag.DELETED), Flags(),
         Flags(Flag.DRAFT, ("$Junk",))]
DATE = 1706779800


@pytest.fixture
def filled(store: Store) -> Store:
    namespace.create_mailbox(store, MailboxName("alice", "Old.2024/\u65e5"))
    for number, (content, flags) in enumerate(zip(CONTENTS, FLAGS, strict=True)):
        for name in ("user/alice/INBOX", "user/alice/Old.2024/\u65e5"):
            deliver(store, content, name, flags=flags, received=InternalDate(DATE + number, 60),
                    trace=TRACE if number == 1 and name.endswith("INBOX") else b"")
    subscribing.subscribe(store, "alice", "Old.2024/\u65e5")
    return store


def leave(store: Store, folder: Path, form: str, **options: bool | str) -> list[str]:
    told: list[str] = []
    leaving = MailExport(store, folder, told.append, form, **options)      # type: ignore[arg-type]
    for entry in store.names("alice"):
        leaving.mailbox(entry)
    leaving.subscriptions("alice")
    return told


def octets(store: Store, user: str, path: str) -> list[tuple[bytes, int, int, tuple[str, ...]]]:
    view, found = store.open_mailbox(store.entry(MailboxName(user, path))), []
    for row in view.rows:
        with store.open_message(view.entry, row) as file:
            found.append((file.read(0, file.size), int(row["received"]), int(row["flags"]),
                          tuple(sorted(view.keyword_names(int(row["keywords"]))))))
    return found


def test_maildir_read_by_python(filled: Store, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert leave(filled, folder, "maildir") == [
        "Old.2024/\u65e5: . separates levels there, so it becomes _ (--layout fs keeps it)"]
    there = mailbox.Maildir(folder, create=False)
    assert there.list_folders() == ["Old_2024.&ZeU-"]
    found = {there.get_bytes(key): (sorted(there.get_message(key).get_flags()), os.stat(
        folder / there._lookup(key)).st_mtime) for key in there.keys()}          # type: ignore[attr-defined]
    assert found == {(TRACE if number == 1 else b"").replace(b"\r\n", b"\n") + content.replace(b"\r\n", b"\n"):
                     (letters, DATE + number) for number, (content, letters) in enumerate(zip(
                         CONTENTS, [["P", "R", "S", "a", "b"], ["F", "T"], [], ["D", "c"]], strict=True))}
    assert (folder / "dovecot-keywords").read_bytes() == b"0 work\n1 $Forwarded\n2 $Junk\n"
    assert (folder / "subscriptions").read_bytes() == b"Old.2024.&ZeU-\n"


def test_mbox_read_by_python(filled: Store, tmp_path: Path) -> None:
    assert leave(filled, tmp_path / "out", "mbox") == []
    there = mailbox.mbox(tmp_path / "out" / "INBOX.mbox", create=False)
    messages = [there.get_message(key) for key in there.keys()]
    assert len(messages) == 4
    assert [sorted(message.get_flags()) for message in messages] == [
        sorted("ROA"), sorted("OFD"), ["O"], sorted("OT")]
    assert [message.get_from() for message in messages] == [
        "a@example.org Thu Feb  1 09:30:00 2024", "sender@example.org Thu Feb  1 09:30:01 2024",
        "MAILER-DAEMON Thu Feb  1 09:30:02 2024", "MAILER-DAEMON Thu Feb  1 09:30:03 2024"]
    assert messages[0]["X-Keywords"] == "work $Forwarded" and messages[3]["X-Keywords"] == "$Junk"
    assert there.get_bytes(0).endswith(b"one\n>From here\n\n>>From there\n>>>From\nFrom\n")
    assert (tmp_path / "out" / "Old.2024" / "&ZeU-.mbox").exists()


def test_mutt_reads_both(filled: Store, tmp_path: Path) -> None:
    for form in ("mbox", "maildir"):
        leave(filled, tmp_path / form, form)
        path = tmp_path / form / ("INBOX.mbox" if form == "mbox" else "")
        said = subprocess.run(["mutt", "-n", "-F", "/dev/null", "-R", "-f", path, "-e", "set sort=date-received "
                               "index_format='%s'; push <exit>"], stdin=subprocess.DEVNULL, capture_output=True,
                              env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "TERM": "dumb"}, timeout=180)
        assert b"is not a mailbox" not in said.stderr + said.stdout


@pytest.mark.parametrize("options", [{}, {"crlf": True}])
@pytest.mark.parametrize("form", ["maildir", "mbox"])
def test_out_and_in_again(filled: Store, tmp_path: Path, form: str, options: dict[str, bool]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert leave(filled, folder, form, layout="fs", uids=True, **options) == []
    told: list[str] = []
    source = Maildirs(folder, layout="fs") if form == "maildir" else MboxFiles(folder)
    taken = list(MailImport(filled, "bob", "primary", source, told.append).all())
    assert not told and all(each.well and each.uids == "kept" for each in taken)
    for path in ("INBOX", "Old.2024/\u65e5"):
        wanted = octets(filled, "alice", path)
        if form == "mbox":          # where each message ends with a line end, and its header with an empty line
            wanted = [(_whole(content), *rest) for content, *rest in wanted]
        assert octets(filled, "bob", path) == wanted
    assert subscribing.subscriptions(filled, "bob") == ["Old.2024/\u65e5"]


def _whole(content: bytes) -> bytes:
    content += b"" if content.endswith(b"\n") else b"\r\n"
    return content if b"\r\n\r\n" in content or content.startswith(b"\r\n") else content + b"\r\n"


def test_a_second_time_nothing_is_written_but_what_is_new(filled: Store, tmp_path: Path) -> None:
    for form in ("maildir", "mbox"):
        folder, told = tmp_path / form, list[str]()
        leave(filled, folder, form)
        left = MailExport(filled, folder, told.append, form).mailbox(filled.entry(MailboxName("alice", "INBOX")))
        assert (left.messages, left.written) == (4, 0)
    deliver(filled, b"Subject: new\r\n\r\n", "user/alice/INBOX")
    whole, = (path for path in (tmp_path / "maildir/cur").iterdir() if path.stat().st_size == len(CONTENTS[3]))
    whole.write_bytes(b"Subject")           # as a crash of the machine may leave it
    left = MailExport(filled, tmp_path / "maildir", told.append).mailbox(filled.entry(MailboxName("alice", "INBOX")))
    assert (left.messages, left.written) == (5, 2)
    assert len(list((tmp_path / "maildir/cur").iterdir())) == 5


def test_what_does_not_come_back_is_said(store: Store, tmp_path: Path) -> None:
    for text in (b"lf\nhere\r\n", b"cr\rhere\r\n", b""):
        deliver(store, b"Subject: bare\r\n\r\n" + text, "user/alice/INBOX")
    for form in ("maildir", "mbox"):
        told = leave(store, tmp_path / form, form)
        assert [line.partition(":")[2].partition(":")[0] for line in told] == [" UID 1", " UID 2"]
    assert leave(store, tmp_path / "exact", "maildir", crlf=True) == []
    there = [path.read_bytes() for path in (tmp_path / "exact/cur").iterdir()]
    assert b"Subject: bare\r\n\r\nlf\nhere\r\n" in there


def test_nothing_is_written_through_a_planted_link(filled: Store, tmp_path: Path) -> None:
    """Whoever can write to the folder of an export has nothing written elsewhere by it, and reads nothing."""
    victim, outside = tmp_path / "victim", tmp_path / "outside"
    victim.write_bytes(b"kept")
    outside.mkdir()
    out = tmp_path / "mbox"
    out.mkdir()
    for name in ("INBOX.mbox", "INBOX.mbox.part", "INBOX.mbox.state", "INBOX.mbox.state.new", ".subscriptions"):
        (out / name).symlink_to(victim)
    leave(filled, out, "mbox")
    assert not any(path.is_symlink() for path in out.iterdir())
    out = tmp_path / "maildir"
    out.mkdir()
    (out / "cur").symlink_to(outside, target_is_directory=True)
    with pytest.raises(OSError, match="symbolic link"):
        leave(filled, out, "maildir")
    assert victim.read_bytes() == b"kept" and list(outside.iterdir()) == []


@pytest.mark.parametrize("form", ["mbox", "maildir"])
def test_only_the_owner_reads_an_export(filled: Store, tmp_path: Path, form: str) -> None:
    before = os.umask(0)
    try:
        leave(filled, tmp_path / "out", form)
    finally:
        os.umask(before)
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
