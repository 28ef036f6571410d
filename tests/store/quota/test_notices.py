"""Notices: to whom, when, what they say, and at most once."""

from email import message_from_bytes, policy

import pytest
from attrs import evolve

from mboxlist.names import MailboxName
from store.accounts.base import Status
from store.check.wholecheck import check
from store.errors import Problem, StoreError
from store.events import outgoingmail, receivers
from store.events.eventvalues import MAIL
from store.events.receivers import Receiver, Receivers
from store.housekeeping import notices, tasks
from store.housekeeping.tasks import Round
from store.mailboxes import namespace
from store.quota import roots
from store.tables.quotatable import QuotaUse
from tests.support.stores.stores import SMALL, deliver, make_store, reopen_after_crash

DAY = 86400
NOW = 1_800_000_000                     # Fri, 15 Jan 2027 08:00:00 UTC
USERS = ("alice", "bob", "jürgen@xn--bcher-kva.example")


def nearly_full(tmp_path):
    """Alice has used 900 of 1000 octets, and has been told nothing."""
    made = make_store(tmp_path / "store", USERS, evolve(SMALL, quota_notice="on"))
    roots.set_quota(made, "alice", octets=1000)
    deliver(made, b"Subject: x\r\n\r\n".ljust(900, b"x"), "user/alice/INBOX")
    return made


@pytest.fixture
def store(tmp_path):
    """The same, checked in the end."""
    made = nearly_full(tmp_path)
    yield made
    for partition in made.partitions.values():
        partition.files.drop_staged_names()
        assert not list(partition.files.staging.iterdir())
    assert check(made) == []
    made.close()


def with_setting(store, **changes):
    store.settings = evolve(store.settings, **changes)


def read(store, user="alice", path="INBOX"):
    """The last message of a mailbox, as its octets."""
    entry = store.entry(MailboxName(user, path))
    with store.open_message(entry, store.open_mailbox(entry).rows[-1]) as file:
        return file.read(0, file.size)


def count(store, user="alice"):
    return store.status(store.entry(MailboxName(user, "INBOX"))).messages


def send_all(store, now):
    return [root for name, root in list(notices.pending(store, now)) if notices.send(store, (name, root), now)]


def test_one_notice_in_each_interval(store):
    assert send_all(store, NOW) == ["alice"]
    assert (count(store), roots.quota(store, "alice").warned) == (2, NOW)
    assert send_all(store, NOW + 7 * DAY - 1) == []
    assert send_all(store, NOW + 7 * DAY) == ["alice"]
    assert count(store) == 3


def test_it_is_a_message_that_people_and_programs_understand(store):
    send_all(store, NOW)
    octets = read(store)
    assert octets.startswith(b"Return-Path: <>\r\n")
    assert octets.count(b"\n") == octets.count(b"\r\n") and max(map(len, octets.split(b"\r\n"))) <= 78
    message = message_from_bytes(octets, policy=policy.default)
    assert not message.defects
    assert message["From"].addresses[0].addr_spec == "postmaster@example.org"
    assert message["To"].addresses[0].addr_spec == "alice@example.org"
    assert message["Subject"] == "Your mailbox is 90 % full"
    assert message["Date"] == "Fri, 15 Jan 2027 08:00:00 +0000"
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Message-ID"].startswith("<") and message["Message-ID"].endswith("@example.org>")
    assert message.get_content_type() == "text/plain" and message.get_content_charset() == "utf-8"
    text = message.get_content()
    assert "900 octets of 1000 octets" in text and "1 of any number of messages" in text and "for 5 days" in text
    assert "[" not in text


def test_each_notice_is_a_message_of_its_own(store):
    send_all(store, NOW)
    first = read(store)
    send_all(store, NOW + 7 * DAY)
    ids = [message_from_bytes(octets)["Message-ID"] for octets in (first, read(store))]
    assert len(set(ids)) == 2


def test_names_that_are_not_ascii_are_encoded(store):
    user = USERS[2]
    roots.set_quota(store, f"{user}/Räume", octets=100)
    namespace.create_mailbox(store, MailboxName(user, "Räume"))
    deliver(store, b"Subject: x\r\n\r\n".ljust(95, b"x"), f"user/{user}/Räume")
    assert sorted(send_all(store, NOW)) == ["alice", f"{user}/Räume"]
    octets = read(store, user)
    assert f"\r\nTo: {user}\r\n".encode() in octets                # RFC 6532: no other way to write that address
    message = message_from_bytes(octets, policy=policy.default)
    assert f"The mail of {user} in Räume uses 95 % of its quota" in message.get_content()


def test_quota_does_not_keep_it_out(store):
    roots.set_quota(store, "alice", octets=900)
    assert send_all(store, NOW) == ["alice"]
    assert count(store) == 2


def test_a_crash_does_not_send_a_second_one(tmp_path, faults):
    store = nearly_full(tmp_path)
    faults.fail(notices, "deliver_here", OSError("the process ends here"))
    with pytest.raises(OSError, match="ends here"):
        send_all(store, NOW)
    faults.mend()
    store = reopen_after_crash(store)
    assert roots.quota(store, "alice").warned == NOW
    assert send_all(store, NOW + DAY) == []
    assert send_all(store, NOW + 7 * DAY) == ["alice"]
    store.close()


@pytest.fixture
def clocked(store):
    """The store's clock stands still."""
    for partition in store.partitions.values():
        partition.quotas.clock = lambda: NOW
    return store


def notices_round(store):
    task, = (task for task in tasks.one_process(store) if task.name == "notices")
    return Round(task, store)


def test_housekeeping_sends_them(clocked):
    made = notices_round(clocked)
    while made.step() is not None:
        pass
    assert made.status().failures == 0
    assert count(clocked) == 2


def test_a_user_who_cannot_be_told_does_not_stop_the_others(clocked, faults):
    roots.set_quota(clocked, "bob", messages=1)
    deliver(clocked, b"x", "user/bob/INBOX")
    faults.fail(notices, "compose", StoreError(Problem.UNAVAILABLE, "nobody knows why"),
                when=lambda root, *_: root == "alice")
    made = notices_round(clocked)
    while made.step() is not None:
        pass
    assert (made.status().failures, made.status().bad) == (1, 1)
    assert (count(clocked), count(clocked, "bob")) == (1, 2)
    faults.mend()
    while made.step() is not None:
        pass
    assert (count(clocked), made.status().bad) == (2, 0)


def test_none_is_sent_when_they_are_off(clocked):
    with_setting(clocked, quota_notice="off")
    assert list(notices.due(clocked)) == []
    assert len(list(notices.pending(clocked))) == 1             # `onecopy quota warn` sends them all the same


@pytest.mark.parametrize("status", [status for status in Status if not status.may_log_in])
def test_who_gets_no_mail_gets_no_notice(clocked, status):
    clocked.directory.change("alice", status=status)
    assert list(notices.pending(clocked)) == []
    assert roots.quota(clocked, "alice").warned == 0


def test_who_may_still_log_in_to_make_room_gets_one(clocked):
    clocked.directory.change("alice", status=Status.OVERQUOTA)
    assert [root for _, root in notices.pending(clocked)] == ["alice"]


def test_public_mailboxes_have_nobody_to_tell(clocked):
    roots.set_quota(clocked, "public/news", messages=1)
    namespace.create_mailbox(clocked, MailboxName("", "news"))
    deliver(clocked, b"x", "public/news")
    assert [root for _, root in notices.pending(clocked)] == ["alice"]


def test_what_has_changed_meanwhile_is_not_sent(clocked):
    item, = notices.pending(clocked)
    roots.set_quota(clocked, "alice", octets=5000)
    assert notices.send(clocked, item) == 0
    assert count(clocked) == 1 and roots.quota(clocked, "alice").warned == 0


# Templates

def composed(text, user="alice", **changes):
    octets = notices.compose(user, QuotaUse(930, 4, 1000, 10), evolve(SMALL, **changes), NOW, text)
    return message_from_bytes(octets, policy=policy.default)


def test_a_template_says_what_it_wants():
    message = composed("From: Hilfe <hilfe@[DOMAIN]>\nSubject: Zu voll: [PERCENT] % für [USER]\n"
                       "Reply-To: x@example.org\nTo: nobody@example.org\nContent-Type: text/html\n"
                       "Auto-Submitted: no\n\n"
                       "Größe [OCTETS] von [OCTET_LIMIT], [MESSAGES]/[MESSAGE_LIMIT], [NOTHING], [GRACE]\n",
                       quota_grace=7200)
    assert message["From"] == "Hilfe <hilfe@example.org>" and message["Reply-To"] == "x@example.org"
    assert message["Subject"] == "Zu voll: 93 % für alice"
    assert message["To"] == "alice@example.org"
    assert message.get_content_type() == "text/plain" and message["Auto-Submitted"] == "auto-generated"
    assert message.get_content() == "Größe 930 octets von 1000 octets, 4/10, [NOTHING], 2 hours\r\n"


@pytest.mark.parametrize("user", ['a(b)@c.org', "a<b>", "a,b;c@d.org", "x" * 200, "a@b@c", "a@[1.2.3.4]"])
def test_no_user_id_adds_a_field(user):
    try:
        octets = notices.compose(user, QuotaUse(930, 4, 1000, 10), SMALL, NOW, notices.BUILT_IN)
    except StoreError as error:
        assert error.problem is Problem.UNAVAILABLE
    else:
        assert set(message_from_bytes(octets).keys()) == {
            "From", "Subject", "To", "Date", "Message-ID", "Auto-Submitted", "Content-Type", "MIME-Version",
            "Content-Transfer-Encoding"}


@pytest.mark.parametrize("octets", [b"", b"no field\n\ntext", b"Subject: x", b"Subject: \xff\n\nx", b": x\n\nx",
                                    b"Subject: x\n\n" + b"x" * notices.LONGEST, b"Subject: x\nFrom: @@\n\nx",
                                    b"Subject: a\nSubject: b\n\nx", b"A: x\r\r\n\r\nx"])
def test_bad_templates_are_refused_and_nobody_counts_as_told(clocked, tmp_path, octets):
    (tmp_path / "template").write_bytes(octets)
    with_setting(clocked, quota_notice=str(tmp_path / "template"))
    item, = notices.due(clocked)
    with pytest.raises(StoreError) as error:
        notices.send(clocked, item)
    assert error.value.problem is Problem.UNAVAILABLE
    assert roots.quota(clocked, "alice").warned == 0 and count(clocked) == 1


def test_a_template_that_is_not_there(clocked, tmp_path):
    with_setting(clocked, quota_notice=str(tmp_path / "nothing"))
    with pytest.raises(StoreError, match="cannot be used"):
        notices.send(clocked, next(notices.due(clocked)))


def test_with_a_relay_it_leaves_by_the_outbox(store):
    """In the transaction that notes that the user was warned; so a crash behind it loses none."""
    roots.set_quota(store, "alice", octets=100_000)
    deliver(store, b"Subject: y\r\n\r\n".ljust(92_000, b"y"), "user/alice/INBOX")
    receivers.change(store.root, lambda before: [Receiver("relay", kind=MAIL)])
    store.recorder.look()
    assert send_all(store, NOW) == ["alice"]
    row, = store.partitions["primary"].outbox.some("relay", 10)
    sender, recipient, octets = outgoingmail.message_of(row, store.root)
    assert (sender, recipient, count(store)) == ("", "alice@example.org", 2)
    assert message_from_bytes(octets)["Message-ID"].startswith(f"<quota.{NOW}.")
    store.__dict__ = reopen_after_crash(store).__dict__
    assert [parcel.key for parcel in store.partitions["primary"].outbox.some("relay", 10)] == [row.key]
    assert roots.quota(store, "alice").warned == NOW and send_all(store, NOW) == []


def test_a_full_mailbox_gets_it_without_the_relay(store):
    """Which would be refused; so it is where too much waits for the relay."""
    deliver(store, b"Subject: y\r\n\r\n".ljust(99, b"y"), "user/alice/INBOX")
    receivers.change(store.root, lambda before: [Receiver("relay", kind=MAIL)])
    store.recorder.look()
    send_all(store, NOW)
    assert (count(store), store.partitions["primary"].outbox.some("relay", 10)) == (3, [])
    roots.set_quota(store, "alice", octets=1 << 20)
    assert not outgoingmail.may_leave(evolve(store.recorder, receivers=Receivers.of([
        Receiver("relay", kind=MAIL, full=True)])))
