"""A combination, and every command there is, in one connection of IMAP, and a recipient of LMTP; afterwards the
mailboxes hold what they must."""

from base64 import b64encode
from collections import Counter

from tests.imap.rights import authenticated, posting, selected, taken
from tests.imap.rights.combinations import Combination
from tests.imap.rights.stage import Stage
from tests.imap.rights.talk import Talk, expect

NOBODY = b64encode(b"\0alice\0secret").decode()


def play(stage: Stage, combination: Combination, played: Counter[str]) -> None:
    """Play it. Afterwards the store is as it was."""
    family = stage.begin(combination)
    talk = Talk(stage, combination, family, played)
    try:
        posting.post(stage, combination)
        everything(talk)
        check_contents(talk)
    except AssertionError as error:
        held = {name: "".join(sorted(stage.truth.held(name))) for name in family.all()}
        raise AssertionError(f"{combination}\n{held}\n{error}") from error
    finally:
        if talk.wire is not None:
            talk.wire.hang_up()
    stage.restore()


def everything(talk: Talk) -> None:
    log_in(talk, "LOGIN alice secret")
    authenticated.without_a_mailbox(talk)
    authenticated.listing(talk)
    authenticated.rights(talk)
    authenticated.quotas(talk)
    authenticated.annotations(talk)
    wanted = talk.rng.sample(("\\Seen", "\\Deleted", "\\Flagged", "word"), talk.rng.randrange(4))
    authenticated.appending(talk, talk.family.mailbox, set(wanted))
    selected.in_the_mailbox(talk)
    selected.from_outside(talk)
    authenticated.creating(talk)
    if talk.rng.random() < 0.3:
        authenticated.ownership(talk)
    authenticated.renaming(talk)
    authenticated.renaming_over(talk)
    authenticated.deleting(talk, talk.rng.choice((*[talk.family.child] * 3, talk.family.mailbox)))
    log_out(talk)
    log_in(talk, f"AUTHENTICATE PLAIN {NOBODY}")
    if talk.rng.random() < 0.2:
        taken.while_appending(talk)
    elif talk.rng.random() < 0.7:
        taken.while_selected(talk)
    if talk.wire.closed:
        talk.wire.hang_up()
        talk.wire = None
        log_in(talk, "LOGIN alice secret")
    expect(talk.say("LOGOUT"), "OK", "*", {"BYE"})


def log_in(talk: Talk, command: str) -> None:
    if talk.wire is None:
        talk.wire = talk.stage.connect(admin=talk.combination.admin)
        talk.wire.received()
    expect(talk.say(command), "OK", "*", ())


def log_out(talk: Talk) -> None:
    """UNAUTHENTICATE; nothing can be asked then, whatever the rights."""
    talk.well("UNAUTHENTICATE", code="*")
    form = talk.rng.choice(("SELECT {}", "STATUS {} (MESSAGES)", "GETACL {}", "LIST \"\" {}", "GETQUOTAROOT {}"))
    for command in (form.format(talk.family.mailbox), "STARTTLS"):
        expect(talk.say(command), "BAD", "", ())


def check_contents(talk: Talk) -> None:
    """Nothing has been done to a mailbox but what the rights allowed."""
    for name in talk.family.all():
        box = talk.truth.boxes.get(name)
        assert talk.stage.exists(name) == (box is not None), name
        if box is not None:
            found = talk.stage.contents(name)
            assert found == box.messages, f"{name}: {found}, not {box.messages}"


