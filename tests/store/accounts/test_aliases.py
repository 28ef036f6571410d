"""Further addresses of a user (mailAlternateAddress): mail comes by them, a login does not."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from attrs import evolve

from mboxlist.engine.transact import transact
from store.accounts.aliases import MOST
from store.accounts.base import Account
from store.accounts.builtin import User
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.mailboxes.authorization import set_acl
from store.opening import open_store
from store.rebuild import recount
from store.rebuild.salvagedusers import salvage_users
from store.reconstruct.wholestore import rebuild
from store.users import lifecycle, renaming, restorable
from store.values import RECONSTRUCT, Secret
from tests.support.stores.stores import HASH, PASSWORD, SMALL, make_store, reopen_after_crash

pytestmark = pytest.mark.few_folders

INFO, SALES = "info", "sales@elsewhere.example"


@pytest.fixture
def directory(store):
    """alice has two aliases."""
    store.directory.change("alice", aliases=["Info@Example.org", "sales@elsewhere.example"])
    return store.directory


def refused(work, *arguments, **options):
    with pytest.raises(StoreError) as refusal:
        work(*arguments, **options)
    return refusal.value


def table(store):
    return list(store.directory._aliases.all())


@pytest.mark.parametrize(("address", "user"), [
    ("info@example.org", "alice"), ("INFO", "alice"), (SALES, "alice"), ("Sales@Elsewhere.Example", "alice"),
    ("alice", "alice"), ("alice@example.org", "alice"), ("bob", "bob"),
    ("sales", None), ("info@elsewhere.example", None), ("alice@elsewhere.example", None)])
def test_mail_to_an_alias_is_the_users(directory, address, user):
    found = directory.look_up(address)
    assert (found.user if found else None) == user
    assert directory.find("alice").aliases == (INFO, SALES)


@pytest.mark.parametrize("login", ["info", "info@example.org", SALES])
def test_nobody_logs_in_by_an_alias(directory, login):
    directory.authenticate("alice", Secret(PASSWORD))
    assert directory.remembers(login, Secret(PASSWORD)) is None
    assert refused(directory.authenticate, login, Secret(PASSWORD)).problem is Problem.BAD_LOGIN


@pytest.mark.parametrize("written", ["jörg@bücher.example", "JO\u0308RG@xn--bcher-kva.example"])
def test_an_international_alias(store, written):
    store.directory.change("alice", aliases=[written, "JÖRG@BÜCHER.example"])
    assert store.directory.find("alice").aliases == ("jörg@xn--bcher-kva.example",)
    assert store.directory.look_up("Jörg@Bücher.example").user == "alice"


def test_a_list_takes_the_place_of_the_one_before(store, directory):
    directory.change("alice", aliases=["third", "INFO"])
    assert table(store) == [(INFO, "alice"), ("third", "alice")]
    directory.change("bob", aliases=[SALES])                # free again
    assert directory.look_up(SALES).user == "bob"
    directory.change("alice", password_hash=HASH, groups=["staff"])
    assert directory.find("alice").aliases == (INFO, "third")
    directory.change("alice", aliases=[])
    assert table(store) == [(SALES, "bob")]


@pytest.mark.parametrize(("alias", "said"), [
    ("bob", "bob is a user"), ("Bob@Example.org", "bob is a user"), ("alice", "alice is a user"),
    ("info", "info is an alias of alice"), ("SALES@elsewhere.example", f"{SALES} is an alias of alice")])
def test_what_is_taken_is_not_given(store, directory, alias, said):
    user = "alice" if alias == "alice" else "bob"
    before = table(store), directory.find("bob"), directory.find("alice")
    for aliases in ([alias], ["first", alias, "zuletzt"]):
        refusal = refused(directory.change, user, aliases=aliases)
        assert (refusal.problem, refusal.public) == (Problem.USER_EXISTS, said)
        refusal = refused(directory.add, "carol", HASH, aliases=aliases)
        assert (refusal.problem, refusal.public) == (Problem.USER_EXISTS, said)
    assert (table(store), directory.find("bob"), directory.find("alice")) == before
    assert directory.find("carol") is None


def test_a_new_user_is_not_called_like_an_alias(directory):
    for name in ("info", "Info@example.org", SALES):
        refusal = refused(directory.add, name, HASH)
        assert refusal.problem is Problem.USER_EXISTS and "is an alias of alice" in refusal.public
    assert refused(directory.add, "carol", HASH, aliases=["carol"]).public == "carol is a user"
    assert directory.add("carol", HASH, aliases=["c@example.org"]).aliases == ("c",)
    assert directory.look_up("c").user == "carol"
    directory.remove("carol")
    directory.add("c", HASH)
    directory.remove("c")


@pytest.mark.parametrize("alias", ["", "@example.org", "@elsewhere.example", "a b", "a@", "a@b@c", '"a"', "<a>", "a\\b",
                                   "a\x00b", "a\u202eb", "a\u200bb", "a@☃.example", "x" * 601, "\udcff"])
def test_what_cannot_be_an_alias(directory, alias):
    assert refused(directory.change, "alice", aliases=[alias]).problem is Problem.BAD_NAME
    assert directory.find("alice").aliases == (INFO, SALES)


def test_there_is_a_limit(directory):
    many = [f"a{number}" for number in range(MOST)]
    assert refused(directory.change, "bob", aliases=[*many, "b"]).problem is Problem.LIMIT
    assert len(directory.change("bob", aliases=many).aliases) == MOST


def test_they_come_along_when_the_user_is_renamed(store, directory):
    directory.change("bob", aliases=["robert"])
    refusal = refused(renaming.rename_user, store, "alice", "robert")
    assert (refusal.problem, refusal.public) == (Problem.USER_EXISTS, "robert is an alias of bob")
    renaming.rename_user(store, "alice", "anna")
    assert table(store) == [(INFO, "anna"), ("robert", "bob"), (SALES, "anna")]
    assert directory.look_up(SALES).user == "anna" and directory.find("anna").aliases == (INFO, SALES)


def test_they_are_kept_until_a_removed_user_is_forgotten(store, directory):
    lifecycle.remove_user(store, "alice")
    assert refused(directory.change, "bob", aliases=[INFO]).problem is Problem.USER_EXISTS
    lifecycle.restore_user(store, "alice")
    assert directory.look_up(INFO).aliases == (INFO, SALES)
    lifecycle.remove_user(store, "alice")
    restorable.forget_user(store, "alice")
    assert table(store) == [] and directory.look_up(INFO) is None
    directory.change("bob", aliases=[INFO])
    assert directory.look_up(INFO).user == "bob"


def test_rights_given_to_an_alias_are_the_users(store, directory):
    inbox = next(iter(store.names("bob")))
    assert set_acl(store, inbox.name, SALES, "lr").acl == {"alice": "lr"}
    set_acl(store, inbox.name, "alice", "")


def test_of_two_at_the_same_time_one_gets_it(store):
    """As an alias of one, of another, or as a user's name."""
    names = [f"name{number}" for number in range(10)]

    def claim(work):
        try:
            work()
        except StoreError as refusal:
            return refusal.problem
        return None

    with ThreadPoolExecutor(3) as pool:
        for at, name in enumerate(names, 1):
            claims = [lambda: store.directory.change("alice", aliases=names[:at]),      # noqa: B023
                      lambda: store.directory.change("bob", aliases=[name]),            # noqa: B023
                      lambda: store.directory.add(name, HASH)]                          # noqa: B023
            outcomes = list(pool.map(claim, claims))
            assert sorted(map(str, outcomes)) == ["None", *[str(Problem.USER_EXISTS)] * 2]
            assert store.directory.look_up(name) is not None
            store.directory.change("alice", aliases=[])
            store.directory.change("bob", aliases=[])
            if store.directory.find(name) is not None:
                store.directory.remove(name)


# When something is lost

def lose_table(store, crash):
    """The store as it is opened again without the table of aliases, which is as an older version would leave it."""
    if crash:
        store.mailboxes.env.flush()
        folder = store.root / "mboxlist"
        shutil.copytree(folder, folder.with_name("image"), ignore=shutil.ignore_patterns("aliases.db", "__db.*"))
        store.close()
        shutil.rmtree(folder)
        folder.with_name("image").rename(folder)
    else:
        store.close()
        (store.root / "mboxlist" / "aliases.db").unlink()
    return open_store(store.root, SMALL)


@pytest.mark.long
@pytest.mark.parametrize("crash", [False, True])
def test_a_lost_table_is_made_anew_from_the_rows(store, directory, crash):
    directory.change("bob", aliases=["robert"])
    store.__dict__.update(lose_table(store, crash).__dict__)
    assert table(store) == [(INFO, "alice"), ("robert", "bob"), (SALES, "alice")]
    assert check(store) == []
    assert store.directory.look_up("robert").user == "bob"


def test_a_crash_leaves_both_or_neither(store, directory):
    directory.change("bob", aliases=["robert"])
    store.__dict__.update(reopen_after_crash(store).__dict__)
    assert store.directory.look_up("robert").user == "bob"
    assert store.directory.find("bob").aliases == ("robert",)


def put(store, alias, user):
    transact(store.mailboxes.env, lambda txn: store.mailboxes.aliases.put(alias.encode(), user.encode(), txn))


def drop(store, alias):
    transact(store.mailboxes.env, lambda txn: store.mailboxes.aliases.delete(alias.encode(), txn))


DAMAGE = {
    "a row too much": (lambda store: put(store, "stray", "bob"), {("stray", "bob", True)}),
    "of nobody": (lambda store: put(store, "stray", "nobody"), {("stray", "nobody", True)}),
    "a row that is missing": (lambda store: drop(store, INFO), {(INFO, "alice", False)}),
    "another's": (lambda store: put(store, INFO, "aaron"), {(INFO, "aaron", True), (INFO, "alice", False)}),
    "a later one's": (lambda store: put(store, INFO, "zoe"), {(INFO, "zoe", True), (INFO, "alice", False)}),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_repaired(store, directory, what):
    damage, wrong = DAMAGE[what]
    damage(store)
    assert set(directory.wrong_aliases()) == wrong
    found = check(store)
    assert {finding.where for finding in found} == {f"alias {alias}" for alias, *_ in wrong}
    assert {finding.repair for finding in found} == {RECONSTRUCT} and len(found) == len(wrong)
    done = recount.recount(store, store.partitions["primary"])
    assert {correction.where for correction in done} == {f"alias {alias}" for alias, *_ in wrong}
    assert table(store) == [(INFO, "alice"), (SALES, "alice")]


def test_an_alias_that_two_rows_have_stays_whose_it_is(store, directory):
    """Nothing makes this but damage; and erasing the other one's row takes nothing from the first."""
    other = User(Account("aaron", "primary"), HASH)
    directory.insert(other)
    twice = evolve(other, account=evolve(other.account, aliases=(INFO,)))
    transact(store.mailboxes.env, lambda txn: store.mailboxes.users.put(b"aaron", twice.to_bytes(), txn))
    assert directory.reconcile_aliases() == [(INFO, "aaron", False)]
    assert directory.look_up(INFO).user == "alice"
    directory.remove("aaron")
    assert directory.look_up(INFO).user == "alice"


@pytest.mark.long
def test_a_rebuild_brings_whole_rows_back(tmp_path):
    """Groups, aliases, and since when a user is removed: a removed user whose time were lost would go at once."""
    store = make_store(tmp_path / "store")
    store.directory.change("alice", aliases=[INFO], groups=["staff"])
    store.directory.change("bob", aliases=[SALES])
    lifecycle.remove_user(store, "bob", now=1_000_000_000)
    before = [store.directory.user(user) for user in ("alice", "bob")]
    store.close()
    (tmp_path / "store" / "mboxlist").rename(tmp_path / "old")
    shutil.rmtree(tmp_path / "store/partitions/primary/index")
    found = salvage_users(tmp_path / "old" / "users.db")
    assert rebuild(tmp_path / "store", SMALL, users=found).findings == []
    store = open_store(tmp_path / "store", SMALL)
    assert [store.directory.user(user) for user in ("alice", "bob")] == before
    assert table(store) == [(INFO, "alice"), (SALES, "bob")]
    assert check(store) == []
    store.close()
