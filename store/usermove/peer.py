"""The client side of the language between back ends: a method for each message to the one that a user moves to.

What each means is in `targetside`, whose functions `responder` calls with the same words.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define
from numpy.typing import NDArray

from store.errors import Problem, StoreError
from store.problems import NOT_NOW
from store.tables.quotatable import QuotaUse
from store.userarea.idxfile import Head
from store.usermove.messageformat import ANSWER_OCTETS, SEND_OCTETS, BadMessage, Ended, Message, Wire, encode, receive
from store.usermove.rowformat import Answer

Figures = Mapping[str, Any]


@define(eq=False)
class Peer:
    """A connection on which both sides have verified each other's certificates. Every method raises StoreError: the
    other side's refusal, or UNAVAILABLE when it does not answer."""

    host: str
    wire: Wire

    def look(self, user: str, partition: str) -> None:
        self.ask_for({"op": "look", "user": user, "partition": partition})

    def begin(self, user: str, move: str, partition: str) -> None:
        self.ask_for({"op": "begin", "user": user, "move": move, "partition": partition})

    def expect(self, mailboxes: Sequence[int]) -> None:
        for at in range(0, len(mailboxes), 10_000):
            self.ask_for({"op": "expect", "mailboxes": list(mailboxes[at:at + 10_000])})

    def ask(self, asked: NDArray[Any]) -> list[Answer]:
        """What has to be sent of these messages (`ASKED`)."""
        return self._answers({"op": "ask"}, asked)

    def compare(self, headers: NDArray[Any]) -> list[Answer]:
        """Likewise by their trace headers (`HEADER`)."""
        return self._answers({"op": "compare"}, headers)

    def _answers(self, fields: Figures, table: NDArray[Any]) -> list[Answer]:
        octets = self.ask_for(fields, table.tobytes()).octets
        try:
            answers = [Answer(each) for each in octets]
        except ValueError:
            raise self.unclear("an answer that there is not") from None
        if len(answers) != len(table):
            raise self.unclear(f"{len(answers)} answers to {len(table)} questions")
        return answers

    def send(self, digest: bytes, trace: int, octets: int, read: Callable[[int, int], bytes], *, whole: bool) -> None:
        """A message file. What is wrong with it is said in the answer to what follows."""
        self._tell({"op": "file", "digest": digest.hex(), "trace": trace, "octets": octets, "whole": whole})
        at = 0
        while at < octets:
            data = read(at, min(SEND_OCTETS, octets - at))
            if not data:
                raise StoreError(Problem.CORRUPT, "A message cannot be read", f"{digest.hex()} is shorter than it was")
            self._tell({"op": "data"}, data)
            at += len(data)

    def name_head(self, partition: str, number: int, octets: bytes) -> None:
        """Header fields that records on that partition have under that number."""
        self._tell({"op": "head", "partition": partition, "number": number}, octets)

    def put(self, mailbox: int, partition: str, chunks: Sequence[int], counts: Sequence[int], rows: bytes) -> bool:
        """Records; False when the files have to be asked for again."""
        said = self.ask_for({"op": "rows", "mailbox": mailbox, "partition": partition, "chunks": list(chunks),
                          "counts": list(counts)}, rows)
        return self._is(said, "done")

    def put_expunged(self, mailbox: int, partition: str, when: int, modseq: int, keywords: Sequence[str], rows: bytes,
                     *, first: bool) -> bool:
        """Likewise what can be undeleted."""
        said = self.ask_for({"op": "expunged", "mailbox": mailbox, "partition": partition, "when": when,
                             "modseq": modseq, "keywords": list(keywords), "first": first}, rows)
        return self._is(said, "done")

    def forget_expunged(self, mailbox: int, when: int, modseq: int) -> None:
        self.ask_for({"op": "purged", "mailbox": mailbox, "when": when, "modseq": modseq})

    def describe_user(self, row: bytes, limits: Mapping[str, QuotaUse]) -> None:
        roots = [[root, use.octet_limit, use.message_limit, use.refused, use.warned] for root, use in limits.items()]
        self.ask_for({"op": "user", "roots": roots}, row)

    def subscribe(self, names: Sequence[str]) -> None:
        self.ask_for({"op": "subscriptions", "names": list(names)})

    def describe(self, mailbox: int, head: Head, figures: Figures, digest: str) -> None:
        """A mailbox without its records, of which this is the digest."""
        text = head.to_bytes()
        self._tell({"op": "mailbox", "mailbox": mailbox, "figures": dict(figures), "digest": digest,
                    "octets": len(text)})
        for at in range(0, len(text), SEND_OCTETS):
            self._tell({"op": "data"}, text[at:at + SEND_OCTETS])
        self.answer()

    def put_vanished(self, mailbox: int, items: Sequence[tuple[int, bytes]]) -> None:
        self.ask_for({"op": "vanished", "mailbox": mailbox, "modseqs": [modseq for modseq, _ in items],
                   "lengths": [len(ranges) for _, ranges in items]}, b"".join([ranges for _, ranges in items]))

    def put_own(self, mailbox: int, items: Sequence[tuple[int, str, NDArray[Any]]]) -> None:
        self.ask_for({"op": "own", "mailbox": mailbox, "chunks": [number for number, _, _ in items],
                   "readers": [reader for _, reader, _ in items]}, b"".join([own.tobytes() for _, _, own in items]))

    def put_uidls(self, mailbox: int, uidls: Mapping[int, bytes]) -> None:
        self.ask_for({"op": "uidls", "mailbox": mailbox, "uids": list(uidls),
                   "uidls": [uidl.decode("ascii") for uidl in uidls.values()]})

    def ready(self) -> None:
        """All has been said; it is on disk there when this returns."""
        self.ask_for({"op": "ready"})

    def activate(self, user: str, move: str, access: bytes) -> None:
        self.ask_for({"op": "activate", "user": user, "move": move}, access)

    def confirm(self, user: str, move: str) -> None:
        self.ask_for({"op": "confirm", "user": user, "move": move})

    def drop(self, user: str, move: str) -> None:
        self.ask_for({"op": "drop", "user": user, "move": move})

    def close(self) -> None:
        self.wire.close()

    def _is(self, said: Message, name: str) -> bool:
        try:
            return said.truth(name)
        except BadMessage as error:
            raise self.unclear(str(error)) from None

    def ask_for(self, fields: Figures, octets: bytes = b"") -> Message:
        """The answer to a message."""
        self._tell(fields, octets)
        return self.answer()

    def tell(self, fields: Figures) -> None:
        """Send a message; its `answer` is taken later."""
        self._tell(fields)

    def _tell(self, fields: Figures, octets: bytes = b"") -> None:
        try:
            said = encode(fields, octets)
        except ValueError as error:
            raise StoreError(Problem.LIMIT, detail=str(error)) from error
        try:
            self.wire.write(said)
        except OSError as error:
            raise self._lost(error) from error

    def answer(self) -> Message:
        """The answer to the oldest message that has had none."""
        try:
            said = receive(self.wire.read, octets=ANSWER_OCTETS)
        except (OSError, Ended) as error:
            raise self._lost(error) from error
        except BadMessage as error:
            raise self.unclear(str(error)) from error
        if "error" in said.fields:
            refusal = refusal_of(said)
            if refusal.problem in NOT_NOW:          # whose disk is full, or which of the two is busy
                raise StoreError(refusal.problem, f"{self.host} says: {refusal.public}", refusal.detail)
            raise refusal
        return said

    def _lost(self, error: Exception) -> StoreError:
        return StoreError(Problem.UNAVAILABLE, f"The connection to {self.host} was lost", str(error))

    def unclear(self, what: str) -> StoreError:
        """What to raise for an answer that cannot be understood."""
        return StoreError(Problem.UNAVAILABLE, f"{self.host} says what cannot be understood", what)


def said_of(error: StoreError) -> dict[str, str]:
    return {"error": error.problem.name, "public": error.public[:1000], "detail": error.detail[:1000]}


def refusal_of(said: Message) -> StoreError:
    try:
        problem = Problem[said.text("error")]
        return StoreError(problem, said.text("public"), said.text("detail"))
    except (KeyError, BadMessage):
        return StoreError(Problem.UNAVAILABLE, detail="a refusal that cannot be understood")
