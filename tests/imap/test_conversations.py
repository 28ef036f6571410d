"""Every conversation of tests/scripts/imap, whole and octet by octet; and whether they have all that there is."""

import re

import pytest

from imap.refusals import CODES
from imap.wire.commands import COMMANDS
from tests.support.conversations.scripts import SCRIPTS, Player

NAMES = sorted(path.stem for path in SCRIPTS.glob("*.txt"))
_COMMAND = re.compile(r"^C(\d?)~?: (\S+) ((?:UID )?[A-Z-]+)", re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize("name", NAMES)
def test_conversation(place, name):
    Player(place).play((SCRIPTS / f"{name}.txt").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_conversation_in_single_octets(place, name):
    script = (SCRIPTS / f"{name}.txt").read_text()
    if "pipelined" not in script:
        Player(place, piece=1).play(script)


def answers():
    """For each command the kinds of answers that it gets anywhere."""
    found = {}
    for name in NAMES:
        script = (SCRIPTS / f"{name}.txt").read_text()
        for which, tag, command in _COMMAND.findall(script):
            answer = re.search(rf"^S{which}~?: {re.escape(tag)} (OK|NO|BAD)", script, re.MULTILINE)
            if answer:
                found.setdefault(command.upper().encode(), set()).add(answer[1])
    return found


def test_every_command_is_carried_out_somewhere_and_refused_somewhere():
    found = answers()
    assert {command for command in COMMANDS if "OK" not in found.get(command, ())} == set()
    assert {command for command in COMMANDS if not found.get(command, set()) & {"NO", "BAD"}} == set()


def test_every_response_code_is_told_somewhere():
    scripts = "".join((SCRIPTS / f"{name}.txt").read_text() for name in NAMES)
    codes = {code.decode() for code in CODES.values()} | {
        # RFC 3501 §7.1, RFC 4315 §3, RFC 5530, RFC 7162 and 9051
        "ALERT", "BADCHARSET", "CAPABILITY", "PERMANENTFLAGS", "READ-ONLY", "READ-WRITE", "TRYCREATE", "UIDNEXT",
        "UIDVALIDITY", "UNSEEN", "APPENDUID", "COPYUID", "PRIVACYREQUIRED", "AUTHORIZATIONFAILED", "SERVERBUG",
        "HASCHILDREN", "CLOSED", "HIGHESTMODSEQ", "MODIFIED", "UNKNOWN-CTE", "USEATTR", "INPROGRESS"}
    assert {code for code in codes if not re.search(rf"\[{code}[ \]]", scripts)} == set()
