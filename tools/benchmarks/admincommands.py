"""What an administrator's commands cost beside those of the peers: `python -m tools.benchmarks.admincommands`, in one
run.

The same messages go to one mailbox of each store, and some to other users. Then each command is run: ours on a store in
a temporary folder that nothing serves, the peers' on servers whose targets are given with --peer: a line of JSON like
that which `tools/bench up` prints, of a server whose configuration is beside its data. Of each: seconds, seconds of
processor time, messages a second, and messages for each second of processor time; the time is that of the command, of
all that descend from it, and of the peer's servers meanwhile.

A command that this onecopy does not have is left out, with a line that says so; so is what did not do its work: after a
backup and after an expiry the messages are counted.

What is compared, where it is not the same by nature:

* reading all messages: Dovecot with its caches removed, Cyrus with -G and ours with --cache parse each one; Cyrus also
  compares it with its digest, as ours does with --deep, which parses nothing.
* a backup: `doveadm backup` writes a second store, ours an archive; Cyrus has no command for it, so there is tar.
* an expiry: half of the messages go from the mailbox. Ours keeps their files for `store.purge_delay`, and Dovecot's
  mdbox keeps their octets until `doveadm purge`. Removing the files, too, is a row of its own: ours with `purge` behind
  it and no delay, Dovecot's with its purge. Cyrus (`ipurge`, then `cyr_expire -X 0`) is in both.
"""

import argparse
import imaplib
import json
import os
import re
import resource
import shutil
import smtplib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from mboxlist import privatefiles
from mboxlist.names import INBOX, MailboxName
from store import offload
from store.delivery import durable
from store.delivery.commit import Target
from store.opening import open_store
from store.settings import Settings
from store.values import InternalDate
from tools.benchmarks.temporaryserver import USER, make_users
from tools.cli.output import print_json, print_table
from tools.cli.storeaccess import init

LARGE = 0                       # the user with the large mailbox
CONNECTIONS = 8
APPENDED = 200              # messages in one APPEND
DATE = re.compile(rb"^Date: \w+, +(\d+) Jan 2024 ([\d:]+)", re.MULTILINE)
CYRUS = "/usr/lib/cyrus/bin"
COLUMNS = ("what", "with", "seconds", "processor", "messages", "per_second", "per_processor_second", "ratio")
FIFTEENTH = 1_705_276_800       # the beginning of 15 January 2024, as Unix time
TICKS = os.sysconf("SC_CLK_TCK")
EXPIRED, REMOVED = "expire half of a mailbox", "expire half, files removed"

Spent = tuple[float, float]     # seconds, seconds of processor time


def message(number: int, size: int) -> bytes:
    """A message like no other, with a part, as most have."""
    head = (f"From: Sender {number % 97} <sender{number % 97}@example.org>\r\nTo: Bench <bench@example.org>\r\n"
            f"Date: Mon, {1 + number % 28} Jan 2024 00:{number % 60:02}:00 +0000\r\n"
            f"Message-ID: <{number}.bench@example.org>\r\nSubject: Message {number} of the bench\r\n"
            f'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b{number}"\r\n\r\n'
            f"--b{number}\r\nContent-Type: text/plain\r\n\r\n")
    tail = f"\r\n--b{number}\r\nContent-Type: text/html\r\n\r\n<p>{number}</p>\r\n--b{number}--\r\n"
    line = f"{number:070}\r\n"
    body = line * max(1, (size - len(head) - len(tail)) // len(line))
    return (head + body + tail).encode()


@frozen
class Plan:
    """How much mail there is to be."""

    messages: int
    users: int
    few: int                    # messages of each other user
    size: int

    def mail(self) -> Iterator[tuple[int, bytes]]:
        """Users and the messages that they get."""
        for number in range(self.messages):
            yield LARGE, message(number, self.size)
        for user in range(1, self.users):
            for number in range(self.few):
                yield user, message(1_000_000 + user * self.few + number, self.size)

    @property
    def half(self) -> int:
        """Messages of the large mailbox with a date up to 14 January."""
        return sum(number % 28 < 14 for number in range(self.messages))

    @property
    def total(self) -> int:
        """All messages."""
        return self.messages + (self.users - 1) * self.few


@define
class Peer:
    """A server that is up: Dovecot or Cyrus."""

    target: dict[str, Any]

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.target["name"])

    @property
    def folder(self) -> Path:
        """Where its configuration is."""
        return Path(self.target["data"]).parent

    def count(self) -> int:
        """The messages that are in the large mailbox. Raises OSError."""
        with imaplib.IMAP4(*self.target["imap"]) as client:
            client.login(self.target["user"] % LARGE, str(self.target["password"]))
            _, found = client.select("INBOX", readonly=True)
            return int(found[0] or 0)

    def fill(self, plan: Plan) -> None:
        """Have all mail there. Raises OSError.

        The large mailbox gets its messages by APPEND, many in one command (RFC 3502), the first one by LMTP, like all
        of the others: first one to each user, one after the other, since servers were seen to fail when several first
        deliveries to a mailbox come at once."""

        def deliver(some: Sequence[tuple[int, bytes]]) -> None:
            with smtplib.LMTP(*self.target["lmtp"]) as client:
                for user, body in some:
                    client.sendmail("sender@example.org", [self.target["user"] % user], body)

        with ThreadPoolExecutor(CONNECTIONS) as threads:
            first: dict[int, bytes] = {}
            every: list[tuple[int, bytes]] = []
            large: list[bytes] = []
            for user, body in plan.mail():
                if first.setdefault(user, body) is body:
                    continue
                if user == LARGE:
                    large.append(body)
                else:
                    every.append((user, body))
            deliver(list(first.items()))
            list(threads.map(deliver, [every[at:at + 500] for at in range(0, len(every), 500)]))
        self.append(large)

    def append(self, bodies: Sequence[bytes]) -> None:
        """These messages, in order, into the large mailbox, each with the date in its header. Raises OSError."""
        with socket.create_connection(self.target["imap"]) as connection, connection.makefile("rb") as answers:

            def until(what: bytes) -> None:
                while line := answers.readline():
                    if line.startswith(what):
                        return
                raise ConnectionError(f"{self.name} does not say {what.decode()}")

            until(b"* ")
            connection.sendall(f"a LOGIN {self.target['user'] % LARGE} {self.target['password']}\r\n".encode())
            until(b"a OK")
            for at in range(0, len(bodies), APPENDED):
                words = [b"b APPEND INBOX"]
                for body in bodies[at:at + APPENDED]:
                    date = DATE.search(body)
                    assert date is not None
                    words.append(b'"%s-Jan-2024 %s +0000" {%d+}\r\n%s' % (date[1], date[2], len(body), body))
                connection.sendall(b" ".join(words) + b"\r\n")
                until(b"b OK")


@define
class Bench:
    """Runs commands, and keeps what they cost."""

    rows: list[dict[str, object]] = field(factory=list)
    left_out: list[str] = field(factory=list)
    runs: int = 3
    only: Sequence[str] = ()

    def wants(self, what: str) -> bool:
        """Whether that is to be run."""
        return not self.only or any(what.startswith(word) for word in self.only)

    def run(self, what: str, who: str, words: Sequence[str], messages: int, *, servers: int = 0,
            runs: int | None = None, before: Callable[[], None] = lambda: None,
            environment: dict[str, str] | None = None, after: Callable[[], str] = lambda: "",
            besides: Spent | None = (0.0, 0.0)) -> Spent | None:
        """Run a command some times; the run with the least processor time counts, and what it took, or None. `servers`:
        the pid of those that work for it; `after` says what it has not done; `besides` is what another command took
        that did the first part of the work, or None when it did not."""
        if not self.wants(what) or besides is None:
            return None
        best: Spent | None = None
        for _ in range(runs or self.runs):
            before()
            children, theirs = _children(), processor(servers)
            begun = time.perf_counter()
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  env={**_plain(), **(environment or {})})
            took = time.perf_counter() - begun
            spent = _children() - children + max(0.0, processor(servers) - theirs)
            if done.returncode not in (0, 1):
                self.left_out.append(f"{what}, {who}: status {done.returncode}: {done.stderr.decode()[-200:].strip()}")
                return None
            if wrong := after():
                self.left_out.append(f"{what}, {who}: {wrong}")
                return None
            if best is None or spent < best[1]:
                best = took, spent
        assert best is not None
        self.add(what, who, (best[0] + besides[0], best[1] + besides[1]), messages)
        return best

    def add(self, what: str, who: str, spent: Spent, messages: int) -> None:
        """A row of what that took."""
        if self.wants(what):
            self.rows.append({"what": what, "with": who, "seconds": round(spent[0], 3), "processor": round(spent[1], 3),
                              "messages": messages, "per_second": round(messages / spent[0]),
                              "per_processor_second": round(messages / max(spent[1], 0.001))})

    def compare(self) -> None:
        """How many times as much ours does for a second of processor time as the best peer does at the same."""
        for row in self.rows:
            peers = [int(str(each["per_processor_second"])) for each in self.rows
                     if each["what"] == row["what"] and not str(each["with"]).startswith(("onecopy", "tar"))]
            if str(row["with"]).startswith("onecopy") and peers:
                row["ratio"] = round(int(str(row["per_processor_second"])) / max(peers), 2)


def _plain() -> dict[str, str]:
    """Our environment without the host's options, in which Python may keep what it has compiled, as where it is
    installed."""
    return {"ONECOPY_CONFIG": os.devnull, **{name: value for name, value in os.environ.items()
                                             if name != "PYTHONDONTWRITEBYTECODE" and not name.startswith("ONECOPY_")}}


def _children() -> float:
    """Seconds of processor time of all that we started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor(pid: int) -> float:
    """Seconds of processor time of a process, all that descend from it, and those of them that have ended."""
    if not pid:
        return 0.0
    total, pids = 0.0, [pid]
    for each in pids:
        try:
            fields = privatefiles.read_named(f"/proc/{each}/stat").decode().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / TICKS
            for children in Path(f"/proc/{each}/task").glob("*/children"):
                pids += map(int, privatefiles.read_named(children).split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


# Ours

def fill(root: Path, plan: Plan) -> None:
    """A store with all mail, as a server leaves it."""
    init(root)
    make_users(root, plan.users)
    store = open_store(root, Settings(special_mailboxes=(), sync="none"))
    try:
        entries = {user: store.entry(MailboxName(USER % user, INBOX)) for user in range(plan.users)}
        for number, (user, body) in enumerate(plan.mail()):
            staged = store.stage(entries[user])
            staged.write(body)
            offload.now(durable.deliver(store, staged, [Target(entries[user])], InternalDate(1_704_067_200 + number)))
    finally:
        store.close()


def ours(bench: Bench, folder: Path, plan: Plan) -> None:
    """Our commands."""
    root, scratch = folder / "store", folder / "scratch"
    program = [sys.executable, "-m", "tools.cli.program"]
    environment = {"ONECOPY_ROOT": str(root), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    inbox = f"user/{USER % LARGE}/INBOX"

    def run(what: str, who: str, words: Sequence[str], messages: int, runs: int | None = None,
            more: dict[str, str] | None = None, before: Callable[[], None] = lambda: None,
            after: Callable[[], str] = lambda: "") -> None:
        if _has(program, words):
            bench.run(what, who, [*program, *words], messages, runs=runs, before=before, after=after,
                      environment={**environment, **(more or {})})
        else:
            bench.left_out.append(f"{what}: this onecopy has no `onecopy {words[0]}`")

    run("reconstruct a mailbox", "onecopy reconstruct", ["reconstruct", inbox], plan.messages)
    run("reconstruct, reading all messages", "onecopy reconstruct --cache", ["reconstruct", inbox, "--cache"],
        plan.messages)
    run("reconstruct, reading all messages", "onecopy reconstruct --deep", ["reconstruct", inbox, "--deep"],
        plan.messages)
    run("recount quotas", "onecopy reconstruct --quota", ["reconstruct", "--quota"], plan.total)
    run("back up a user", "onecopy backup", ["backup", "--user", USER % LARGE, "--compress", "none", "--to",
                                             str(scratch)], plan.messages, before=lambda: _remove(scratch))
    second = folder / "second"
    run("restore a user", "onecopy restore", ["restore", str(scratch), "--root", str(second)], plan.messages, 1,
        after=lambda: _differs(_count(second), plan.messages))
    rules = folder / "rules"
    privatefiles.write(rules, f"half.folderpattern: user/{USER % LARGE}/%\n"
                              f"half.messagecount: {plan.messages - plan.half}\n")
    expiring = {"ONECOPY_STORE_EXPIRE_RULES": str(rules), "ONECOPY_STORE_PURGE_DELAY": "0"}
    run(EXPIRED, "onecopy expire run", ["expire", "run", USER % LARGE], plan.half, 1, expiring,
        after=lambda: _differs(_count(root), plan.messages - plan.half))
    if not bench.wants(REMOVED):
        return
    _remove(root)
    fill(root, plan)
    both = f"{' '.join([*program, 'expire', 'run', USER % LARGE])} && {' '.join([*program, 'purge'])}"
    bench.run(REMOVED, "onecopy expire run, purge", ["sh", "-c", both], plan.half, runs=1,
              environment={**environment, **expiring},
              after=lambda: _differs(_count(root), plan.messages - plan.half)
              or _differs(_files(root), plan.total - plan.half))


def _count(root: Path) -> int:
    """The messages in the large mailbox."""
    store = open_store(root)
    try:
        return len(store.open_mailbox(store.entry(MailboxName(USER % LARGE, INBOX))).rows)
    finally:
        store.close()


def _files(root: Path) -> int:
    """The message files."""
    return sum(1 for _ in root.glob("partitions/*/messages/?/??/*"))


def _differs(found: int, wanted: int) -> str:
    return "" if found == wanted else f"{found} messages are there afterwards, not {wanted}"


def _has(program: Sequence[str], words: Sequence[str]) -> bool:
    """Whether there is that command."""
    return subprocess.run([*program, words[0], "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env={**_plain(), "PYTHONPATH": str(Path(__file__).resolve().parents[2])}).returncode == 0


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# The peers

def dovecot(bench: Bench, peer: Peer, scratch: Path, plan: Plan) -> None:
    """Dovecot's commands: doveadm(1)."""
    doveadm, user = ["doveadm", "-c", str(peer.folder / "dovecot.conf")], USER % LARGE
    pid = int(peer.target["pid"])
    copy = scratch / "dovecot-copy"
    bench.run("reconstruct a mailbox", "doveadm force-resync", [*doveadm, "force-resync", "-u", user, "INBOX"],
              plan.messages, servers=pid)
    bench.run("reconstruct, reading all messages", "doveadm fetch, its cache removed", [
        *doveadm, "fetch", "-u", user, "imap.envelope imap.bodystructure", "mailbox", "INBOX"], plan.messages,
        servers=pid, before=lambda: _forget_cache(Path(peer.target["data"]) / user))
    bench.run("recount quotas", "doveadm quota recalc", [*doveadm, "quota", "recalc", "-A"], plan.total, servers=pid)

    def empty() -> None:
        _remove(copy)
        privatefiles.make_folder(copy)
        privatefiles.make_private(copy, _owner(Path(peer.target["data"])))

    def copied() -> str:
        done = subprocess.run([*doveadm, "-o", f"mail_location=mdbox:{copy}/mail", "mailbox", "status", "-u", user,
                               "-t", "messages", "INBOX"], capture_output=True, text=True, check=False)
        return _differs(int(done.stdout.rpartition("=")[2] or 0), plan.messages)

    bench.run("back up a user", "doveadm backup", [*doveadm, "backup", "-u", user, f"mdbox:{copy}/mail"], plan.messages,
              servers=pid, before=empty, after=copied)
    bench.run("back up a user", "tar of Dovecot's files", ["tar", "-cf", str(scratch / "dovecot.tar"), "-C",
                                                           peer.target["data"], user], plan.messages)
    expunge = [*doveadm, "expunge", "-u", user, "mailbox", "INBOX", "uid", f"1:{plan.half}"]
    spent = bench.run(EXPIRED, "doveadm expunge", expunge, plan.half, servers=pid, runs=1,
                      after=lambda: _differs(peer.count(), plan.messages - plan.half))
    # The messages are gone only once: what both take together is what each of them takes.
    bench.run(REMOVED, "doveadm expunge, doveadm purge", [*doveadm, "purge", "-u", user], plan.half, servers=pid,
              runs=1, besides=spent, after=lambda: _is_freed(Path(peer.target["data"]) / user, plan))


def _forget_cache(mail: Path) -> None:
    for path in mail.rglob("dovecot.index.cache*"):
        path.unlink()


def _is_freed(mail: Path, plan: Plan) -> str:
    """Whether the octets of what was expunged have gone: "", or what is wrong."""
    most = plan.size * (plan.messages - plan.half) * 5 // 4
    octets = sum(path.stat().st_size for path in mail.rglob("m.*"))
    return "" if octets <= most else f"{octets} octets of mail are there afterwards"


def _owner(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_uid, status.st_gid


def cyrus(bench: Bench, peer: Peer, scratch: Path, plan: Plan) -> None:
    """Those of Cyrus: reconstruct(8), quota(8), ipurge(8), cyr_expire(8)."""
    pid, conf = int(peer.target["pid"]), str(peer.folder / "imapd.conf")
    user = f"user/{USER % LARGE}"
    uid, gid = _owner(Path(peer.target["data"]))

    def words(program: str, *rest: str) -> list[str]:
        return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", f"{CYRUS}/{program}", "-C", conf,
                *rest]

    bench.run("reconstruct a mailbox", "cyrus reconstruct", words("reconstruct", user), plan.messages, servers=pid)
    bench.run("reconstruct, reading all messages", "cyrus reconstruct -G", words("reconstruct", "-G", user),
              plan.messages, servers=pid)
    bench.run("recount quotas", "cyrus quota -f", words("quota", "-f"), plan.total, servers=pid)
    bench.run("back up a user", "tar of Cyrus's files", ["tar", "-cf", str(scratch / "cyrus.tar"), "-C",
                                                         peer.target["data"], "."], plan.total)
    days = int(time.time() - FIFTEENTH) // 86400 + 1        # of that day itself no message is so old
    spent = bench.run(EXPIRED, "cyrus ipurge, cyr_expire", [
        "sh", "-c", f"{' '.join(words('ipurge', '-f', '-d', str(days), user))}; "
                    f"{' '.join(words('cyr_expire', '-X', '0', '-D', '0', '-E', '1', '-u', USER % LARGE))}"],
        plan.half, servers=pid, runs=1, after=lambda: _differs(peer.count(), plan.messages - plan.half))
    if spent is not None:
        bench.add(REMOVED, "cyrus ipurge, cyr_expire", spent, plan.half)


PEERS: dict[str, Callable[[Bench, Peer, Path, Plan], None]] = {"dovecot": dovecot, "cyrus": cyrus}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser("tools.benchmarks.admincommands", description=__doc__.split("\n")[0])
    parser.add_argument("--messages", type=int, default=20_000, metavar="N", help="of the large mailbox (20000)")
    parser.add_argument("--users", type=int, default=50, metavar="N", help="(50)")
    parser.add_argument("--few", type=int, default=20, metavar="N", help="messages of each other user (20)")
    parser.add_argument("--size", type=int, default=4096, metavar="OCTETS", help="of a message (4096)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="of each command; the cheapest counts (3)")
    parser.add_argument("--only", action="append", default=[], metavar="WHAT",
                        help="what begins with this: reconstruct, recount, back, restore, expire; repeatable (all)")
    parser.add_argument("--peer", type=Path, action="append", default=[], metavar="FILE",
                        help="the target of a peer on which there is no mail yet (but see --filled); can be repeated")
    parser.add_argument("--filled", action="store_true", help="the peers have this mail already, from an earlier run")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to make the temporary folder")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    plan = Plan(arguments.messages, arguments.users, arguments.few, arguments.size)
    bench = Bench(runs=arguments.runs, only=arguments.only)
    folder = privatefiles.new_folder("onecopy-bench-", arguments.dir)
    try:
        privatefiles.share(folder, 0o711, "the servers in it run as users of their own")
        print(f"{socket.gethostname()}: {os.cpu_count()} processors; {plan.total} messages of {plan.size} octets",
              file=sys.stderr)
        fill(folder / "store", plan)
        ours(bench, folder, plan)
        for path in arguments.peer:
            peer = Peer(json.loads(privatefiles.read_text(path)))
            if not arguments.filled:
                peer.fill(plan)
            PEERS[peer.name](bench, peer, folder, plan)
    finally:
        shutil.rmtree(folder)
    bench.compare()
    order = list(dict.fromkeys(str(row["what"]) for row in bench.rows))
    bench.rows.sort(key=lambda row: order.index(str(row["what"])))
    if arguments.json:
        print_json({"figures": bench.rows, "left_out": bench.left_out})
    else:
        print_table(bench.rows, COLUMNS)
        for line in bench.left_out:
            print(f"left out: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
