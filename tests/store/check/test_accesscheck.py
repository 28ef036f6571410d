"""Files of app passwords and second factors that keep somebody out, or are of nobody: each is found, once, with what
mends it."""

from store.accounts.apppasswords import apppassword
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.check.accesscheck import look
from store.values import Repair


def given(store, user):
    """The files, with one of the user."""
    files = AccessFiles(store.root)
    made, _ = apppassword.make("phone", ["imap"], read_only=False, now=1_800_000_000.0)
    files.change(user, lambda before: before.with_password(made, 1_800_000_000.0))
    return files


def test_what_is_whole_is_no_finding(store):
    given(store, "alice")
    assert list(look(store)) == []


def test_a_damaged_file_names_its_user(store):
    given(store, "alice").path("alice").write_bytes(b"{")
    found, = look(store)
    assert (found.where, str(found.repair)) == ("user alice", str(Repair.ACCESS.of("alice")))


def test_a_file_in_the_place_of_another_users(store):
    files = given(store, "alice")
    files.path("alice").rename(files.path("bob"))
    found, = look(store)
    assert "cannot be read" in found.what and str(found.repair) == str(Repair.ACCESS.of("bob"))
    assert files.remove_damaged(files.path("bob").name) and list(look(store)) == []
    assert not files.remove_damaged("../users.db") and not files.remove_damaged("lock")


def test_a_file_of_nobody(store):
    files = given(store, "nobody")
    found, = look(store)
    assert (found.where, str(found.repair)) == ("user nobody", str(Repair.ACCESS.of("nobody")))
    files.path("nobody").write_bytes(b"")
    found, = look(store)
    assert str(found.repair) == str(Repair.ACCESS.of(files.path("nobody").name))
    assert files.remove_damaged(files.path("nobody").name) and list(look(store)) == []
