"""Refused logins are noted: who, from where, why; bounded, and never with what was shown as a password."""

import threading

import pytest

from store.accounts.base import Status
from store.accounts.loginsettings import Settings
from store.accounts.rejectedlogins import MOST, RejectedLogins
from store.deliverylog import FileDeliveryLog, read
from store.errors import Problem, StoreError
from store.users.loginfacts import login

WRONG = StoreError(Problem.BAD_LOGIN)


@pytest.fixture
def turned(store, tmp_path):
    return RejectedLogins(FileDeliveryLog(tmp_path, "imap-1", lambda: (1 << 20, 86400)), store.directory)


def notes(turned, root):
    turned.delivery_log.write()
    return [{name: each[name] for name in ("service", "peer", "user", "why", "times", "refused")}
            for each in read(root)]


def test_why_a_password_did_not_do_is_found_out_later(store, turned, tmp_path):
    store.directory.change("bob", status=Status.HOLD)
    for user in ("alice", "bob", "nobody", ""):
        turned.refused("imap", "192.0.2.1", user, WRONG)
    assert [(each["user"], each["why"]) for each in notes(turned, tmp_path)] == [
        ("alice", "the password, or what was shown in its place, is wrong"), ("bob", "the account's status is hold"),
        ("nobody", "there is no such user"), ("", "what was shown is nobody's")]


def test_the_same_is_counted_and_what_comes_later_is_new(turned, tmp_path):
    for _ in range(3):
        turned.refused("pop", "192.0.2.1", "alice", WRONG)
    turned.waits("pop", "192.0.2.1", "alice", 4.0)
    first = notes(turned, tmp_path)
    assert [(each["times"], each["refused"]) for each in first] == [(3, True), (1, False)]
    assert "had to wait 4 s" in first[1]["why"]
    turned.refused("pop", "192.0.2.1", "alice", WRONG)
    assert [each["times"] for each in notes(turned, tmp_path)] == [3, 1, 1]


def test_many_names_fill_nothing(turned, tmp_path):
    for number in range(MOST + 50):
        turned.refused("imap", f"198.51.100.{number % 200}", "x" * 5000 + str(number), WRONG)
    found = notes(turned, tmp_path)
    assert len(found) == MOST and turned.delivery_log.counted["not noted"] == 50
    assert max(len(each["user"]) for each in found) <= 300


def test_no_note_is_lost_while_it_is_written(turned, tmp_path):
    """The one thread notes, the other writes: all are counted once."""
    def write():
        while not done.is_set():
            turned.delivery_log.write()

    done = threading.Event()
    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(20_000):
        turned.refused("imap", "192.0.2.1", "alice", WRONG)
    done.set()
    thread.join()
    counted = sum(each["times"] for each in notes(turned, tmp_path))
    assert 20_000 - len(list(read(tmp_path))) <= counted <= 20_000        # one may come just as its note is made


RULES = "-imap:198.51.100.0/24$+imap,pops:ALL"


def test_what_holds_now(store):
    """Each row by docs/directory.md: the first rule that speaks of service and client decides, else denied."""
    store.directory.change("alice", access=RULES)
    found = login(store, Settings(), store.directory.find("alice"), "198.51.100.7")
    assert [(each.service, each.clear, each.tls) for each in found.services] == [
        ("imap", False, False), ("pop", False, True), ("lmtp", False, False)]
    imap, pop, lmtp = (each.because for each in found.services)
    assert imap == ("the user's own access rules: -imap:198.51.100.0/24",)
    assert pop == ("the user's own access rules: no rule speaks of it, so it is denied; under TLS: +imap,pops:ALL",)
    assert lmtp == ("the user's own access rules: no rule speaks of it, so it is denied",)
    assert not found.refused
    both = login(store, Settings(service_access="-pop:ALL"), store.directory.find("alice"), "192.0.2.1")
    assert [(each.clear, each.tls) for each in both.services] == [(True, True), (False, False), (False, False)]
    assert both.services[1].because[0] == "login.service_access: -pop:ALL"
    store.directory.change("alice", status=Status.DISABLED, access="")
    found = login(store, Settings(), store.directory.find("alice"), "")
    assert found.refused and found.notes == ("the status disabled lets nobody in",)
    assert {each.because for each in found.services} == {("there are no access rules",)}
    assert login(store, Settings(access="-ALL:*"), store.directory.find("bob"), "192.0.2.1").refused
