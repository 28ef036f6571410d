"""A store of an older version, with something of everything in it, and what clients saw in it then.

    python -m tests.support.stores.oldstore ARCHIVE PROGRAM...

makes tests/data/store-format-N.tar.xz: N is the format of its partitions, and each was made by the last revision that
had it. PROGRAM is the `onecopy` of that revision as words of a command, which end with -m and its module
(`tools.cli.program` since commands lie in tools/cli):

    git worktree add /tmp/older REVISION
    python -m tests.support.stores.oldstore A.tar.xz \\
        env PYTHONPATH=/tmp/older $PWD/.venv/bin/python -P -m tools.cli.program

Everything is done by commands and protocols, so that this script works with any version. Annotations alone, which no
command and no client can set, are made by _ANNOTATE. Shared memory of the databases (`__db.*`) and empty folders of
message files are left out.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.clients.pop3 import Pop3
from tests.support.processes import wait
from tests.support.processes.environment import plain
from tests.support.processes.ports import free_port

USERS = ("alice", "bob", "carol")
SECOND = "second"           # the partition where carol is
SEEN, SNAPSHOT = "seen.json", "snapshot.json"       # beside the store: what was seen at the end, and at the snapshot
ANNOTATE = ("/private/comment", b"of alice", "alice")
OPTIONS = {"LMTP_DELIVERED_TO": "yes", "STORE_CACHE": "4M", "STORE_DATABASE_LOCKS": "20000",
           "IMAP_TLS_PORT": "0", "POP3_TLS_PORT": "0", "LMTP_SOCKET": ""}
_ANNOTATE = f"""
import sys
from importlib import import_module
from pathlib import Path
from mboxlist.names import MailboxName
from store.settings import Settings
try:
    from store.opening import open_store
except ImportError:
    from store.store import Store as open_store
for place in "store.mailboxes.authorization", "store.rights":
    try:
        annotate = import_module(place).annotate
        break
    except ImportError:
        pass
store = open_store(Path(sys.argv[1]), Settings(cache=4 << 20, database_locks=20_000))
annotate(store, store.entry(MailboxName.parse("user/alice/Work")), *{ANNOTATE!r})
store.close()
"""


def mail(subject: str, text: str = "Hello.\r\n", *, header: str = "") -> bytes:
    """A message, of two parts."""
    return (f"From: dave@example.org\r\nTo: all@example.org\r\nSubject: {subject}\r\n"
            f"Message-ID: <{subject}@example.org>\r\nDate: Mon, 6 Jul 2026 10:00:00 +0200\r\n"
            f"{header}MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
            f"--b\r\n\r\n{text}\r\n--b\r\nContent-Type: text/html\r\n\r\n<p>{text}</p>\r\n--b--\r\n"
            ).encode()


def seen_by_all(imap: int, pop3: int) -> dict[str, Any]:
    """What each user sees, with clients on these ports."""
    return {user: _seen_by(imap, pop3, user) for user in USERS}


def _seen_by(imap: int, pop3: int, user: str) -> dict[str, Any]:
    with Imap(imap, user) as client:
        names = sorted(each.text.rsplit(b" ", 1)[1].strip(b'"').decode() for each in client.ok('LIST "" "*"').untagged
                       if b"\\Noselect" not in each.text and b"\\NonExistent" not in each.text)
        mailboxes = {name: _mailbox(client, name) for name in names}
        subscribed = sorted(each.text.decode() for each in client.ok('LSUB "" "*"').untagged)
        quota = sorted(each.text.decode() for each in client.ok("GETQUOTAROOT INBOX").untagged)
        acl = [each.text.decode() for name in names if not name.startswith("user/")
               for each in client.ok(f'GETACL "{name}"').untagged]
    with Pop3(pop3, user) as client:
        return {"mailboxes": mailboxes, "subscribed": subscribed, "quota": quota, "acl": acl,
                "uidl": client.lines("UIDL")}


def _mailbox(client: Imap, name: str) -> dict[str, Any]:
    validity, count = client.select(name, examine=True)
    messages = {}
    if count:
        octets = client.messages()
        said = client.ok("UID FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)")
        for each in (each for each in said.untagged if b" FETCH " in each.text):
            uid = int(each.text.partition(b"UID ")[2].split()[0].rstrip(b")"))
            text = each.text.partition(b" FETCH ")[2].replace(rb" \Recent", b"").replace(rb"\Recent", b"").decode()
            messages[str(uid)] = [text, sha256(octets[uid]).hexdigest()]
    return {"uidvalidity": validity, "messages": messages}


def make(archive: Path, program: Sequence[str]) -> None:
    """A store of that version, packed."""
    with tempfile.TemporaryDirectory(prefix="onecopy-old-") as folder:
        _fill(Path(folder), program)
        for path in Path(folder).rglob("__db.*"):
            path.unlink()
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for path in sorted(Path(folder).rglob("*")):
                if not (path.is_dir() and _holds_messages(path) and not any(path.iterdir())):
                    tar.add(path, path.relative_to(folder), recursive=False)


def _holds_messages(path: Path) -> bool:
    return path.parent.name == "messages" or path.parent.parent.name == "messages"


def unpack(archive: Path, folder: Path) -> None:
    """The store in `folder`/store, and what was seen in it beside it."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    for messages in (folder / "store" / "partitions").glob("*/messages"):
        for number in range(16 * 256):
            (messages / f"{number >> 8:x}" / f"{number & 255:02x}").mkdir(parents=True, exist_ok=True)


def _fill(folder: Path, program: Sequence[str]) -> None:
    root = folder / "store"
    ports = {name: free_port() for name in ("imap", "pop3", "lmtp")}
    environment = {**plain(), **{f"ONECOPY_{name}": value for name, value in OPTIONS.items()},
                   "ONECOPY_ROOT": str(root),
                   **{f"ONECOPY_{name.upper()}_PORT": str(port) for name, port in ports.items()},
                   **{f"ONECOPY_{name.upper()}_ADDRESS": "127.0.0.1" for name in ports}}

    def onecopy(*words: str, octets: bytes = b"") -> None:
        subprocess.run([*program, *words], input=octets, env=environment, cwd=folder, check=True)

    onecopy("init")
    onecopy("partition", "add", SECOND)
    onecopy("user", "add", "--password-stdin", *USERS[:2], octets=b"secret\n")
    onecopy("user", "add", "--password-stdin", "--partition", SECOND, USERS[2], octets=b"secret\n")
    onecopy("quota", "set", "alice", "--octets", "10M", "--messages", "1000")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*program, "serve"], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        for port in ports.values():
            wait.until(lambda port=port: _answers(port), "it answers", pid=server.pid, limit=180)     # type: ignore[misc]
        _use(ports)
        onecopy("uidl", "import", "alice", "-", octets=b"1 OLD-1\n3 OLD-3\n")
        onecopy("snapshot", "create")
        (folder / SNAPSHOT).write_text(json.dumps(seen_by_all(ports["imap"], ports["pop3"]), indent=1))
        _use_more(ports)
    finally:
        server.terminate()
        status = server.wait(180)
    assert status == 0, (folder / "log").read_text()
    subprocess.run([*program[:-2], "-c", _ANNOTATE, root], env=environment, cwd=folder, check=True)
    onecopy("check")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*program, "serve"], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        for port in ports.values():
            wait.until(lambda port=port: _answers(port), "it answers", pid=server.pid, limit=180)     # type: ignore[misc]
        (folder / SEEN).write_text(json.dumps(seen_by_all(ports["imap"], ports["pop3"]), indent=1))
    finally:
        server.terminate()
        server.wait(180)
    (folder / "log").unlink()


def _answers(port: int) -> bool:
    try:
        with Imap(port):
            return True
    except OSError:
        return False


def _use(ports: dict[str, int]) -> None:
    with Lmtp(ports["lmtp"]) as lmtp:
        for number in range(4):
            replies = lmtp.deliver("dave@example.org", USERS, mail(f"all-{number}"))
            assert {reply.code for reply in replies} == {250}
        lmtp.deliver("dave@example.org", ["alice"], mail("large", "x" * 70 + "\r\n" * 3000))
    with Imap(ports["imap"], "alice") as alice:
        for name in ("Work", "Work/2026", "Team", "Old"):
            alice.ok(f'CREATE "{name}"')
        for number in range(6):
            assert alice.append("Work", mail(f"work-{number}")).status == "OK"
        assert alice.append("Old", mail("old")).status == "OK"
        alice.ok("SUBSCRIBE Work")
        alice.ok("SUBSCRIBE Team")
        alice.ok("SETACL Team bob lrswi")
        alice.select("Work")
        alice.ok(r"UID STORE 1 +FLAGS (\Seen \Flagged Paid)")
        alice.ok(r"UID STORE 2:3 +FLAGS (\Answered $Label1 later)")
        alice.ok("UID COPY 1:3 Team")
        alice.ok("UID COPY 4 Work/2026")
        alice.ok(r"UID STORE 5 +FLAGS (\Deleted)")
        alice.ok("UID EXPUNGE 5")
    with Imap(ports["imap"], "bob") as bob:
        bob.select("user/alice/Team")
        bob.ok(r"UID STORE 2 +FLAGS (\Seen)")
        bob.ok("UID COPY 1 INBOX")


def _use_more(ports: dict[str, int]) -> None:
    """After the snapshot."""
    with Imap(ports["imap"], "alice") as alice:
        alice.ok("DELETE Old")
        alice.select("INBOX")
        alice.ok(r"UID STORE 2 +FLAGS (\Deleted)")
        alice.ok("UID EXPUNGE 2")
        alice.select("Work")
        alice.ok(r"UID STORE 1 FLAGS (Paid)")
    with Lmtp(ports["lmtp"]) as lmtp:
        assert {each.code for each in lmtp.deliver("dave@example.org", USERS, mail("after"))} == {250}


if __name__ == "__main__":
    made = Path(sys.argv[1]).absolute()
    make(made, [shutil.which(sys.argv[2]) or sys.argv[2], *sys.argv[3:]])
    print(made, os.path.getsize(made))
