"""App passwords as values, and the files that they are in: several processes at once, kills, other people's eyes."""

import hashlib
import os
import stat
import sys
from pathlib import Path

import pytest

from mboxlist import privatefiles
from store.accounts.apppasswords import apppassword
from store.accounts.apppasswords.accessfiles import USE_TIME, AccessFiles
from store.accounts.apppasswords.accessrecord import MOST_PASSWORDS, Access, SecurityKey, Totp
from store.accounts.apppasswords.applogins import AppLogins
from store.accounts.apppasswords.apppassword import SERVICES, digest_of
from store.accounts.loginsettings import Settings
from store.errors import Problem, StoreError
from store.values import Secret

NOW = 1_800_000_000


def make(name="phone", services=SERVICES, read_only=False, until=None):
    return apppassword.make(name, services, read_only=read_only, now=NOW, until=until)


@pytest.fixture
def files(tmp_path):
    return AccessFiles(tmp_path)


def test_it_has_128_random_bits_or_more_in_groups_and_only_its_digest_is_kept(files):
    made, shown = make()
    groups = shown.split("-")
    assert [len(group) for group in groups] == [4] * 7 and 28 * 5 >= 128
    assert made.digest == hashlib.sha256("".join(groups).encode()).hexdigest()
    files.change("alice", lambda before: before.with_password(made, NOW))
    assert shown.encode() not in files.path("alice").read_bytes()
    assert "".join(groups).encode() not in files.path("alice").read_bytes()
    assert len({make()[1] for _ in range(100)}) == 100


def test_it_is_taken_as_people_type_it():
    made, shown = make()
    plain = shown.replace("-", "")
    for typed in (shown, plain, shown.upper(), shown.replace("-", " "), f" {plain} ",
                  plain.replace("0", "O").replace("1", "l"), plain.replace("1", "I")):
        assert digest_of(Secret(typed.encode())) == made.digest, typed
    other = ("x" if plain[0] != "x" else "y") + plain[1:]
    assert digest_of(Secret(other.encode())) != made.digest


@pytest.mark.parametrize("octets", [b"", b"secret", b"a" * 27, b"a" * 29, b"u" * 28, b"\xc3\xa4" * 14, b"-" * 28,
                                    b"a" * 28 + b"\0", b"a " * 29, b"a" * 100_000])
def test_what_has_not_the_form_of_one_is_none(octets):
    assert digest_of(Secret(octets)) is None


@pytest.mark.parametrize(("name", "services"), [("", SERVICES), (" ", SERVICES), ("a\nb", SERVICES),
                                                ("x" * 101, SERVICES), ("x", ()), ("x", ("imap", "lmtp"))])
def test_a_name_or_service_that_makes_no_sense_is_refused(name, services):
    with pytest.raises(StoreError) as refused:
        make(name, services)
    assert refused.value.problem is Problem.BAD_NAME


@pytest.mark.parametrize("until", [NOW + 40000 * 86400, 1e40])
def test_a_time_that_no_calendar_has_is_refused(until):
    with pytest.raises(StoreError):
        make(until=until)


def test_all_that_is_kept_comes_back(files):
    def fill(before):
        made = Access(before.user, totp=Totp("ABC", NOW, 7), keys=(SecurityKey("id", "key", "public", NOW, 3, NOW),),
                      recovery=("d1", "d2"))
        for until in (None, NOW + 5):
            made = made.with_password(make(until=until, services=("imap",), read_only=until is None)[0], NOW)
        return made

    after = files.change("alice@example.org", fill)
    assert files.of("alice@example.org") == after and list(files.all()) == [after]
    assert after.has_second_factor and not after.without_second_factor().has_second_factor
    assert "ABC" not in repr(after)


def test_only_the_owner_can_read_it(files):
    files.change("alice", lambda before: before.with_password(make()[0], NOW))
    folder = files.root / "access"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_a_hundred_are_the_most_and_those_that_have_ended_make_room(files):
    for number in range(MOST_PASSWORDS):
        files.change("alice", lambda before, number=number: before.with_password(
            make(until=NOW + 1 if number == 0 else None)[0], NOW))
    with pytest.raises(StoreError) as refused:
        files.change("alice", lambda before: before.with_password(make()[0], NOW))
    assert refused.value.problem is Problem.LIMIT
    files.change("alice", lambda before: before.with_password(make()[0], NOW + 1))
    assert len(files.of("alice").passwords) == MOST_PASSWORDS


def test_the_file_goes_with_the_last(files):
    made, _ = make()
    files.change("alice", lambda before: before.with_password(made, NOW))
    files.change("alice", lambda before: before.without_passwords([made.id]))
    assert not files.path("alice").exists() and files.of("alice").is_empty
    files.remove("alice")


def test_a_rename_takes_it_along_however_often(files):
    files.change("alice", lambda before: before.with_password(make()[0], NOW))
    for _ in range(2):
        files.rename("alice", "carol")
    assert files.of("alice").is_empty
    assert (files.of("carol").user, len(files.of("carol").passwords)) == ("carol", 1)


def test_a_damaged_file_lets_nobody_in_as_if_there_were_none(files):
    files.change("alice", lambda before: before.with_password(make()[0], NOW))
    for octets in (b"", b"{}", b"[1]", b'{"user": 1, "passwords": [{}]}', b"\xff"):
        files.path("alice").write_bytes(octets)
        with pytest.raises(StoreError) as refused:
            files.of("alice")
        assert refused.value.problem is Problem.CORRUPT and "onecopy check" in refused.value.detail


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_cut_off_at_any_call_it_is_what_was_or_what_is_to_be(files, call, monkeypatch):
    one, two = make()[0], make()[0]
    before = files.change("alice", lambda before: before.with_password(one, NOW))
    after = before.with_password(two, NOW)

    class Killed(BaseException):
        pass

    real, left = getattr(os, call), [0]

    def dies(*given, **how):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return real(*given, **how)

    seen = set()
    for cut in range(4):
        left[0] = cut
        with monkeypatch.context() as patched:
            patched.setattr(os, call, dies)
            try:
                files.change("alice", lambda now: after)
            except Killed:
                pass
        found = files.of("alice")
        assert found in (before, after)
        seen.add(found == after)
        files.change("alice", lambda now: before)
    assert True in seen


def _many(root: str, name: str) -> None:
    for number in range(20):
        AccessFiles(Path(root)).change("alice", lambda before, number=number: before.with_password(
            make(f"{name}{number}")[0], NOW))


def test_two_processes_lose_nothing_of_each_other(files):
    pids = []
    for name in "ab":
        pid = os.fork()
        if not pid:
            try:
                _many(str(files.root), name)
            finally:
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    assert len(files.of("alice").passwords) == 40


# What a login asks

@pytest.fixture
def logins(files):
    return AppLogins(files.root, Settings(), lambda: NOW)


def test_it_holds_for_its_services_until_its_end(files, logins):
    made, shown = make(services=("imap",), until=NOW + 10)
    files.change("alice", lambda before: before.with_password(made, NOW))
    password = Secret(shown.encode())
    assert logins.find("alice", password, "imap") == made and logins.still("alice", made)
    assert logins.find("alice", password, "pop") is None and logins.find("bob", password, "imap") is None
    assert not logins.takes("lmtp", password) and not logins.takes("http", password)
    logins.clock = lambda: NOW + 10
    assert logins.find("alice", password, "imap") is None and not logins.still("alice", made)


def test_a_use_is_on_record_once_in_ten_minutes_and_not_by_the_login(files, logins, monkeypatch):
    made, shown = make()
    files.change("alice", lambda before: before.with_password(made, NOW))
    written = []
    real = privatefiles.replacing
    monkeypatch.setattr(privatefiles, "replacing", lambda *given, **how: written.append(given) or real(*given, **how))

    def use(at):
        logins.clock = lambda: at
        assert logins.find("alice", Secret(shown.encode()), "imap") is not None
        assert not written
        logins.note_uses()
        count, written[:] = len(written), []
        return count, files.of("alice").passwords[0].used

    assert use(NOW) == (1, NOW)
    assert use(NOW + USE_TIME - 1) == (0, NOW)
    assert use(NOW + USE_TIME) == (1, NOW + USE_TIME)


def test_a_use_gives_nothing_back_that_was_revoked(files, logins):
    made, shown = make()
    files.change("alice", lambda before: before.with_password(made, NOW))
    logins.find("alice", Secret(shown.encode()), "imap")
    files.change("alice", lambda before: before.without_passwords([made.id]))
    logins.note_uses()
    assert files.of("alice").is_empty and not files.path("alice").exists()


def test_who_has_none_costs_a_few_functions(logins):
    """Of Python's, at a login by the directory's password: next to nothing."""
    entered = []

    def look(frame, event, argument):
        if event == "call":
            entered.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        assert not logins.takes("imap", Secret(b"secret"))
        assert not logins.requires("alice", "imap")
    finally:
        sys.setprofile(None)
    assert len(entered) <= 15, entered
