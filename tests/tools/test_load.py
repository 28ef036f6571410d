"""The load generator of tools/bench: what it takes for an answer, and what it measures. No mail server is needed."""

import email
import email.policy
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from attrs import evolve

from tools.benchmarks.load import messages, preparing, procfs
from tools.benchmarks.load.bytestream import Address, ConnectionEnded, ProtocolError, Stream
from tools.benchmarks.load.loadimap import Imap
from tools.benchmarks.load.loadlmtp import Lmtp
from tools.benchmarks.load.loadpop3 import Pop3
from tools.benchmarks.load.loop import run, run_one, sleep
from tools.benchmarks.load.measuring import Options, percentile
from tools.benchmarks.load.workloads import delivering
from tools.benchmarks.load.workloads.changing import number_set

pytestmark = pytest.mark.long

TRAP = b"x\r\nt1 OK not this\r\n* 9 FETCH (FLAGS ())\r\n{3}\r\n"
ANSWERS = (b"* 1 FETCH (UID 1 BODY[] {%d}\r\n%b FLAGS ())\r\n" % (len(TRAP), TRAP)
           + b'* 2 FETCH (UID 2 ENVELOPE ("a {1}" NIL {2}\r\n}\r X {0}\r\n))\r\n'
           + b"* OK curly {brace}\r\nt1 OK done\r\nt2 NO {no} literal here {5}\r\n")


@pytest.mark.parametrize(("answer", "exists", "why"), [
    (b"451 4.2.0 The mailbox is locked", 1, "451 4.2.0"), (b"250 2.0.0 Ok", 0, "has no message"),
    (b"250 2.0.0 Ok", 1, "")])
def test_a_first_message_that_does_not_come_is_told(answer: bytes, exists: int, why: str) -> None:
    """Else the next command about 1:* was refused, as it is in an empty mailbox, and nobody knew why."""
    script = b"220 x\r\n250-x\r\n250 PIPELINING\r\n250 ok\r\n250 ok\r\n354 go\r\n" + answer + b"\r\n221 bye\r\n"
    ctx, imap = Mock(), Mock()
    ctx.login.return_value = imap

    async def done(result: Any) -> Any:
        return result

    imap.select.side_effect = lambda mailbox: done((exists, 2))
    for verb in (imap.must, imap.empty, imap.logout):
        verb.side_effect = lambda *_: done(None)

    def use(address: Address) -> None:
        ctx.target = Mock(lmtp=address, users=5)
        ctx.target.configure_mock(name="x", user=why)
        ctx.target.recipient.return_value = b"bench0001@example.org"
        preparing.break_in(ctx, [1])

    with pytest.raises(ProtocolError, match=why) if why else nullcontext():
        served(script, 999, use)
    assert imap.must.called is not bool(why)


def served(script: bytes, piece: int, use: Callable[[Address], Any]) -> Any:
    """What `use` gives with a server that sends the script in such pieces, whatever it is sent."""
    finished = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for at in range(0, len(script), piece):
                    connection.sendall(script[at:at + piece])
                connection.shutdown(socket.SHUT_WR)
                finished.wait(180)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return use(listener.getsockname())
        finally:
            finished.set()
            thread.join()


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 17, 1000])
def test_nothing_in_a_literal_is_the_tagged_line(piece: int) -> None:
    def use(address: Address) -> None:
        imap = Imap(address, 16)
        first = run_one(imap.command(b"FETCH", keep=True, keep_literals=True))
        assert (first.line, first.ok, first.fetches, first.literals) == (b"OK done", True, 2, 3)
        assert first.kept == [TRAP, b"}\r", b""]
        assert first.literal_bytes == len(TRAP) + 2
        assert b"* OK curly {brace" in first.untagged
        assert not run_one(imap.command(b"NOOP")).ok
        imap.close()

    served(ANSWERS, piece, use)


def test_a_large_literal_is_stepped_over() -> None:
    body = b"\r\nt1 OK " * 100_000
    script = b"* 1 FETCH (BODY[] {%d}\r\n%b)\r\nt1 OK\r\n" % (len(body), body)
    reply = served(script, 65536, lambda address: run_one(Imap(address).command(b"FETCH")))
    assert (reply.literals, reply.literal_bytes) == (1, len(body))


def test_numbers_of_a_response() -> None:
    reply = served(b"* 5 EXISTS\r\n* SEARCH 1 22 333\r\nt1 OK\r\n", 4,
                   lambda address: run_one(Imap(address).must(b"SEARCH ALL", True)))
    assert (reply.numbers(b"SEARCH"), reply.numbers(b"SORT")) == ([1, 22, 333], [])


def test_a_connection_that_is_closed() -> None:
    with pytest.raises(ConnectionEnded):
        served(b"* BYE\r\n", 9, lambda address: run_one(Imap(address).command(b"NOOP")))


@pytest.mark.parametrize(("line", "prefix"), [(b'"" "/"', b""), (b'"INBOX." "."', b"INBOX."), (b'"" NIL', b"")])
def test_the_prefix_of_mailboxes(line: bytes, prefix: bytes) -> None:
    script = b"* NAMESPACE ((%b)) NIL NIL\r\nt1 OK\r\n" % line
    assert served(script, 99, lambda address: run_one(Imap(address).prefix())) == prefix


@pytest.mark.parametrize("piece", [1, 4, 100])
def test_pop3(piece: int) -> None:
    def use(address: Address) -> None:
        client = Pop3(address)
        assert run_one(client.multi(b"RETR 1")) == b"a\r\n..b\r\n.c\r\n"
        assert run_one(client.multi(b"UIDL")) == b""
        assert run_one(client.stat()) == (3, 99)

    served(b"+OK 4\r\na\r\n..b\r\n.c\r\n.\r\n+OK\r\n.\r\n+OK 3 99\r\n", piece, use)


def test_lmtp_counts_who_took_it() -> None:
    def use(address: Address) -> int:
        client = Lmtp(address)
        run_one(client.hello())
        assert client.pipelining
        taken: int = run_one(client.deliver(b"s", [b"a", b"b", b"c"], b"x\r\n.\r\n"))
        return taken

    assert served(b"220 hi\r\n250-me\r\n250-PIPELINING\r\n250 8BITMIME\r\n250 sender\r\n250 a\r\n550 no b\r\n250 c\r\n"
                  b"354 go\r\n250 a\r\n452-full\r\n452 c\r\n", 7, use) == 1


def test_results_and_errors_are_in_order() -> None:
    async def later(seconds: float, value: int) -> int:
        await sleep(seconds)
        if value < 0:
            raise ValueError(value)
        return value

    first, second, third = run(later(0.02, 1), later(0.01, -1), later(0.0, 3))
    assert (first, third) == (1, 3)
    assert isinstance(second, ValueError)


def test_waiting_with_a_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stream = Stream(listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"x")
            assert run_one(stream.fill_within(5))
            assert not run_one(stream.fill_within(0.01))
        stream.close()


def test_one_seed_gives_the_same_messages() -> None:
    assert ([messages.MessageFactory("7").small().raw] == [messages.MessageFactory("7").small().raw]
            != [messages.MessageFactory("8").small().raw])


def test_messages_are_well_formed() -> None:
    made = messages.small_messages("t", 1100) + messages.standard_messages("t", 20)
    for one in made:
        assert b"\n" not in one.raw.replace(b"\r\n", b"")
        assert max(map(len, one.raw.split(b"\r\n"))) < 998           # RFC 5322 section 2.1.1
    for one in made[:100] + made[-20:]:
        parsed = email.message_from_bytes(one.raw, policy=email.policy.default)
        assert isinstance(parsed, EmailMessage)
        assert not [part.defects for part in parsed.walk() if part.defects]
        assert parsed["message-id"] == one.message_id
        assert parsed["date"].datetime == one.sent
        text = parsed.get_body(("plain",))
        assert isinstance(text, EmailMessage)
        assert (messages.MARKER_WORD in text.get_content()) is one.marked
    assert (made[1000].sent - made[999].sent).days >= 3
    assert sum(len(one.raw) for one in made[-20:]) / 20 == pytest.approx(8192, rel=0.1)


def test_dots_are_stuffed() -> None:
    """RFC 5321 section 4.5.2."""
    one = evolve(messages.small_messages("t", 1)[0], raw=b".a\r\n\r\n.b\r\n..c\r\n")
    assert one.lmtp_data() == b"..a\r\n\r\n..b\r\n...c\r\n.\r\n"


def test_children_that_have_ended_count() -> None:
    before = procfs.cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "for i in range(10**6): pass"], check=True)
    assert procfs.cpu_seconds(os.getpid()) > before
    assert procfs.resident_bytes(os.getpid()) > 1 << 20
    assert procfs.proportional_bytes(os.getpid()) > 1 << 20


def test_a_thread_that_has_ended_counts_exactly() -> None:
    """/proc/PID/stat has ticks of 10 ms, /proc/PID/task lacks who has ended: what costs less was 0, or a tick."""
    def work() -> None:
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < 3_000_000:
            pass

    before, own = procfs.cpu_seconds(os.getpid()), time.process_time()
    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    used = procfs.cpu_seconds(os.getpid()) - before
    assert 0.009 <= used
    assert used == pytest.approx(time.process_time() - own, abs=0.003)


def test_each_way_of_append_has_messages_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[list[bytes]] = []

    async def in_turn(imap: Any, mailbox: bytes, batch: Any, deadline: float) -> tuple[int, int]:
        sent.append([one.raw for one in batch])
        return len(sent[-1]), 0

    async def pipelined(imap: Any, mailbox: bytes, batches: Any, window: int, deadline: float) -> tuple[int, int]:
        sent.append([one.raw for batch in batches for one in batch])
        return len(sent[-1]), 0

    async def status(mailbox: bytes) -> int:
        return len(sent[-1])

    async def logout() -> None:
        pass

    monkeypatch.setattr(delivering, "append_in_turn", in_turn)
    monkeypatch.setattr(delivering, "append_pipelined", pipelined)
    monkeypatch.setattr(delivering, "create", lambda imap, mailbox: None)
    monkeypatch.setattr(delivering, "remove", lambda imap, mailbox: None)
    context = Mock(options=Options(scale=0.05), salt="s", span=nullcontext)
    context.login.return_value = Mock(status=status, logout=logout)
    delivering.append(context)
    assert len(sent) == 4
    assert len({raw for way in sent for raw in way}) == sum(map(len, sent))


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    empty = procfs.disk_usage(tmp_path)
    (tmp_path / "below").mkdir()
    below = procfs.disk_usage(tmp_path) - empty
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "a", tmp_path / "below" / "b")
    assert 100_000 <= procfs.disk_usage(tmp_path) - empty - below <= 110_000


def test_percentiles_and_sets() -> None:
    assert (percentile(range(100), 0.5), percentile(range(100), 0.99)) == (50, 99)
    assert number_set([1, 2, 3, 7, 9, 10]) == b"1:3,7,9:10"
