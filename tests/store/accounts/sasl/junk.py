"""Exchanges with junk: `python -m tests.store.accounts.sasl.junk NUMBER SEED`. Nobody may get in."""

import random
import sys
import time

from store.accounts import mechanisms
from store.accounts.accessrules import BadRule, Rules
from store.accounts.base import Account
from store.accounts.mechanisms import MECHANISMS, Challenge, Channel, FindKeys, Malformed, Turn
from store.accounts.sasl.scram import Keys
from store.errors import Problem, StoreError

SEEDS = [
    b"n,a=user@example.com,\1host=server.example.com\1port=143\1auth=Bearer vF9dft4qmTc2Nv==\1\1",
    b"user=user@example.com\1auth=Bearer vF9dft4qmTc2Nv==\1\1", b"n,,n=user,r=abc", b"y,a=x=2Cy,n=us=3Der,r=a,b=c",
    b"c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAA=", b"p=tls-unique,a=b,n=u,r=c", b"\0tim\0x", b"Ursel\0Kurt\0xipj3plmq",
    b"", b"\1", "jörg\u00a0\u0627".encode(), b"c=cD10bHMtdW5pcXVlLCw=,r=abc,p=AAAA"]
RULES = ["+imap,pop:10.0.0.0/8$-ALL:*", "+ALL EXCEPT pop:* EXCEPT 192.0.2.0/24 EXCEPT 192.0.2.1",
         "-imaps:local, [::1], 10.1."]
KEYS = Keys.from_password("SCRAM-SHA-256", "pencil", b"0123456789abcdef", 4096)
CHANNEL = Channel(True, ("x",), lambda kind: b"x" if kind == "tls-unique" else None)


def changed(chance: random.Random, seed: bytes) -> bytes:
    """A seed, changed in a few places, cut off, doubled, or with another's end."""
    said = bytearray(seed)
    for _ in range(chance.randrange(5)):
        at, what = chance.randrange(len(said) + 1), chance.randrange(5)
        if what == 0:
            said[at:at + 1] = bytes([chance.randrange(256)])
        elif what == 1:
            del said[at:at + chance.randrange(1, 8)]
        elif what == 2:
            said[at:at] = bytes([chance.choice(b",=\0\1 $:+-*\xff")])
        elif what == 3:
            said = said[:at] + chance.choice(SEEDS)[at:]
        else:
            said[at:at] = said[:at] * chance.choice((1, 1, 1, 50))
    return bytes(said[:12288])


def exchange(chance: random.Random) -> None:
    """One, in which the directory knows nobody."""
    mechanism = chance.choice(MECHANISMS)
    steps = mechanisms.begin(mechanism, CHANNEL)
    step = next(steps)
    try:
        for _ in range(5):
            if isinstance(step, Challenge):
                step = steps.send(changed(chance, chance.choice(SEEDS)))
            elif isinstance(step, FindKeys):
                step = steps.send((KEYS, Account("user", "primary")))
            elif isinstance(step, Turn):
                step = steps.send(None)
            else:
                step = steps.throw(StoreError(Problem.BAD_LOGIN))
    except (Malformed, StoreError):
        return
    except StopIteration as end:
        raise AssertionError(f"{mechanism}: {end.value} got in") from None
    raise AssertionError(f"{mechanism} does not end")


def rules(chance: random.Random) -> None:
    """Rules of access that may be none."""
    text = changed(chance, chance.choice(RULES).encode()).decode("latin-1")
    try:
        found = Rules.parse(text)
    except BadRule:
        return
    for peer in ("10.1.2.3", "local", "::1", "192.0.2.1"):
        found.allow("imap", peer, secure=chance.random() < 0.5)


def run(number: int, seed: int) -> None:
    """So many of each kind."""
    chance = random.Random(seed)
    for _ in range(number):
        exchange(chance)
        rules(chance)


if __name__ == "__main__":
    number, seed = map(int, sys.argv[1:])
    start = time.monotonic()
    run(number, seed)
    print(f"{number} exchanges and as many rules in {time.monotonic() - start:.0f} s: nobody got in")
