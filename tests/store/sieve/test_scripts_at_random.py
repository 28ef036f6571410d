"""Scripts at random, and messages at random with them: nothing but a ScriptProblem, and no run past its limits.

`SIEVE_SCRIPTS=2000000 SIEVE_RUNS=50000` tries more than a whole run does, `SIEVE_SEED` chooses others.
"""

import os
from random import Random

import pytest

from store.sieve.compiling import compile_script
from store.sieve.language import CAPABILITIES, SIEVE
from store.sieve.receivedmail import ReceivedMail
from store.sieve.scriptlimits import Limits
from store.sieve.scriptoutcome import KEPT
from store.sieve.scriptproblems import ScriptProblem
from store.sieve.scriptrun import Run, Tree, run
from store.sieve.surroundings import Envelope
from tests.store.sieve.test_language import ALL, PARTS, A, B

SCRIPTS = int(os.environ.get("SIEVE_SCRIPTS", "4000"))
RUNS = int(os.environ.get("SIEVE_RUNS", "600"))
SEED = int(os.environ.get("SIEVE_SEED", "1"))
SHARES = 4                      # the runs are in so many tests
TIGHT = Limits(steps=300, octets=50_000, string=2000, variables=8, redirects=2, actions=6, notices=2, body=500, parts=8)
HEADERS = ("subject", "from", "to", "x-priority", "content-type", "received", "message-id", "date", "bad header", "")
STRINGS = (
    "*", "?", "a*b?c", "", "present", "\\\\*", "(", "[a-z]+", "${1}", "${x}", "${0}${2}", "${hex:41}", "INBOX",
    "Lists", "i;octet", "i;ascii-numeric", "gt", "eq", "a@b.example", "mailto:a@b.example", "\\\\Seen", "$Junk",
    "1", "99", "date", "hour", "+0100", "é", "\U0001f600", "x" * 300, "global.x", "x", "me", "text",
    "text/html", "other")


def value(chance: Random) -> str:
    match chance.randrange(6):
        case 0:
            return str(chance.choice((0, 1, 5, 1 << 31, 10 ** 30))) + chance.choice(("", "", "K", "M", "G"))
        case 1:
            return "[" + ", ".join(f'"{chance.choice(STRINGS)}"' for _ in range(chance.randrange(1, 4))) + "]"
        case 2:
            return f"text:\n{chance.choice(STRINGS)}\n..\n.\n"
        case _:
            return f'"{chance.choice(HEADERS if chance.randrange(2) else STRINGS)}"'


def words(chance: Random, form: object) -> str:
    """Arguments, most of them as the form wants them."""
    tags = [name for name in form.tags if chance.randrange(4) == 0]
    found = []
    for name in tags:
        found.append(f":{name}")
        if form.tags[name].value is not None or chance.randrange(20) == 0:
            found.append(value(chance))
    count = max(0, len(form.values) + chance.choice((0, 0, 0, 0, -1, 1)))
    return " ".join([*found, *(value(chance) for _ in range(count))])


def a_test(chance: Random, depth: int) -> str:
    name = chance.choice(list(SIEVE.tests))
    form = SIEVE.tests[name]
    if name in ("allof", "anyof") and depth < 5:
        return f"{name} ({', '.join(a_test(chance, depth + 1) for _ in range(chance.randrange(1, 4)))})"
    if name == "not" and depth < 5:
        return f"not {a_test(chance, depth + 1)}"
    return f"{name} {words(chance, form)}"


def command(chance: Random, depth: int) -> str:
    if chance.randrange(4) == 0 and depth < 4:
        found = f"if {a_test(chance, 0)} {{ {block(chance, depth + 1)} }}"
        return found + (f" else {{ {block(chance, depth + 1)} }}" if chance.randrange(2) else "")
    name = chance.choice(list(SIEVE.commands))
    form = SIEVE.commands[name]
    end = f"{{ {block(chance, depth + 1)} }}" if form.block and depth < 4 else ";"
    return f"{name} {words(chance, form)} {a_test(chance, 0) if name in ('if', 'elsif') else ''} {end}"


def block(chance: Random, depth: int = 0) -> str:
    return "\n".join(command(chance, depth) for _ in range(chance.randrange(0, 4)))


def spoilt(chance: Random, script: str) -> str:
    """With some characters away, doubled or others."""
    letters = list(script)
    for _ in range(chance.randrange(1, 6)):
        if letters:
            at = chance.randrange(len(letters))
            letters[at:at + chance.randrange(3)] = chance.choice(
                ('"', "{", "}", ";", "[", ")", "/*", "\0", ":", "\r", "text:", "#"))
    return "".join(letters)


def compiled(script: str) -> Tree | None:
    try:
        return compile_script(script, SIEVE)
    except ScriptProblem as problem:
        assert problem.place.line >= 1 and problem.place.column >= 1 and problem.text
        return None


def test_scripts_at_random() -> None:
    chance, good = Random(SEED), 0
    for number in range(SCRIPTS):
        script = ALL * chance.randrange(2) + block(chance)
        good += compiled(spoilt(chance, script) if number % 2 else script) is not None
    assert good > SCRIPTS // 50


@pytest.mark.parametrize("share", range(SHARES))
def test_runs_at_random(share: int) -> None:
    chance, failed, done = Random(100 * SEED + share), 0, 0
    needs = "require [" + ", ".join(f'"{name}"' for name in CAPABILITIES if name != "ihave") + "];\n"
    while done < RUNS // SHARES:
        tree = compiled(needs + block(chance))
        if tree is None or not tree.nodes:
            continue
        done += 1
        octets = chance.choice((A, B, PARTS, b"", b"\r\n", PARTS[:chance.randrange(len(PARTS))], b"\xff" * 100))
        state = Run(ReceivedMail.of(octets), Envelope("ann@example.net", "bob+box@example.org"), limits=TIGHT)
        found = run([tree], state)
        failed += bool(found.failure)
        assert state.steps <= TIGHT.steps + 1 and found.actions <= TIGHT.actions + 2
        assert not found.failure or [one.mailbox for one in found.files] == [KEPT]
    assert 0 < failed < done
