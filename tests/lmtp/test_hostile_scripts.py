"""Sieve at delivery against who means harm: a script harms nobody but its owner, and mail is never refused by one."""

import time

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.filtering import disposition, filters, knownscripts, userscripts
from store.mailboxes.authorization import set_acl
from store.values import Flag
from tests.lmtp.conversation import Step
from tests.lmtp.test_delivery import deliver
from tests.lmtp.test_scripts_of_users import Mail, mail, message

__all__ = ["Mail", "mail"]          # a fixture is found by its name

VACATION = 'require "vacation"; vacation :addresses "alice@example.org" "I am away.";'


def found(mail, owner, path):
    return mail.store.mailboxes.find(MailboxName(owner, path))


@pytest.mark.parametrize("name", ["user/bob/Planted", "user/bob/Lists/Planted", "public/Planted"])
def test_a_script_makes_no_mailbox_where_its_owner_may_not(mail, name):
    mail.script("alice", f'require ["fileinto", "mailbox"]; fileinto :create "{name}";')
    assert deliver(mail.place, ["alice"], message("create"))[0].startswith(b"250 ")
    assert mail.count("alice/INBOX") == 1
    assert found(mail, "bob", "Planted") is found(mail, "bob", "Lists/Planted") is found(mail, "", "Planted") is None


def test_a_script_makes_a_mailbox_where_its_owner_may(mail):
    set_acl(mail.store, MailboxName("bob", "Lists"), "alice", "lrik")
    mail.script("alice", 'require ["fileinto", "mailbox"]; fileinto :create "user/bob/Lists/Given";')
    deliver(mail.place, ["alice"], message("create"))
    assert mail.count("bob/Lists/Given") == 1


def test_in_a_mailbox_of_another_one_only_flags_that_the_rights_allow(mail):
    """RFC 4314 §4: what a user may not set is left away."""
    set_acl(mail.store, MailboxName("bob", "Lists"), "alice", "lris")
    mail.script("alice", r'require ["fileinto", "imap4flags"]; fileinto :flags ["\\Deleted", "\\Seen", "mine"] '
                         '"user/bob/Lists";')
    deliver(mail.place, ["alice"], message("flags"))
    entry = found(mail, "bob", "Lists")
    row, = mail.store.open_mailbox(entry).rows
    assert not row["flags"] & Flag.DELETED.value and not row["keywords"]


@pytest.mark.parametrize("more", [
    b"Message-ID: <" + b"x" * 9000 + b"@example.net>\r\n",
    b"Message-ID: <x" + b" " * 12_000 + b"x@example.net>\r\n",
    b"Message-ID: <x" + b" \r\n " * 60_000 + b"x@example.net>\r\n",
    b"References: " + b"<" + b"y" * 500 + b"@example.net> " * 400 + b"\r\n"], ids=["long", "blanks", "folds", "many"])
def test_no_header_of_a_stranger_makes_a_script_refuse_mail(mail, more):
    mail.script("alice", VACATION)
    octets = message("header").replace(b"Message-ID: <header@example.net>\r\n", more)
    assert [reply[:4] for reply in deliver(mail.place, ["alice", "bob"], octets)] == [b"250 "] * 2
    assert (mail.count("alice/INBOX"), mail.count("bob/INBOX")) == (1, 1)
    (_, _, letter), = mail.letters()
    assert max(map(len, letter.split(b"\r\n"))) <= 998 and letter.endswith(b"\r\n\r\nI am away.")


@pytest.mark.parametrize("subject", [
    b"=?utf-8?q?a=0D=0AX-Evil=3A_1?=", b"=?utf-8?q?=C3=A9=0B=0BX-Evil=3A_1?=", b"=?utf-8?q?a=0CX-Evil=3A_1?=",
    b"a\x00b", b"=?utf-8?q?=C2=85=C2=85X-Evil=3A_1?=", b"=?utf-8?q?=E2=80=A8X-Evil=3A?="])
def test_a_subject_adds_no_field_to_an_answer(mail, subject):
    mail.script("alice", VACATION)
    deliver(mail.place, ["alice"], message("subject").replace(b"plans", subject))
    (_, _, letter), = mail.letters()
    head = letter.partition(b"\r\n\r\n")[0]
    assert b"\nX-Evil" not in head and b"\nX-Evil" not in letter
    assert not [octet for octet in head.replace(b"\r\n", b"") if octet < 32 and octet != 9 or octet > 126]


def test_what_is_added_to_the_header_stays_one_field(mail):
    text = "x" * 950 + "\x0b\x0bX-Evil: 1\x0c\x0c\x1cmore"
    mail.script("alice", f'require "editheader"; addheader "X-Long" "{text}";')
    assert deliver(mail.place, ["alice"], message("long"))[0].startswith(b"250 ")
    kept, = mail.place.messages("alice/INBOX")
    assert kept.startswith(b"X-Long: ") and b"\nX-Evil" not in kept and b"\n\r\n" not in kept[:900]


def test_an_error_of_ours_in_one_script_keeps_the_message_for_all(mail, monkeypatch):
    mail.script("alice", "discard;")
    mail.script("bob", "keep;")
    def broken(*_):
        raise ZeroDivisionError
    monkeypatch.setattr(disposition.Disposer, "dispose", broken)
    assert [reply[:4] for reply in deliver(mail.place, ["alice", "bob", "carol"], message("error"))] == [b"250 "] * 3
    assert [mail.count(f"{user}/INBOX") for user in ("alice", "bob", "carol")] == [1, 1, 1]


def test_an_answer_that_is_too_large_is_not_sent(mail):
    mail.script("alice", 'require ["vacation", "variables"]; set "a" "' + "\U0001f600" * 4096 + '"; set "b" "'
                + "${a}" * 16 + '"; vacation :addresses "alice@example.org" "${b}";')
    assert deliver(mail.place, ["alice"], message("answer"))[0][:4] == b"250 "
    assert (mail.count("alice/INBOX"), mail.letters()) == (1, [])


def test_an_answer_in_a_period_also_when_each_message_makes_another_one(mail):
    """Setting `sieve.vacation_least`."""
    mail.script("alice", 'require ["vacation", "variables"]; if header :matches "message-id" "*" { vacation :handle '
                         '"${1}" :subject "${1}" :addresses "alice@example.org" "About ${1}."; }')
    for name in ("first", "second"):
        deliver(mail.place, ["alice"], message(name))
    assert len(mail.letters()) == 1


def test_a_reason_of_any_octets_is_one_reply(mail):
    mail.script("alice", 'require "ereject"; ereject "N\u00f6t\x00\x07 here.\x0b250 2.1.5 Ok\u2028550 x";')
    reply = deliver(mail.place, ["alice", "bob"], message("reason"))
    assert all(line[:9] in (b"550-5.7.1", b"550 5.7.1") and line.isascii() and line.decode().isprintable()
               for line in reply[:-1]) and reply[-1].startswith(b"250 ")


def test_a_mark_of_a_circle_cannot_be_taken_away(mail):
    mail.script("alice", 'require ["editheader", "enclose"]; deleteheader "X-Sieve-Redirected-From"; enclose "new"; '
                         'redirect "away@example.com";')
    deliver(mail.place, ["alice"], message("mark", b"X-Sieve-Redirected-From: bob\r\n"))
    (_, _, octets), = mail.letters()
    head = octets.partition(b"\r\n\r\n")[0]
    assert b"X-Sieve-Redirected-From: alice@example.org\r\n" in head and b"X-Sieve-Redirected-From: bob\r\n" in head


def test_what_many_scripts_have_sent_on_is_kept(mail):
    """Each of several users sends on to several others: without this the letters are as many as the ways."""
    mail.script("alice", 'redirect "away@example.com";')
    marks = b"".join(b"X-Sieve-Redirected-From: u%d@example.net\r\n" % one for one in range(5))
    deliver(mail.place, ["alice"], message("marks", marks))
    assert mail.letters() == [] and mail.count("alice/INBOX") == 1


def test_what_takes_long_runs_in_a_thread_and_once(mail, monkeypatch):
    """The event loop has a few milliseconds for scripts; what takes more is done from the beginning in a thread."""
    at_once = []
    true = filters.run

    def noted(trees, state):
        at_once.append(state.limits is filters.QUICK_RUN)
        return true(trees, state)

    monkeypatch.setattr(filters, "run", noted)
    keys = ",".join(['"nothing"'] * 2000)
    mail.script("alice", f'if header :contains "x-many" [{keys}] {{ discard; }}')
    many = b"X-Many: a\r\n" * 100
    for name, more, expected in (("compiled", b"", [False]), ("quick", b"", [True]), ("long", many, [True, False])):
        at_once.clear()
        assert deliver(mail.place, ["alice"], message(name, more))[0][:4] == b"250 "
        assert at_once == expected
    assert mail.count("alice/INBOX") == 3


def test_scripts_that_include_others_run_in_a_thread_and_are_compiled_once(mail, monkeypatch):
    compiled = []
    true = userscripts.compile_script

    def noted(text, *more):
        compiled.append(text)
        return true(text, *more)

    account = mail.store.directory.user("alice").account
    userscripts.put(mail.store, account, "part", b"keep;# part")
    mail.script("alice", 'require "include"; include "part"; include "part"; include "part";')
    monkeypatch.setattr(userscripts, "compile_script", noted)
    for name in ("one", "two"):
        deliver(mail.place, ["alice"], message(name))
    assert compiled.count("keep;# part") == 1 and mail.count("alice/INBOX") == 2


def test_compiled_scripts_take_bounded_memory(mail, monkeypatch):
    monkeypatch.setattr(knownscripts, "REMEMBERED_NODES", 150)
    of_store = filters.Filters.of(mail.store)
    for user in ("alice", "bob", "carol", "alice"):
        mail.script(user, "keep;" * 100 + f"# {user}")
        assert len(of_store.trees(user)) == 1
        known = of_store.known
        assert known._nodes == sum(tree.count for tree in known._trees.values()) <= 150


def test_mail_that_is_refused_leaves_no_note_at_each_try(mail, place):
    place.prepare([Step(1, "have", "full room=900; full/Notes")])
    mail.script("full", 'require ["vacation", "fcc"]; vacation :fcc "Notes" :addresses "alice@example.org" "Away.";')
    for _ in range(3):
        assert deliver(mail.place, ["full"], message("refused", body=b"x" * 1200 + b"\r\n"))[0][:3] in (b"452", b"552")
    assert (mail.count("full/INBOX"), mail.count("full/Notes"), mail.letters()) == (0, 0, [])


def test_a_copy_for_which_there_is_no_room_refuses_no_mail(mail, place):
    place.prepare([Step(1, "have", "tight room=900; tight/Notes")])
    mail.script("tight", 'require ["vacation", "fcc"]; vacation :fcc "Notes" :addresses "alice@example.org" "Away.";')
    assert deliver(mail.place, ["tight"], message("tight", body=b"x" * 300 + b"\r\n"))[0][:3] == b"250"
    assert (mail.count("tight/INBOX"), mail.count("tight/Notes"), len(mail.letters())) == (1, 0, 1)


def test_a_sender_has_a_script_make_few_mailboxes_in_a_day(mail):
    mail.script("alice", 'require ["fileinto", "mailbox", "variables"]; '
                         'if header :matches "X-To" "*" { fileinto :create "New/${1}"; }')
    of_store = filters.Filters.of(mail.store)
    partition = mail.store.partitions["primary"]
    old, partition.duplicates.clock = of_store.settings, lambda: 1_000_000_000.0
    of_store.settings = evolve(old, creations=3)
    try:
        for number in range(5):
            deliver(mail.place, ["alice"], message(f"new {number}", b"X-To: %d\r\n" % number))
        deliver(mail.place, ["alice"], message("known", b"X-To: 1\r\n"))
        assert [mail.count(f"alice/New/{number}") for number in range(3)] == [1, 2, 1]
        assert mail.count("alice/INBOX") == 2 and found(mail, "alice", "New/3") is None
        partition.duplicates.clock = lambda: 1_000_000_000.0 + 86_400
        deliver(mail.place, ["alice"], message("the next day", b"X-To: 4\r\n"))
        assert mail.count("alice/New/4") == 1
    finally:
        of_store.settings, partition.duplicates.clock = old, time.time
