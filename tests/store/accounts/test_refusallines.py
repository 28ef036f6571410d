"""The lines by which other programs know who was refused: their form, and that nobody can forge one. fail2ban's own
programs read them with the filter and the jail that we ship."""

import logging
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.accounts import refusallines
from store.accounts.refusallines import (
    ADDRESS,
    CANCELLED,
    INVALID,
    LIMIT,
    LOGIN,
    PROXY,
    REPEATED,
    RIGHT,
    SLOWED,
    UNAVAILABLE,
    ended,
    refused,
)
from store.accounts.rejectedlogins import AGAIN, LINES, MOST_QUIET, WRONG, RejectedLogins
from store.deliverylog import DeliveryLog
from store.errors import Problem, StoreError
from tests.support import ROOT
from tools.server.process.logs import Line

SHIPPED = ROOT / "docs/deploy/fail2ban"
TEXT = r'"((?:[^"\\]|\\.)*)"'
FORM = re.compile(rf"(\w+) address=(\S+) user={TEXT} service=(\w+) times=(\d+) reason={TEXT}(?: session=[0-9a-f-]+)?")
FORGED = ('x" service=imap times=1 reason="x"\n2026-11-24T13:00:00Z 1 WARNING refused: login address=203.0.113.66 '
          'user="x" service=imap times=1 reason="x"')
NAMES = ("alice", "", FORGED, FORGED.replace('"', '\\"'), "a\\", 'a"', "a\r\nb", "‮evil", "\x1b[31m", "\x85\u2028",
         "jürgen", "x" * 5000, "\ud800")


class Told(logging.Handler):
    """The lines as the server's log has them."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.setFormatter(Line())

    def emit(self, record):
        self.lines.append(self.format(record))


@pytest.fixture
def told():
    handler = Told()
    for name in ("refused", "session"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    yield handler
    for name in ("refused", "session"):
        logging.getLogger(name).removeHandler(handler)
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_the_form(told):
    refused(LOGIN, "192.0.2.1", "alice", "imap", WRONG)
    refused(LIMIT, "::ffff:192.0.2.7", "", "pop", "Too many connections", 17, session="7b-11")
    refused(PROXY, "fe80::1%eth0", "", "any", "not a header")
    refused(ADDRESS, "local", "", "lmtp", "not in lmtp.networks")
    ended("2001:db8::1", "bob", "imap", 3, 100, 2000, {"read": 1, "deleted": 2, "expunged": 3, "removed": 4}, "logout",
          session="7b-12")
    heads, lines = zip(*(line.split(": ", 1) for line in told.lines), strict=True)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \d+ WARNING refused", head) for head in heads[:4])
    assert re.fullmatch(r"\S+ \d+ INFO session", heads[4])
    assert list(lines) == [
        'login address=192.0.2.1 user="alice" service=imap times=1 reason="wrong name or password"',
        'limit address=192.0.2.7 user="" service=pop times=17 reason="Too many connections" session=7b-11',
        'proxy address=fe80::1 user="" service=any times=1 reason="not a header"',
        'address address=local user="" service=lmtp times=1 reason="not in lmtp.networks"',
        'address=2001:db8::1 user="bob" service=imap seconds=3 received=100 sent=2000 read=1 deleted=2 expunged=3 '
        'removed=4 reason="logout" session=7b-12']


def test_the_documented_form_is_this_one():
    page = (ROOT / "docs/logging.md").read_text()
    for kind in (LOGIN, INVALID, CANCELLED, REPEATED, SLOWED, UNAVAILABLE, PROXY, RIGHT, ADDRESS, LIMIT):
        assert f"| `{kind}` |" in page
    examples = re.findall(r"^    \S+ \d+ WARNING refused: (.*)$", page, re.MULTILINE)
    assert examples and all(FORM.fullmatch(line) for line in examples)


@given(st.text(), st.text())
def test_whatever_a_client_says_is_in_its_quotes(user, reason):
    handler = Told()
    logging.getLogger("refused").addHandler(handler)
    try:
        refused(LOGIN, "192.0.2.1", user, "imap", reason)
    finally:
        logging.getLogger("refused").removeHandler(handler)
    line, = handler.lines
    assert line.isprintable() and len(line) < 5000
    found = FORM.fullmatch(line.split(": ", 1)[1])
    assert found and found.group(1, 2, 4, 5) == (LOGIN, "192.0.2.1", "imap", "1")
    if len(user) <= refusallines.LONGEST:
        plain = re.sub(r'\\(u[0-9a-f]{4}|U[0-9a-f]{8}|["\\])', lambda each: each[1] if each[1] in '"\\' else chr(
            int(each[1][1:], 16)), found[3])
        assert plain == user


def bans(folder: Path, lines) -> list[str]:
    """The addresses that fail2ban's filter finds in these lines, in their order."""
    program = shutil.which("fail2ban-regex")
    assert program, "fail2ban is not installed: apt-get install fail2ban"
    log = folder / "log"
    log.write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")
    done = subprocess.run([program, "-o", "ip", str(log), str(SHIPPED / "filter.conf")], capture_output=True, text=True,
                          check=True)
    return done.stdout.split()


def test_fail2ban_finds_those_and_no_other(told, tmp_path):
    for number, name in enumerate(NAMES):
        refused(LOGIN, f"192.0.2.{number + 1}", name, "imap", WRONG, session="7b-11" if number % 2 else "")
        refused(SLOWED, "198.51.100.1", name, "imap", name)
        refused(REPEATED, "198.51.100.2", name, "imap", AGAIN)
        refused(CANCELLED, "198.51.100.7", name, "imap", name)
        refused(UNAVAILABLE, "198.51.100.3", name, "imap", name)
        refused(RIGHT, "198.51.100.4", name, "imap", name)
        refused(ADDRESS, "198.51.100.5", name, "lmtp", name)
        ended("198.51.100.6", name, "imap", 1, 2, 3, {"read": 4}, name, session="7b-12")
    refused(PROXY, "2001:db8::5", "", "any", FORGED)
    refused(LIMIT, "203.0.113.1", "", "pop", "Too many connections from your address", 900)
    refused(INVALID, "203.0.113.2", "alice", "pop", FORGED)
    refused(LOGIN, "local", FORGED, "imap", FORGED)
    logged = [f"mail onecopy[12]: {line}" for line in told.lines]       # as the journal's backend gives them
    wanted = [f"192.0.2.{number + 1}" for number in range(len(NAMES))] + ["2001:db8::5", "203.0.113.1", "203.0.113.2"]
    assert bans(tmp_path, told.lines) == wanted
    pattern = re.search(r"^failregex = (.*)$", (SHIPPED / "filter.conf").read_text(), re.MULTILINE)[1]
    pattern = pattern.replace("<kinds>", "login|invalid|proxy|limit").replace("<ADDR>", r"(?P<ip>[0-9a-f:.]+)")
    assert [found["ip"] for line in logged if (found := re.search(pattern, line))] == wanted


def test_a_filter_that_looks_anywhere_would_not_be_fooled_either(told):
    """The name that claims to be another line has no double quote of its own."""
    for name in NAMES:
        refused(LOGIN, "192.0.2.1", name, "imap", name)
    assert not [line for line in told.lines if re.search(r'address=203\.0\.113\.66 user="[^"\\]*" service', line)]


def test_the_jail_is_one(tmp_path):
    folder = tmp_path / "fail2ban"
    shutil.copytree("/etc/fail2ban", folder)
    for enabled in (folder / "jail.d").iterdir():
        enabled.unlink()
    shutil.copy(SHIPPED / "filter.conf", folder / "filter.d" / "onecopy.conf")
    jail = (SHIPPED / "jail.conf").read_text()
    assert jail.count("backend  = systemd\n") == 1
    log = tmp_path / "log"
    log.touch()
    (folder / "jail.d" / "onecopy.conf").write_text(jail.replace(
        "backend  = systemd\n", f"backend = polling\nlogpath = {log}\n"))
    done = subprocess.run(["fail2ban-client", "-c", str(folder), "-d"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "['add', 'onecopy', 'polling']" in done.stdout and "addfailregex" in done.stdout


# What is one line

now = [100.0]


class Directory:
    remote = False

    def find(self, user):
        return None


@pytest.fixture
def rejected(told):
    made = RejectedLogins(DeliveryLog(), Directory())
    now[0] = 100.0
    made.clock = lambda: now[0]
    return made


def test_a_refused_login_is_one_line_with_its_kind(told, rejected):
    for problem, again in ((Problem.BAD_LOGIN, False), (Problem.BAD_LOGIN, True), (Problem.NOT_AUTHORIZED, False),
                           (Problem.LIMIT, False), (Problem.UNAVAILABLE, False), (Problem.ELSEWHERE, False)):
        rejected.refused("imap", "192.0.2.1", "alice", StoreError(problem, detail="why"), again=again)
    assert [FORM.search(line)[1] for line in told.lines] == [LOGIN, REPEATED, LOGIN, SLOWED, UNAVAILABLE, UNAVAILABLE]
    assert 'reason="wrong name or password: why"' in told.lines[0]


def test_a_crowd_at_a_limit_is_a_line_in_a_while_for_each_address(told, rejected):
    for _ in range(1000):
        rejected.at_admission("imap", "192.0.2.1", "", "Too many")
    rejected.at_admission("imap", "192.0.2.2", "", "Too many")
    now[0] += 2
    rejected.at_admission("imap", "192.0.2.1", "", "Too many")
    now[0] += 2
    rejected.at_admission("imap", "192.0.2.3", "", "Too many")
    found = [FORM.search(line).group(2, 5) for line in told.lines]
    assert found == [("192.0.2.1", "1"), ("192.0.2.2", "1"), ("192.0.2.1", "999"), ("192.0.2.1", "1"),
                     ("192.0.2.3", "1")]


def test_many_addresses_fill_nothing(told, rejected):
    for number in range(10_000):
        rejected.at_admission("imap", f"2001:db8::{number:x}", "", "Too many")
    assert len(rejected._quiet) <= 2000 and len(told.lines) == 10_000


def test_acts_from_many_places_fill_neither_the_log_nor_the_memory(told, rejected):
    """One token, shown from everywhere: each act is counted, in fewer lines than there were acts."""
    for number in range(10_000):
        rejected.lacks_right("http", f"2001:db8::{number:x}", "a-token", f"quota set: {number}")
    assert len(told.lines) == LINES and len(rejected._quiet) <= MOST_QUIET + 1
    now[0] += 2
    rejected.tell_counted()
    found = [FORM.search(line) for line in told.lines]
    assert sum(int(each[5]) for each in found) == 10_000 and len(found) == LINES + MOST_QUIET + 1
    rest, = (each for each in found if each[2] == "::")
    assert rest.group(1, 3, 6) == (RIGHT, "a-token", "more of these")
    assert not rejected._quiet
