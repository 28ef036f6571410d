"""`tools/bench sharing`: whether time tells that others hold a message already.

A server of one process on a fresh store. A stranger gets half of the messages first; then another user, or a relay,
brings all of them, in random order, and notes how long each answer took. The AUC is the chance that a known message
took less time than an unknown one: 0.5 tells nothing, 1 or 0 everything.
"""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.benchmarks import temporaryserver
from tools.benchmarks.bystanders.benchclients import Client, Relay
from tools.cli.output import print_json, print_table

STRANGER, ATTACKER = 0, 1       # numbers of the users
TOGETHER = 4                    # messages of one MULTIAPPEND
Send = Callable[[Sequence[bytes]], None]


def append(client: Client, texts: Sequence[bytes]) -> None:
    """APPEND, or MULTIAPPEND, in one piece. Raises ConnectionError when it is refused."""
    first, rest = texts[0], texts[1:]
    octets = b"APPEND INBOX {%d+}\r\n" % len(first) + first + b"".join(
        b" {%d+}\r\n" % len(text) + text for text in rest)
    answer = client.command(octets)
    if not answer.startswith(b"x OK"):
        raise ConnectionError(f"refused: {answer!r}")


def contents(count: int, size: int, seed: int) -> list[bytes]:
    """So many different messages of that size."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        head = b"From: a@example.org\r\nSubject: %d\r\nMessage-ID: <%d.%d@example.org>\r\n\r\n" % (number, seed, number)
        lines = [chance.randbytes(36).hex().encode() for _ in range(max(1, (size - len(head)) // 74))]
        found.append(head + b"\r\n".join(lines) + b"\r\n")
    return found


def auc(shorter: Sequence[float], longer: Sequence[float]) -> float:
    """The chance that one of the first is less than one of the others, of those that are equal a half."""
    ranked = sorted([(value, 0) for value in shorter] + [(value, 1) for value in longer])
    total = at = 0.0
    place = 0
    while place < len(ranked):
        end = place
        while end < len(ranked) and ranked[end][0] == ranked[place][0]:
            end += 1
        middle = (place + 1 + end) / 2
        at += middle * sum(1 for _, which in ranked[place:end] if not which)
        place = end
    total = at - len(shorter) * (len(shorter) + 1) / 2
    return 1 - total / (len(shorter) * len(longer))


def timed(known: Sequence[Sequence[bytes]], new: Sequence[Sequence[bytes]], send: Send, before: Callable[[], None],
          seed: int) -> tuple[list[float], list[float]]:
    """Seconds of each try, of the known and of the new ones."""
    tries = [(each, 0) for each in known] + [(each, 1) for each in new]
    random.Random(seed).shuffle(tries)
    seconds: tuple[list[float], list[float]] = ([], [])
    for texts, which in tries:
        before()
        begun = time.perf_counter()
        send(texts)
        seconds[which].append(time.perf_counter() - begun)
    return seconds


def measure(ports: dict[str, int], tries: int, size: int) -> list[dict[str, Any]]:
    """A row for each way in which messages come."""
    rows = []
    for number, (way, together) in enumerate((("APPEND", 1), ("MULTIAPPEND", TOGETHER), ("LMTP", 1))):
        texts = contents(tries * together, size, number)
        groups = [texts[at:at + together] for at in range(0, len(texts), together)]
        known, new = groups[:tries // 2], groups[tries // 2:]
        relay = Relay(ports["lmtp"], temporaryserver.USER % STRANGER)
        for each in known:
            for text in each:
                relay.begin()
                relay.message([text])
        relay.close()
        time.sleep(1)
        if way == "LMTP":
            relay = Relay(ports["lmtp"], temporaryserver.USER % ATTACKER)
            found = timed(known, new, relay.message, relay.begin, number)
            relay.close()
        else:
            client = Client(ports["imap"], temporaryserver.USER % ATTACKER)
            found = timed(known, new, lambda texts, client=client: append(client, texts), lambda: None,  # type: ignore
                          number)
            client.close()
        rows.append({"way": way, "tries": len(groups), "known_us": _median(found[0]), "new_us": _median(found[1]),
                     "auc": round(auc(*found), 3)})
    return rows


def _median(seconds: Sequence[float]) -> int:
    return round(1e6 * sorted(seconds)[len(seconds) // 2])


def run(parent: Path | None, tries: int, size: int, conceal: Sequence[str], *, as_json: bool) -> None:
    """Print the table, for each of these values of `store.conceal_sharing`."""
    rows: list[dict[str, Any]] = []
    for setting in conceal:
        with temporaryserver.serving(parent, "--store-conceal-sharing", setting) as state:
            rows += [{"conceal_sharing": setting, **row} for row in measure(state["ports"], tries, size)]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, tuple(rows[0]))
