"""Real mail clients that fetch whole mailboxes: mbsync, fetchmail and curl. Each gives back the octets it got.

What a client itself does to a message is undone here, and nothing more: see each function.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

LIMIT = 300         # seconds

_TUID = re.compile(rb"^X-TUID: [!-~]{12}\r?\n", re.MULTILINE)


def _run(command: Sequence[str | Path], folder: Path, octets: bytes = b"", status: tuple[int, ...] = (0,)) -> bytes:
    done = subprocess.run(command, cwd=folder, input=octets, capture_output=True, timeout=LIMIT, check=False,
                          env={"PATH": os.environ["PATH"], "HOME": str(folder), "FETCHMAILHOME": str(folder),
                               "LC_ALL": "C.UTF-8"})
    assert done.returncode in status, \
        f"{shlex.join(map(str, command))}: status {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout


def mbsync(port: int, users: Sequence[str], password: str, folder: Path) -> dict[str, list[bytes]]:
    """IMAP into a Maildir each. mbsync adds a header field X-TUID and writes the system's line ends."""
    folder.mkdir()
    config = folder / "mbsyncrc"
    config.write_text("".join(f"""\
IMAPStore {user}-far
Host 127.0.0.1
Port {port}
User {user}
Pass {password}
SSLType None
AuthMechs *

MaildirStore {user}-near
Path {folder}/{user}/
Inbox {folder}/{user}/INBOX

Channel {user}
Far :{user}-far:
Near :{user}-near:
Patterns INBOX
Create Near
Sync Pull
SyncState *

""" for user in users))
    for user in users:
        (folder / user).mkdir()
    _run(["mbsync", "--quiet", "--config", config, *users], folder)
    return {user: [_TUID.sub(b"", file.read_bytes(), count=1).replace(b"\n", b"\r\n")
                   for part in ("new", "cur") for file in sorted((folder / user / "INBOX" / part).iterdir())]
            for user in users}


def fetchmail(port: int, users: Sequence[str], password: str, folder: Path) -> dict[str, list[bytes]]:
    """POP3, all messages, left on the server. fetchmail writes the system's line ends."""
    folder.mkdir()
    keep = folder / "keep"
    keep.write_text('#!/bin/sh\nexec cat >"$(mktemp "$1/XXXXXXXXXX")"\n')
    keep.chmod(0o755)
    for user in users:
        (folder / user).mkdir()
        config = folder / f"{user}.fetchmailrc"
        config.touch(0o600)
        config.write_text(f"""\
set invisible
poll 127.0.0.1 service {port} protocol POP3 auth password no dns
    user "{user}" password "{password}" sslproto "" fetchall keep no rewrite pass8bits no mimedecode
    mda "{keep} {folder / user}"
""")
        # status 1: there was no mail
        _run(["fetchmail", "--nodetach", "--silent", "--fetchmailrc", config, "--pidfile", folder / "pid"], folder,
             status=(0, 1))
    return {user: [file.read_bytes().replace(b"\n", b"\r\n") for file in (folder / user).iterdir()] for user in users}


def curl(port: int, users: Sequence[str], password: str, folder: Path) -> dict[str, dict[int, bytes]]:
    """IMAP URLs, a UID each. Octets as they came."""
    folder.mkdir()
    found: dict[str, dict[int, bytes]] = {}
    for user in users:
        (folder / user).mkdir()
        login = ["--silent", "--show-error", "--fail", "--max-time", str(LIMIT), "--user", f"{user}:{password}"]
        answer = _run(["curl", *login, "--request", "UID SEARCH ALL", f"imap://127.0.0.1:{port}/INBOX"], folder)
        uids = [int(uid) for uid in answer.removeprefix(b"* SEARCH").split()]
        config = "".join(f'url = "imap://127.0.0.1:{port}/INBOX;UID={uid}"\noutput = "{user}/{uid}"\n' for uid in uids)
        if uids:
            _run(["curl", *login, "--config", "-"], folder, config.encode())
        found[user] = {uid: (folder / user / str(uid)).read_bytes() for uid in uids}
    return found
