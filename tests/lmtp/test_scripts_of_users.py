"""Sieve at delivery, over LMTP: what scripts want is done, in one transaction, and mail is never lost by them."""

import time
from functools import partial

import pytest

from mboxlist.engine.transact import Commits
from mboxlist.names import INBOX, MailboxName
from store.errors import Problem, StoreError
from store.events import outgoingfiles, receivers
from store.events.outgoingmail import message_of, named_files
from store.filtering import filters, userscripts
from store.filtering.allowance import HOUR
from store.filtering.filters import Filters
from store.filtering.sievesettings import Settings
from store.mailboxes import deletion, namespace
from store.mailboxes.authorization import annotations
from store.metrics.processcounters import Counters
from store.opening import open_store
from store.store import Store
from store.users import renaming
from tests.lmtp.conversation import Step
from tests.lmtp.test_delivery import deliver, message_files

HEAD = b"From: Ann <ann@example.net>\r\nTo: alice@example.org\r\nSubject: plans\r\nMessage-ID: <%b@example.net>\r\n"


def message(name, more=b"", body=b"text\r\n"):
    return HEAD % name.encode() + more + b"\r\n" + body


@pytest.fixture
def mail(place):
    """Gives users scripts and delivers; `letters` are what waits in the outbox."""
    place.prepare([Step(1, "have", "alice; bob; carol; alice/Lists; alice/Junk; bob/Lists")])
    relay = receivers.Receiver("relay", kind="mail")
    place.store.recorder.receivers = receivers.Receivers.of((relay,))
    yield Mail(place)
    place.store.recorder.receivers = receivers.Receivers()
    for partition in place.store.partitions.values():
        partition.transact(
            lambda txn: txn.partition.outbox.remove(list(txn.partition.outbox.every("relay")), txn.handle))


class Mail:
    def __init__(self, place):
        self.place, self.store = place, place.store

    def script(self, user, text):
        account = self.store.directory.user(user).account
        userscripts.put(self.store, account, "main", text.encode())
        userscripts.activate(self.store, user, "main")

    def count(self, mailbox):
        return len(self.place.messages(mailbox))

    def letters(self):
        return [message_of(parcel, self.store.root) for partition in self.store.partitions.values()
                for parcel in partition.outbox.every("relay")]


def test_without_a_script_mail_goes_to_the_inbox(mail):
    assert deliver(mail.place, ["alice"], message("none"))[0].startswith(b"250 ")
    assert mail.count("alice/INBOX") == 1


def test_mail_is_filed_once_for_many_whose_scripts_differ(mail):
    mail.script("alice", 'require "fileinto"; if header :contains "subject" "plans" { fileinto "Lists"; }')
    mail.script("bob", 'require ["fileinto", "copy"]; fileinto :copy "Lists";')
    before = message_files(mail.store.partitions["primary"].files)
    replies = deliver(mail.place, ["alice", "bob", "carol"], message("many"))
    assert [reply[:4] for reply in replies] == [b"250 "] * 3
    assert [mail.count(box) for box in ("alice/INBOX", "alice/Lists", "bob/INBOX", "bob/Lists", "carol/INBOX")] == [
        0, 1, 1, 1, 1]
    assert len(message_files(mail.store.partitions["primary"].files) - before) == 1


@pytest.fixture
def runs(monkeypatch):
    """For whom scripts run."""
    found, true = [], filters.run

    def noted(trees, state):
        found.append(state.envelope.recipient)
        return true(trees, state)

    monkeypatch.setattr(filters, "run", noted)
    return found


def test_a_script_of_several_recipients_runs_once(mail, runs):
    """What it says is the same for all of them; where it goes is each one's own mailbox."""
    for user in ("alice", "bob"):
        mail.script(user, 'require "fileinto"; if header :contains "subject" "plans" { fileinto "Lists"; }')
    deliver(mail.place, ["alice", "bob", "carol"], message("once"))
    assert len(runs) == 1
    assert [mail.count(box) for box in ("alice/Lists", "bob/Lists", "carol/INBOX")] == [1, 1, 1]


@pytest.mark.parametrize("test", [
    'envelope :is "to" "bob@example.org"', 'not mailboxexists "Junk"', 'envelope :matches ["from", "TO"] "bob@*"'])
def test_a_script_that_asks_who_it_runs_for_runs_for_each(mail, runs, test):
    for user in ("alice", "bob"):
        mail.script(user, f'require ["fileinto", "envelope", "mailbox"]; if {test} {{ fileinto "Lists"; }}')
    deliver(mail.place, ["alice", "bob"], message(f"each {test[:5]}{len(test)}"))
    assert len(runs) == 2
    assert [mail.count(box) for box in ("alice/Lists", "bob/Lists")] == [0, 1]


def test_what_one_script_changes_the_next_recipients_script_does_not_see(mail):
    mail.script("alice", 'require "editheader"; deleteheader "subject"; addheader "X-Mine" "yes";')
    mail.script("bob", """require "fileinto";
        if allof (not exists "x-mine", header "subject" "plans") { fileinto "Lists"; }""")
    deliver(mail.place, ["alice", "bob"], message("changed"))
    assert (mail.count("alice/INBOX"), mail.count("bob/Lists")) == (1, 1)
    assert b"Subject" not in mail.place.messages("alice/INBOX")[0]


def test_discard_says_yes_and_keeps_nothing(mail):
    mail.script("alice", "discard;")
    assert deliver(mail.place, ["alice"], message("discard"))[0].startswith(b"250 ")
    assert mail.count("alice/INBOX") == 0


def test_reject_is_the_reply_of_that_recipient(mail):
    mail.script("alice", 'require "ereject"; ereject "Not here.\nGo away.";')
    replies = deliver(mail.place, ["alice", "bob"], message("reject"))
    assert replies == [b"550-5.7.1 Not here.", b"550 5.7.1 Go away.", replies[2]] and replies[2].startswith(b"250 ")
    assert (mail.count("alice/INBOX"), mail.count("bob/INBOX")) == (0, 1)


def test_a_missing_mailbox_means_the_inbox(mail):
    mail.script("alice", 'require "fileinto"; fileinto "Nowhere";')
    deliver(mail.place, ["alice"], message("missing"))
    assert mail.count("alice/INBOX") == 1


def test_create_makes_the_mailbox(mail):
    mail.script("alice", 'require ["fileinto", "mailbox"]; fileinto :create "New/Deep";')
    deliver(mail.place, ["alice"], message("create"))
    assert (mail.count("alice/INBOX"), mail.count("alice/New/Deep")) == (0, 1)


def test_a_mailbox_is_found_by_its_id_whatever_it_is_called(mail):
    """RFC 9042 §3: the id, and where there is none, the name, also with :create (§3.1); §4."""
    lists, bobs = (mail.store.mailboxes.find(MailboxName(user, "Lists")) for user in ("alice", "bob"))
    script = 'require ["fileinto", "mailboxid", "mailbox"]; fileinto :mailboxid "%s" :create "%s";'
    mail.script("alice", script % (lists.object_id, "Other"))
    deliver(mail.place, ["alice"], message("one"))
    namespace.rename_mailbox(mail.store, lists.name, MailboxName("alice", "Renamed"))
    deliver(mail.place, ["alice"], message("two"))
    assert mail.count("alice/Renamed") == 2 and mail.store.mailboxes.find(MailboxName("alice", "Other")) is None
    for wrong in (bobs.object_id, "Mffff-1", lists.object_id.upper(), "M123456789-1", f"{lists.object_id}0", ""):
        mail.script("alice", script % (wrong, "Other"))
        deliver(mail.place, ["alice"], message(f"not {wrong}"))
    assert mail.count("alice/Other") == 6 and mail.count("bob/Lists") == 0
    mail.script("alice", f'require ["fileinto", "mailboxid"]; if allof (mailboxidexists "{lists.object_id}", not '
                         f'mailboxidexists ["{lists.object_id}", "{bobs.object_id}"]) {{ fileinto "Renamed"; }}')
    deliver(mail.place, ["alice"], message("exists"))
    assert mail.count("alice/Renamed") == 3


def test_a_special_use_is_looked_up_and_not_searched_for_each_message(mail, monkeypatch):
    """RFC 8579: where the mailbox is, or that there is none, is remembered, and never wrong."""
    walks, names = [], Store.names
    monkeypatch.setattr(Store, "names", lambda store, owner: (walks.append(owner), names(store, owner))[1])
    mail.script("alice", r'require ["fileinto", "special-use"]; fileinto :specialuse "\\JUNK" "Lists";')
    made = []

    def come(expected, walked):
        del walks[:]
        made.append(expected)
        deliver(mail.place, ["alice"], message(f"special {len(made)}"))
        assert (mail.count(expected), len(walks)) == (made.count(expected), walked)

    come("alice/Lists", 1)
    come("alice/Lists", 0)
    namespace.create_mailbox(mail.store, MailboxName("alice", "Spam"), special_use="\\Junk")
    come("alice/Spam", 1)
    come("alice/Spam", 0)
    namespace.rename_mailbox(mail.store, MailboxName("alice", "Spam"), MailboxName("alice", "Unwanted"))
    made[:] = ["alice/Unwanted"] * made.count("alice/Spam")
    come("alice/Unwanted", 0)
    deletion.delete_mailbox(mail.store, MailboxName("alice", "Unwanted"))
    made[:] = ["alice/Lists"] * 2
    come("alice/Lists", 1)


def test_a_script_that_fails_keeps_the_message(mail):
    mail.script("alice", 'require ["fileinto", "ihave"]; fileinto "Lists"; error "no";')
    deliver(mail.place, ["alice"], message("fails"))
    note, kept = sorted(mail.place.messages("alice/INBOX"))
    assert kept.endswith(message("fails")) and mail.count("alice/Lists") == 0
    assert b"Subject: A mail filter failed\r\n" in note and b"line 1, column 50: no\r\n" in note
    deliver(mail.place, ["alice"], message("fails again"))
    assert mail.count("alice/INBOX") == 3               # no second note on that day


def test_redirect_leaves_by_the_outbox(mail):
    mail.script("alice", 'redirect "away@example.com";')
    deliver(mail.place, ["alice"], message("redirect"))
    (sender, recipient, octets), = mail.letters()
    assert (sender, recipient) == ("sender@example.org", "away@example.com")
    assert octets.startswith(b"X-Sieve-Redirected-From: alice@example.org\r\nReceived: ")
    assert octets.endswith(message("redirect"))
    assert mail.count("alice/INBOX") == 0


def test_what_is_sent_on_has_no_return_path(mail):
    """RFC 5321 §4.4: only what is delivered has one. A line of the text that looks so stays."""
    mail.script("alice", 'require "editheader"; addheader "X-Rule" "1"; redirect "away@example.com";')
    deliver(mail.place, ["alice"], message("fields", b"return-path:\r\n <old@example.net>\r\n",
                                           b"Return-Path: <text@example.net>\r\n"))
    (_, _, octets), = mail.letters()
    head, _, body = octets.partition(b"\r\n\r\n")
    assert b"return-path" not in head.lower() and b"old@example.net" not in head
    assert b"X-Rule: 1" in head and b"Message-ID: <fields@example.net>" in head
    assert body == b"Return-Path: <text@example.net>\r\n"


@pytest.mark.parametrize("recipient", ["alice", "alice@example.org", "alice+lists"])
def test_who_answers_has_a_whole_address(mail, recipient):
    """RFC 5322 §3.4: a relay may name a recipient of the default domain without it; what goes out may not."""
    mail.script("alice", 'require "vacation"; vacation "I am away.";')
    deliver(mail.place, [recipient], message("whole"))
    (_, _, octets), = mail.letters()
    whole = recipient.partition("@")[0].encode() + b"@example.org"
    assert b"From: " + whole + b"\r\n" in octets and b"@example.org>\r\nAuto-Submitted" in octets


def test_what_comes_back_is_not_sent_on_again(mail):
    mail.script("alice", 'redirect "away@example.com";')
    deliver(mail.place, ["alice"], message("circle", b"X-Sieve-Redirected-From: alice@example.org\r\n"))
    assert mail.letters() == [] and mail.count("alice/INBOX") == 1


def test_a_large_message_leaves_as_a_file(mail):
    mail.script("alice", 'redirect "away@example.com"; redirect "other@example.com";')
    large = message("large", body=b"0123456789.\r\n" * 22_000)
    assert deliver(mail.place, ["alice"], large)[0].startswith(b"250 ")
    first, second = mail.letters()
    assert first[2] == second[2] and first[2].endswith(large) and mail.count("alice/INBOX") == 0
    folder = mail.store.root / outgoingfiles.FOLDER
    name, = (path.name for path in folder.iterdir())        # one for both
    rows = partial(named_files, mail.store.recorder, [each.outbox for each in mail.store.partitions.values()])
    later = time.time() + 2 * outgoingfiles.WAITS
    assert outgoingfiles.sweep(mail.store.root, rows, later) == 0 and [path.name for path in folder.iterdir()] == [name]
    assert outgoingfiles.sweep(mail.store.root, tuple, time.time()) == 0          # its row may be on its way
    assert outgoingfiles.sweep(mail.store.root, tuple, later) == 1 and not list(folder.iterdir())
    with pytest.raises(ValueError, match="its file cannot be read"):
        mail.letters()


def test_without_a_relay_what_would_be_sent_on_stays(mail):
    mail.store.recorder.receivers = receivers.Receivers()
    mail.script("alice", 'redirect "away@example.com";')
    deliver(mail.place, ["alice"], message("no relay"))
    assert mail.count("alice/INBOX") == 1


def test_a_user_fills_the_relays_queue_for_nobody(mail):
    """Of what scripts send there is a limit by user and hour; what would be sent on is kept then."""
    mail.script("alice", 'redirect "away@example.com";')
    mail.script("bob", 'redirect "away@example.com";')
    filters = Filters.of(mail.store)
    old, filters.settings = filters.settings, Settings(hourly=2)
    filters.allowance.clock = lambda: now[0]
    now = [HOUR * 1e6]                  # no hour that the machine has been up: in its own, others have sent
    try:
        for number in range(3):
            deliver(mail.place, ["alice"], message(f"many {number}"))
        assert len(mail.letters()) == 2 and mail.count("alice/INBOX") == 1
        deliver(mail.place, ["bob"], message("his"))
        now[0] += HOUR
        deliver(mail.place, ["alice"], message("an hour later"))
        assert len(mail.letters()) == 4 and mail.count("alice/INBOX") == 1
    finally:
        filters.settings, filters.allowance.clock = old, time.monotonic


def test_vacation_answers_a_sender_once(mail):
    mail.script("alice", 'require "vacation"; vacation :days 3 :addresses "alice@example.org" "I am away.";')
    for name in ("one", "two"):
        deliver(mail.place, ["alice"], message(name))
    (sender, recipient, octets), = mail.letters()
    assert (sender, recipient) == ("", "sender@example.org")
    head, _, body = octets.partition(b"\r\n\r\n")
    assert b"Subject: Auto: plans" in head and b"In-Reply-To: <one@example.net>" in head
    assert b"Auto-Submitted: auto-replied" in head and body == b"I am away."
    assert mail.count("alice/INBOX") == 2


@pytest.mark.parametrize("more", [
    b"List-Id: <x.example.net>\r\n", b"Auto-Submitted: auto-generated\r\n", b"Precedence: bulk\r\n"])
def test_vacation_answers_no_program(mail, more):
    mail.script("alice", 'require "vacation"; vacation :addresses "alice@example.org" "I am away.";')
    deliver(mail.place, ["alice"], message("robot", more))
    assert mail.letters() == [] and mail.count("alice/INBOX") == 1


def test_a_changed_header_is_of_that_recipient_alone(mail):
    mail.script("alice", 'require "editheader"; addheader "X-Seen-By" "alice"; deleteheader "subject";')
    mail.script("bob", 'require "editheader"; addheader "X-Seen-By" "bob";')
    deliver(mail.place, ["alice", "bob", "carol"], message("edit"))
    (alice,), (bob,), (carol,) = (mail.place.messages(f"{user}/INBOX") for user in ("alice", "bob", "carol"))
    assert alice.startswith(b"X-Seen-By: alice\r\nReturn-Path:") and b"Subject" not in alice
    assert bob.startswith(b"X-Seen-By: bob\r\nReturn-Path:") and b"Subject: plans" in bob
    assert b"X-Seen-By" not in carol


def test_messages_that_scripts_edit_come_in_the_transaction_of_all_others(mail, place):
    """Two that become the same message have one file; a recipient who is refused gets nothing, and harms no other."""
    place.prepare([Step(1, "have", "small room=700; small/Lists")])
    for user in ("alice", "bob", "small"):
        mail.script(user, 'require ["editheader", "fileinto", "copy"]; fileinto :copy "Lists"; deleteheader "subject"; '
                          'keep; redirect :copy "away@example.com";')
    deliver(mail.place, ["carol"], message("makes an INBOX"))
    files, commits = mail.store.partitions["primary"].files, Commits.total
    before = message_files(files)
    replies = deliver(mail.place, ["alice", "bob", "carol"], message("edited", body=b"x" * 200 + b"\r\n"))
    assert [reply[:3] for reply in replies] == [b"250"] * 3 and Commits.total == commits + 1
    assert len(message_files(files) - before) == 2 and len(mail.letters()) == 2
    for user in ("alice", "bob"):
        (edited,), (filed,) = mail.place.messages(f"{user}/INBOX"), mail.place.messages(f"{user}/Lists")
        assert filed.replace(b"Subject: plans\r\n", b"") == edited and b"Subject" in filed
    replies = deliver(mail.place, ["small", "alice"], message("too much", body=b"y" * 200 + b"\r\n"))
    assert [reply[:3] for reply in replies] == [b"452", b"250"]
    assert (mail.count("small/INBOX"), mail.count("small/Lists"), mail.count("alice/INBOX")) == (0, 0, 2)
    assert len(mail.letters()) == 3


def test_a_group_is_delivered_to_whole_or_not_at_all(mail, place):
    place.prepare([Step(1, "have", "small room=700; small/Lists")])
    mail.script("small", 'require ["fileinto", "copy"]; fileinto :copy "Lists";')
    replies = deliver(mail.place, ["small", "carol"], message("whole", body=b"x" * 200 + b"\r\n"))
    assert [reply[:3] for reply in replies] == [b"452", b"250"]
    assert (mail.count("small/INBOX"), mail.count("small/Lists"), mail.count("carol/INBOX")) == (0, 0, 1)


def test_switched_off_no_script_runs(mail):
    mail.script("alice", "discard;")
    filters = Filters.of(mail.store)
    old, filters.settings = filters.settings, Settings(enabled=False)
    try:
        deliver(mail.place, ["alice"], message("off"))
    finally:
        filters.settings = old
    assert mail.count("alice/INBOX") == 1


def test_what_another_process_changes_holds_for_the_next_message(mail):
    """Which scripts run is remembered (`knownscripts`, `MailboxNames.scripted`), until anybody changes anything."""
    other = open_store(mail.store.root, mail.store.settings)
    main = partial(userscripts.put, other, other.directory.user("alice").account, "main")
    changes = [lambda: main(b'require "fileinto"; fileinto "Lists";'), lambda: userscripts.activate(
        other, "alice", "main"), lambda: main(b"discard;"), lambda: other.directory.change("alice", sieve="enabled=no"),
        lambda: other.directory.change("alice", sieve=""),
        lambda: other.directory.domains.set_sieve("example.org", "enabled=no"),
        lambda: other.directory.domains.set_sieve("example.org", ""), lambda: userscripts.activate(other, "alice", ""),
        lambda: userscripts.take_over(other, "alice", ("discard;",)),
        lambda: other.directory.change("alice", aliases=["carol2"]), lambda: userscripts.take_over(other, "alice", ())]
    found = []
    for number, change in enumerate([lambda: None, *changes]):
        change()
        deliver(mail.place, ["carol2" if number == 10 else "alice"], message(f"change{number}"))
        found.append((mail.count("alice/INBOX"), mail.count("alice/Lists")))
    assert found == [(1, 0), (2, 0), (2, 1), (2, 1), (3, 1), (3, 1), (4, 1), (4, 1), (5, 1), (5, 1), (5, 1), (6, 1)]
    other.close()


def test_a_script_that_is_changed_while_a_message_comes_runs_as_it_is_at_the_end(mail):
    for number, text in enumerate(['require "fileinto"; fileinto "Lists";', "discard;", "keep;"]):
        mail.place.connect()
        mail.place.wire.send(b"LHLO x\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<alice>\r\nDATA\r\n")
        mail.script("alice", text)
        mail.place.wire.send(message(f"slow{number}") + b".\r\n")
        assert b"\r\n250 " in mail.place.wire.received()
        assert (mail.count("alice/INBOX"), mail.count("alice/Lists")) == (number // 2, 1)


@pytest.mark.parametrize("box", ["", "+Lists"])
def test_a_mailbox_that_gets_another_owner_follows_that_ones_script(mail, box):
    """A message is for a mailbox when its user gets another name; what is found for it then is not what holds for the
    next message."""
    mail.store.directory.change("alice", sieve="enabled=no")
    mail.script("alice", "discard;")
    mail.place.connect()
    mail.place.wire.send(b"LHLO x\r\nMAIL FROM:<a@example.net>\r\nRCPT TO:<alice%b>\r\n" % box.encode())
    renaming.rename_user(mail.store, "alice", "ada")
    mail.store.directory.change("ada", sieve="enabled=no" if not box else "")
    mail.place.wire.send(b"DATA\r\n" + message("first") + b".\r\n")
    mail.place.wire.received()
    before = mail.count("ada/INBOX"), mail.count("ada/Lists")
    deliver(mail.place, [f"ada{box}"], message("second"))
    after = mail.count("ada/INBOX"), mail.count("ada/Lists")
    assert after == (before if box else (before[0] + 1, before[1]))


def test_a_message_is_refused_for_now_where_nobody_can_say_which_scripts_run(mail, monkeypatch):
    """Its file goes, or else `store` complains."""
    mail.script("alice", "discard;")
    with monkeypatch.context() as patched:
        patched.setattr(type(mail.store.mailboxes), "scripted", _unknown)
        assert [reply[:4] for reply in deliver(mail.place, ["alice", "bob"], message(
            "unknown", body=b"a file of its own\r\n" * 15_000))] == [b"451 "] * 2
    assert deliver(mail.place, ["bob"], message("unknown"))[0].startswith(b"250 ") and mail.count("bob/INBOX") == 1


def _unknown(*_):
    raise StoreError(Problem.UNAVAILABLE)


def test_what_is_undone_is_not_remembered(mail):
    """What a transaction has changed can be seen before its end; when it is undone the log does not grow."""
    mail.script("alice", "discard;")
    names, inbox = mail.store.mailboxes, mail.store.entry(MailboxName("alice", INBOX))
    txn = names.env.begin()
    names.annotations.set(inbox.id, userscripts.ACTIVE, None, txn)
    assert names.scripted([inbox]) is None
    txn.abort()
    deliver(mail.place, ["alice"], message("undone"))
    assert mail.count("alice/INBOX") == 0


def test_scripts_are_no_annotations_that_clients_see(mail):
    mail.script("alice", "keep;")
    entry = mail.store.mailboxes.find(MailboxName("alice", INBOX))
    assert annotations(mail.store, entry, "alice") == {}


def test_what_scripts_do_is_counted(mail):
    """For /metrics, by kinds of which there is a fixed number."""
    counters = Counters.of(mail.store).scripts

    def added(deliver_to, text, name):
        before = {**counters.actions, **counters.failures}, sum(counters.seconds.counts)
        for user in deliver_to:
            mail.script(user, text)
        deliver(mail.place, deliver_to, message(name))
        assert sum(counters.steps.counts) == sum(counters.seconds.counts)
        after = {**counters.actions, **counters.failures}
        return {kind: number - before[0][kind] for kind, number in after.items() if number != before[0][kind]}, (
            sum(counters.seconds.counts) - before[1])

    for text, expected in {
            "keep;": {"keep": 1}, "discard;": {"discard": 1}, 'require "fileinto"; fileinto "Lists";': {"fileinto": 1},
            'require "fileinto"; fileinto "Nowhere";': {"fileinto": 1, "not done": 1},
            'redirect "a@example.com"; redirect "b@example.com";': {"redirect": 2},
            'require "ereject"; ereject "no";': {"reject": 1},
            'require ["vacation", "enotify"]; vacation "x"; notify "mailto:a@example.com";': {
                "keep": 1, "vacation": 1, "notify": 1},
            'require "ihave"; error "no";': {"keep": 1, "script": 1}}.items():
        assert added(["alice"], text, f"counted {len(text)}") == (expected, 1)
    many = ",".join(['"subject"'] * 2000)
    big = f"if header :contains [{many}] [{many}] {{ discard; }}"
    assert added(["alice"], big, "too much")[0] == {"keep": 1, "limit": 1}
    assert added(["alice", "bob"], 'keep; redirect "x@example.com";', "two") == ({"keep": 2, "redirect": 2}, 1)
    assert set(counters.figures()) == {"seconds", "steps", "actions", "failures"}
