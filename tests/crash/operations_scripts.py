"""Operations of the table beside it: mail is delivered as scripts want; what leaves, and what they remember, is there
exactly when the message is. And scripts run for what IMAP commands did: once, and as a whole."""

from email import message_from_bytes

from mboxlist.annotations import EVENT_SCRIPT
from mboxlist.names import INBOX, MailboxName
from store import offload
from store.delivery.commit import Target
from store.errors import StoreError
from store.events.outgoingmail import message_of
from store.events.receivers import Receiver
from store.filtering import eventscripts, filtereddelivery, userscripts
from store.filtering.filters import Filters
from store.mailboxes.authorization import annotate
from store.mailboxes.copymessages import copy_messages
from store.store import Store
from tests.crash.places import ALICE, ARCHIVE, BOB, NEW, TRACE, WHEN, WORK, Answered, Place
from tests.crash.views import Picture
from tests.support.stores.heardevents import hear

RELAY = "relay"
AWAY = """require ["fileinto", "copy", "vacation"];
fileinto :copy "Archive"; vacation :addresses "alice@example.org" "Away";"""
ON = 'require ["copy", "editheader"]; redirect :copy "bob@example.net"; deleteheader "to";'
ON_EVENTS = """require ["imapsieve", "imap4flags", "fileinto", "copy"];
addflag "scripted"; fileinto :copy "Work"; redirect :copy "on@example.net";"""
HEAD = b"From: eve@example.net\r\nTo: alice@example.org\r\nMessage-ID: <%d@example.net>\r\n"


def prepare_scripts(store: Store) -> None:
    """alice files and answers, bob sends on and edits; there is a relay, to which nothing goes meanwhile."""
    for user, script in (("alice", AWAY), ("bob", ON)):
        account = store.directory.user(user)
        assert account is not None
        userscripts.put(store, account.account, "main", script.encode())
        userscripts.activate(store, user, "main")
    hear(store, Receiver(RELAY, kind="mail"))


def deliver_by_scripts(place: Place, answered: Answered) -> None:
    """Two messages of one sender, to both users: two are sent on, and one is answered."""
    for number in range(2):
        entries = {user: place.entry(MailboxName(user, INBOX)) for user in ("alice", "bob")}
        staged = place.store.stage(entries["alice"], TRACE)
        staged.write(HEAD % number + NEW[number])
        outcomes = offload.now(filtereddelivery.deliver(
            place.store, staged, "eve@example.net", {entry.id: Target(entry) for entry in entries.values()},
            {entry.id: f"{user}@example.org" for user, entry in entries.items()}, received=WHEN))
        for outcome in outcomes.values():
            if isinstance(outcome, StoreError):
                raise outcome
        answered()


def one_has_it(before: Picture, after: Picture) -> list[Picture]:
    """Each recipient is answered alone (RFC 2033 §4.2): one has the message, and the other is refused, as when there is
    no room for the file of an edited one."""
    return [{name: (after if name.startswith("user/alice/") == alices else before).get(name, box)
             for name, box in after.items()} for alices in (True, False)]


def letters_agree(store: Store, answers: int) -> list[str]:
    """Of each message that is in bob's INBOX one is sent on; of alice's the first is answered, and none twice."""
    partition = store.partitions["primary"]
    waiting = [message_of(parcel, store.root) for parcel in partition.outbox.every(RELAY)]
    on = sorted(str(message_from_bytes(octets)["Message-ID"]) for _, to, octets in waiting if to == "bob@example.net")
    back = [to for _, to, _ in waiting if to == "eve@example.net"]
    came = _come(store, BOB)
    if came != len(on):
        return [f"bob has {came} of the messages, and {len(on)} wait to be sent on"]
    if came < answers or on != [f"<{number}@example.net>" for number in range(came)]:
        return [f"after {answers} answers {on} wait to be sent on"]
    alices = _come(store, ALICE)
    if alices < answers or len(back) != min(alices, 1):
        return [f"{alices} messages came to alice, {len(back)} were answered"]
    return []


def _come(store: Store, name: MailboxName) -> int:
    entry = store.entry(name)
    return sum(b"@example.net>" in cached.envelope for cached in store.cached(entry, store.open_mailbox(entry).rows))


def prepare_events(store: Store) -> None:
    """A script of alice's runs for what comes to a mailbox of hers."""
    Filters.of(store)
    account = store.directory.user("alice")
    assert account is not None
    userscripts.put(store, account.account, "events", ON_EVENTS.encode())
    annotate(store, store.entry(ARCHIVE), EVENT_SCRIPT, b"events")
    hear(store, Receiver(RELAY, kind="mail"))


def run_for_a_copy(place: Place, answered: Answered) -> None:
    """A message is copied, and the script files it, sends it on and flags it."""
    Filters.of(place.store)
    copy_messages(place.store, place.entry(ALICE), place.entry(ARCHIVE), [1], reader="alice", event_of="alice")
    place.flushed(ARCHIVE)
    answered()
    for item in eventscripts.waiting(place.store):
        eventscripts.run_some(place.store, item)
    answered()


def events_agree(store: Store, answers: int) -> list[str]:
    """What the script does is done as a whole, or still waits for its turn; it has been done when that was said."""
    partition, marked = store.partitions["primary"], []
    for name in (ARCHIVE, WORK):
        view = store.open_mailbox(store.entry(name))
        marked.append(sum("scripted" in view.keyword_names(int(row["keywords"])) for row in view.rows))
    sent = len(list(partition.outbox.every(RELAY)))
    wait = sum(len(event.uids) for event in partition.script_events.of(store.entry(ARCHIVE).id, 9))
    done = marked[0]
    if marked != [done, done] or sent != done or done + wait > 1 or done + wait < min(answers, 1) or (
            answers > 1 and not done):
        return [f"after {answers} answers {marked} are marked, {sent} sent on, {wait} wait"]
    return []
