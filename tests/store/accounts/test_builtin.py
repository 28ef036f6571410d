"""The built-in directory and its passwords."""

import pytest
from attrs import evolve

from store.accounts import builtin, passwords
from store.accounts.base import Status, delivery_problem
from store.accounts.domainrows import DomainRow
from store.accounts.mechanisms import Plain
from store.accounts.passwordcache import LIFETIME, MOST, VerifiedPasswords
from store.accounts.passwords import NOBODY, hash_password, kept_keys, scram_keys, verify_password
from store.accounts.sasl.scram import HASHES, Keys
from store.check.wholecheck import check
from store.delivery.commit import Delivered
from store.errors import Problem, StoreError
from store.mailboxes import firstuse
from store.opening import open_store
from store.quota import roots
from store.users import lifecycle
from store.users.renaming import rename_user
from store.values import Secret
from tests.support.stores.small import FULL_COST
from tests.support.stores.stores import HASH, PASSWORD, SMALL, deliver, make_store


@pytest.fixture
def full_cost(monkeypatch):
    """Hashes as everybody else has them."""
    monkeypatch.setattr(passwords, "_LOG_N", FULL_COST)
    monkeypatch.setattr(builtin, "NOBODY", NOBODY)


def test_a_password_fits_its_own_hash_only(full_cost):
    stored = hash_password(Secret(b"pa$$ w\xc3\xb6rd"))
    assert stored.startswith("scrypt$14$8$1$") and b"pa$$" not in stored.encode()
    assert verify_password(Secret(b"pa$$ w\xc3\xb6rd"), stored)
    assert not verify_password(Secret(b"pa$$ word"), stored)
    assert hash_password(Secret(b"same")) != hash_password(Secret(b"same"))


@pytest.mark.parametrize("stored", ["", "scrypt", "scrypt$x$8$1$AA==$AA==", "scrypt$40$8$1$AA==$AA==", "$6$x$y",
                                    "scrypt$14$8$1$!$!", NOBODY])
def test_hashes_that_fit_nothing(stored):
    assert not verify_password(Secret(b""), stored)


def test_a_secret_is_never_shown():
    assert "hidden" not in repr(Secret(b"hidden")) + str(Secret(b"hidden"))


@pytest.mark.parametrize(("login", "user"), [
    ("alice", "alice"), ("Alice", "alice"), ("alice@example.org", "alice"), ("ALICE@EXAMPLE.ORG", "alice")])
def test_names_of_a_user(store, login, user):
    assert store.directory.look_up(login).user == user
    assert store.directory.authenticate(login, Secret(PASSWORD)).user == user


@pytest.mark.parametrize(("login", "password"), [("alice", b"wrong"), ("alice", b""), ("nobody", PASSWORD),
                                                 ("alice@example.net", PASSWORD), ("", PASSWORD)])
def test_refused_logins(store, login, password):
    with pytest.raises(StoreError) as refused:
        store.directory.authenticate(login, Secret(password))
    assert refused.value.problem is Problem.BAD_LOGIN
    assert store.directory.remembers(login, Secret(password)) is None


def test_a_verified_password_is_remembered_until_it_changes(store):
    assert store.directory.remembers("alice", Secret(PASSWORD)) is None
    store.directory.authenticate("alice", Secret(PASSWORD))
    assert store.directory.remembers("alice", Secret(PASSWORD)).user == "alice"
    assert store.directory.remembers("alice", Secret(b"wrong")) is None
    store.directory.change("alice", password_hash=hash_password(Secret(b"new")))
    assert store.directory.remembers("alice", Secret(PASSWORD)) is None


def test_an_account_that_is_not_active_cannot_log_in(store):
    store.directory.authenticate("alice", Secret(PASSWORD))
    store.directory.change("alice", status=Status.DISABLED)
    assert store.directory.remembers("alice", Secret(PASSWORD)) is None
    with pytest.raises(StoreError):
        store.directory.authenticate("alice", Secret(PASSWORD))


STATUSES = {
    # Sun's table of mailUserStatus:  login, delivery
    Status.ACTIVE: (True, None),
    Status.INACTIVE: (False, Problem.USER_INACTIVE),
    Status.DISABLED: (False, Problem.USER_DISABLED),
    Status.DELETED: (False, Problem.NO_USER),
    Status.REMOVED: (False, Problem.NO_USER),
    Status.HOLD: (False, Problem.USER_ON_HOLD),
    Status.OVERQUOTA: (True, Problem.OVER_QUOTA),
}


@pytest.mark.parametrize("status", Status)
def test_what_a_status_means(store, status):
    login, problem = STATUSES[status]
    assert (status.may_log_in, delivery_problem(status)) == (login, problem)
    store.directory.authenticate("alice", Secret(PASSWORD))
    store.directory.change("alice", status=status)
    assert (store.directory.remembers("alice", Secret(PASSWORD)) is not None) == login
    try:
        assert store.directory.authenticate("alice", Secret(PASSWORD)).status is status and login
    except StoreError as refused:
        assert refused.problem is Problem.BAD_LOGIN and not login
    assert store.directory.look_up("alice").status is status


def test_what_is_remembered_ends_and_is_bounded():
    now = [0.0]
    verified = VerifiedPasswords(lambda: now[0])
    verified.add("alice", Secret(b"x"), "hash")
    assert ("alice", Secret(b"x"), "hash") in verified
    assert ("alicex", Secret(b""), "hash") not in verified
    now[0] = LIFETIME + 1
    assert ("alice", Secret(b"x"), "hash") not in verified
    for number in range(MOST + 5):
        verified.add(str(number), Secret(b"x"), "hash")
    assert len(verified) == len(verified._of) == MOST
    verified.forget("12")
    assert len(verified) == len(verified._of) == MOST - 1 and ("12", Secret(b"x"), "hash") not in verified
    verified.lifetime = 0
    verified.add("alice", Secret(b"x"), "hash")
    assert ("alice", Secret(b"x"), "hash") not in verified


def test_users_are_added_once_and_removed(store):
    store.directory.add("Carol@Example.Net", HASH)
    assert [account.user for account in store.directory.all()] == ["alice", "bob", "carol@example.net"]
    for address, problem in (("carol@example.net", Problem.USER_EXISTS), ("a/b", Problem.BAD_NAME),
                             ("", Problem.BAD_NAME)):
        with pytest.raises(StoreError) as refused:
            store.directory.add(address, HASH)
        assert refused.value.problem is problem
    lifecycle.remove_mail(store, "carol@example.net")
    store.directory.remove("carol@example.net")
    with pytest.raises(StoreError):
        store.directory.remove("carol@example.net")


JOERG = "jörg@xn--bcher-kva.example"


@pytest.mark.parametrize("written", [
    "jörg@bücher.example", "JÖRG@xn--bcher-kva.example", "JO\u0308RG@BU\u0308CHER.example"])
def test_a_user_with_an_international_address(store, written):
    """RFC 6531: whoever writes the address, it is one user."""
    firstuse.inbox(store, store.directory.add(written, HASH))
    for address in ("jörg@bücher.example", "jo\u0308rg@xn--bcher-kva.example", "Jörg@Bücher.Example"):
        assert store.directory.look_up(address).user == JOERG
        assert store.directory.authenticate(address, Secret(PASSWORD)).user == JOERG
        assert store.directory.remembers(address, Secret(PASSWORD)).user == JOERG
        with pytest.raises(StoreError) as refused:
            store.directory.add(address, HASH)
        assert refused.value.problem is Problem.USER_EXISTS
    deliver(store, b"Subject: x\r\n\r\n", f"user/{JOERG}/INBOX")
    assert roots.quota(store, JOERG).messages == 1
    assert store.directory.look_up("jorg@bücher.example") is None


@pytest.mark.parametrize("domain", ["bücher.example", "xn--bcher-kva.example", "BU\u0308CHER.example"])
def test_an_international_default_domain(tmp_path, domain):
    store = make_store(tmp_path / "store", ["alice", "jörg@bücher.example"], evolve(SMALL, default_domain=domain))
    assert [account.user for account in store.directory.all()] == ["alice", "jörg"]
    for address in ("alice", "alice@bücher.example", "ALICE@xn--bcher-kva.example"):
        assert store.directory.look_up(address).user == "alice"
    roots.set_quota(store, "@bücher.example", messages=1)
    delivered, = deliver(store, b"Subject: x\r\n\r\n", "user/jörg/INBOX")
    refused, = deliver(store, b"Subject: y\r\n\r\n", "user/alice/INBOX")
    assert isinstance(delivered, Delivered) and refused.problem is Problem.OVER_QUOTA
    assert [roots.quota(store, root).messages for root in ("@bücher.example", "@XN--bcher-kva.example")] == [1, 1]
    roots.remove_quota_root(store, "@xn--bcher-kva.example")
    assert check(store) == []
    store.close()


@pytest.mark.parametrize("address", ["", "@", "@example.org", "a@-ü.example", "ü" * 601, "\udcff", "a@☃.example"])
def test_what_is_no_address_is_nobodys(store, address):
    assert store.directory.look_up(address) is None
    assert store.directory.remembers(address, Secret(PASSWORD)) is None
    with pytest.raises(StoreError) as refused:
        store.directory.authenticate(address, Secret(PASSWORD))
    assert refused.value.problem is Problem.BAD_LOGIN
    with pytest.raises(StoreError) as refused:
        store.directory.add(address, HASH)
    assert refused.value.problem is Problem.BAD_NAME
    with pytest.raises(StoreError) as refused:          # and it is not the owner of public mailboxes, which is ""
        rename_user(store, store.directory.user_id(address), "bob")
    assert refused.value.problem in (Problem.NO_USER, Problem.USER_EXISTS)
    assert store.directory.user_id(address) != ""


@pytest.mark.parametrize(("message", "expected"), [
    (b"\0tim\0tanstaaftanstaaf", ("", "tim", b"tanstaaftanstaaf")),            # RFC 4616 §4
    (b"Ursel\0Kurt\0xipj3plmq", ("Ursel", "Kurt", b"xipj3plmq")),
    ("\0jörg\0pässword".encode(), ("", "jörg", "pässword".encode())),
])
def test_plain_says_who_logs_in(message, expected):
    plain = Plain.from_bytes(message)
    assert (plain.acts_as, plain.user, plain.password.reveal()) == expected


@pytest.mark.parametrize("message", [
    b"", b"\0", b"\0\0", b"tim", b"\0tim", b"\0tim\0", b"\0\0x", b"\0a\0b\0c", b"\0\xff\0x", b"\xff\0a\0x",
])
def test_what_is_not_plain(message):
    with pytest.raises(ValueError):
        Plain.from_bytes(message)


def test_what_is_remembered_is_forgotten_with_the_account(store):
    for change in ({"password_hash": hash_password(Secret(PASSWORD))}, {"status": Status.DISABLED}):
        store.directory.change("alice", status=Status.ACTIVE)
        store.directory.authenticate("alice", Secret(PASSWORD))
        assert len(store.directory._verified) == 1
        store.directory.change("alice", **change)
        assert len(store.directory._verified) == 0
    store.directory.authenticate("bob", Secret(PASSWORD))
    rename_user(store, "bob", "carol")
    assert len(store.directory._verified) == 0 and store.directory.remembers("carol", Secret(PASSWORD)) is None


def test_the_same_work_for_an_unknown_user_as_for_a_wrong_password(store, full_cost, faults):
    """Counted, not timed: the hashes, with what they are told to do."""
    store.directory.change("alice", password_hash=hash_password(Secret(PASSWORD)))
    done = faults.watch(passwords, "_scrypt", lambda *given: given[2:])
    work = []
    for login in ("alice", "nobody", "nobody@elsewhere.example", "", "@", "@example.com"):
        done.clear()
        with pytest.raises(StoreError) as refused:
            store.directory.authenticate(login, Secret(b"wrong"))
        work.append((tuple(done), str(refused.value)))
    assert len(work[0][0]) == 1 and set(work) == {work[0]}
    store.directory.change("alice", status=Status.DISABLED)
    done.clear()
    with pytest.raises(StoreError):
        store.directory.authenticate("alice", Secret(PASSWORD))
    assert tuple(done) == work[0][0]


# SCRAM

def test_a_password_has_the_keys_of_scram_that_are_asked_for_beside_its_hash(store):
    assert " " not in hash_password(Secret(b"pencil"))
    stored = hash_password(Secret(b"pencil"), HASHES)
    assert kept_keys(stored) == ("SCRAM-SHA-256", "SCRAM-SHA-1")
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256"):
        keys = scram_keys(mechanism, stored)
        assert keys == Keys.from_password(mechanism, "pencil", keys.salt)
        assert keys.iterations >= 4096 and len(keys.salt) == 16         # RFC 7677 §4
    assert scram_keys("SCRAM-SHA-1", stored).salt != scram_keys("SCRAM-SHA-256", stored).salt
    assert scram_keys("SCRAM-SHA-1", hash_password(Secret(b"pencil"), ["SCRAM-SHA-256"])) is None
    assert " " not in hash_password(Secret(b"\xff\xfe"), HASHES)                # no text, so none that SASLprep takes
    assert verify_password(Secret(b"\xff\xfe"), hash_password(Secret(b"\xff\xfe")))
    store.directory.change("alice", password_hash=stored)
    assert store.directory.authenticate("alice", Secret(b"pencil")).user == "alice"
    keys, account = store.directory.find_keys("Alice@example.org", "SCRAM-SHA-256")
    assert account.user == "alice" and keys == scram_keys("SCRAM-SHA-256", stored)


def test_the_keys_of_those_who_are_not_there(tmp_path):
    """The same salt each time, also after a start, and as many iterations as anybody has: so it tells nobody."""
    store = make_store(tmp_path / "store")
    there, account = store.directory.find_keys("alice", "SCRAM-SHA-256")
    assert account.user == "alice"
    store.directory.add("old", hash_password(Secret(b"x")))
    store.directory.change("bob", status=Status.DISABLED)
    names = ("nobody", "old", "bob", "@", "@example.com", "no@elsewhere.example")
    first = {name: store.directory.find_keys(name, "SCRAM-SHA-256") for name in names}
    for keys, account in first.values():
        assert account is None and (keys.iterations, len(keys.salt)) == (there.iterations, len(there.salt))
    assert len({keys.salt for keys, _ in first.values()}) == len(names)
    store.close()
    store = open_store(tmp_path / "store", SMALL)
    for name, (keys, _) in first.items():
        again, account = store.directory.find_keys(name, "SCRAM-SHA-256")
        assert again.salt == keys.salt and account is None
        assert again.stored_key != keys.stored_key                      # which no proof fits
    assert store.directory.find_keys("nobody", "SCRAM-SHA-1")[0].salt != first["nobody"][0].salt
    assert store.directory.find_keys("NOBODY@example.org", "SCRAM-SHA-256")[0].salt == first["nobody"][0].salt
    assert [account.user for account in store.directory.all()] == ["alice", "bob", "old"]
    assert check(store) == []
    store.close()


def test_keys_are_taken_away(store):
    """The password stays as it is, and so does what tells one from the next."""
    directory = store.directory
    stored = hash_password(Secret(b"pencil"), HASHES)
    directory.change("alice", password_hash=stored)
    before = directory.find("alice")
    assert ("alice", ("SCRAM-SHA-256", "SCRAM-SHA-1")) in list(directory.with_keys())
    directory.drop_keys("alice", {"SCRAM-SHA-256"})
    assert dict(directory.with_keys())["alice"] == ("SCRAM-SHA-256",)
    assert directory.find_keys("alice", "SCRAM-SHA-256")[1] == before
    assert directory.find_keys("alice", "SCRAM-SHA-1")[1] is None
    directory.drop_keys("alice", ())
    assert "alice" not in dict(directory.with_keys()) and directory.user("alice").password == stored.partition(" ")[0]
    assert directory.find("alice").credential == before.credential != ""
    assert directory.authenticate("alice", Secret(b"pencil")).user == "alice"
    directory.change("alice", password_hash=hash_password(Secret(b"pencil")))       # the same again is another hash
    assert directory.find("alice").credential != before.credential


# Rules of access

def test_rules_of_users_and_domains(tmp_path):
    store = make_store(tmp_path / "store", ["alice", "bob", "carol@example.com"])
    directory = store.directory

    def rules(user):
        return directory.access_rules(directory.find(user))

    assert {rules(user) for user in ("alice", "bob", "carol@example.com")} == {""}
    directory.change("alice", access="+imap:*")
    directory.domains.set_access("Example.COM", "-pop:*")
    directory.domains.set_access("example.org", "+imaps:*")
    directory.domains.set_access("B\u00fccher.example", "-imap:*")
    assert (rules("alice"), rules("bob"), rules("carol@example.com")) == ("+imap:*", "+imaps:*", "-pop:*")
    assert [(domain, row.access) for domain, row in directory.domains.all()] == [
        ("example.com", "-pop:*"), ("example.org", "+imaps:*"), ("xn--bcher-kva.example", "-imap:*")]
    assert [account.user for account in directory.all()] == ["alice", "bob", "carol@example.com"]
    assert directory.find("@example.com") is None and directory.user("@") is None
    directory.change("alice", status=Status.INACTIVE, groups=["staff"])
    assert directory.find("alice").access == "+imap:*"
    store.close()
    store = open_store(tmp_path / "store", SMALL)
    assert store.directory.domains.access("example.com") == "-pop:*"
    store.directory.domains.set_access("example.com", "")
    assert store.directory.access_rules(store.directory.find("carol@example.com")) == ""
    store.directory.domains.set_sieve("Example.org", "own=no")
    assert store.directory.domains.row("example.org") == DomainRow("+imaps:*", "own=no")
    store.directory.domains.set_access("example.org", "")
    assert store.directory.domains.row("example.org") == DomainRow("", "own=no")
    store.directory.domains.set_sieve("example.org", "")
    assert "example.org" not in dict(store.directory.domains.all())
    with pytest.raises(ValueError):
        store.directory.domains.set_access("", "-pop:*")
    assert check(store) == []
    store.close()
