"""The whole server in real processes: one that does all, and several with their supervisor."""

import errno
import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mboxlist.engine.troubles import TROUBLES
from tests.support.clients.imap import Imap
from tests.support.clients.lmtp import Lmtp
from tests.support.faults.planted import Faults
from tests.support.processes import wait
from tests.support.servers.server import PASSWORD, PROGRAM, Server
from tests.support.stores import messages
from tools.cli import options
from tools.exits import Failure
from tools.server import supervisor as supervising
from tools.server.roles import Role, roles
from tools.server.supervisor import Supervisor, _Died, _Stopped
from tools.server.tls.contexts import CERTIFICATE, make_certificate
from tools.server.tls.tickets import TicketKeys
from tools.serversettings import Tls, Workers

LIMIT = 180
TWO = {"workers.all": "2"}


@pytest.mark.parametrize(("workers", "expected"), [
    (Workers(), []),
    (Workers(all=2), [Role("all", ("imap", "pop3", "lmtp"), 2)]),
    (Workers(imap=2, pop3=1, lmtp=3),
     [Role("imap", ("imap",), 2), Role("pop3", ("pop3",), 1), Role("lmtp", ("lmtp",), 3)]),
    (Workers(imap=2), [Role("imap", ("imap",), 2), Role("pop3+lmtp", ("pop3", "lmtp"), 1)]),
    (Workers(all=1, lmtp=2), [Role("lmtp", ("lmtp",), 2), Role("all", ("imap", "pop3", "lmtp"), 1)]),
])
def test_roles(workers: Workers, expected: list[Role]) -> None:
    assert roles(workers) == expected
    assert roles(workers, http=True) == [*expected, *([Role("http", ("http",), 1)] if expected else [])]


def test_http_has_a_process_of_its_own_where_it_is_asked_for() -> None:
    assert roles(Workers(http=2)) == []
    assert roles(Workers(http=2), http=True) == [Role("imap+pop3+lmtp", ("imap", "pop3", "lmtp"), 1),
                                                 Role("http", ("http",), 2)]


def send(server: Server, number: int, recipients: list[str]) -> None:
    with Lmtp(server.lmtp) as lmtp:
        assert [reply.code for reply in lmtp.deliver("", recipients, messages.make(1, number, 2048))] == [
            250] * len(recipients)


def count(server: Server, user: str) -> int:
    with Imap(server.imap, user, PASSWORD) as imap:
        found: int = imap.select()[1]
        return found


def workers(server: Server) -> list[int]:
    return wait.tree(server.pid)[1:]


def all_serve(server: Server) -> None:
    """Wait for the last of the processes: one alone is enough to answer."""
    wait.until(lambda: "serving with" in server.said(), "all serve", pid=server.pid, limit=LIMIT)


def _others(now: list[int], before: list[int]) -> list[int] | None:
    """The processes of now, if they are as many as before and all new."""
    return now if len(now) == len(before) and not set(now) & set(before) else None


def certificate_of(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), LIMIT) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(binary_form=True) or b""


def test_no_store(tmp_path: Path) -> None:
    done = subprocess.run([PROGRAM, "serve", "--root", tmp_path / "none"], capture_output=True, timeout=LIMIT,
                          check=False)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"onecopy: There is no store") and done.stderr.count(b"\n") == 1


def with_certificate(folder: Path, options: dict[str, str], users: list[str]) -> Server:
    make_certificate(folder / "tls", "one.example.org")
    files = {"tls.certificate": str(folder / "tls" / CERTIFICATE), "tls.key": str(folder / "tls" / "key.pem")}
    return Server(folder, users, {**options, **files})


def replace_certificate(server: Server, folder: Path) -> None:
    """Put another in its place: it is used after SIGHUP, not before."""
    port = int(server.options["imap.tls_port"])
    first = certificate_of(port)
    make_certificate(folder / "tls", "two.example.org")
    second = ssl.PEM_cert_to_DER_cert((folder / "tls" / CERTIFICATE).read_text())
    assert certificate_of(port) == first
    os.kill(server.pid, signal.SIGHUP)
    wait.until(lambda: {certificate_of(port) for _ in range(4)} == {second}, "the new one", pid=server.pid, limit=LIMIT)


def test_a_certificate_is_read_again(tmp_path: Path) -> None:
    with with_certificate(tmp_path, {}, []) as server:
        replace_certificate(server, tmp_path)
        assert server.stop() == 0


@pytest.mark.parametrize("options", [{}, TWO])
def test_a_hangup_in_the_middle_of_a_start(tmp_path: Path, options: dict[str, str]) -> None:
    """A process that does not know yet what SIGHUP means is not ended by it."""
    server = Server(tmp_path, [], options)
    server.launch()
    for _ in range(5):
        wait.until(lambda: workers(server) or None, "a process has been started", pid=server.pid, limit=LIMIT)
        os.kill(server.pid, signal.SIGHUP)
    server.answers()
    assert "died" not in server.said() and "ended while it started" not in server.said()
    assert server.stop() == 0


def test_a_start_that_fails_says_why_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    server = Server(tmp_path, [], {"tls.certificate": str(bad), "tls.key": str(bad)})
    server.launch()
    assert server.wait() == 2
    line, = server.said().splitlines()
    assert line.startswith("onecopy: ") and str(bad) in line


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of four processes: the keeper, one for IMAP, one for LMTP, one for POP3."""
    folder = tmp_path_factory.mktemp("several")
    with with_certificate(folder, {"workers.imap": "1", "workers.lmtp": "1"}, ["alice", "bob", "carol"]) as server:
        assert len(workers(server)) == 4
        yield server
        assert server.stop() == 0
    server.check()


def test_a_certificate_is_read_again_by_all(several: Server) -> None:
    replace_certificate(several, several.root.parent)


def test_processes_share_one_store(several: Server) -> None:
    before = len(several.messages)
    for number in range(6):
        send(several, number, ["alice", "bob"])
    assert count(several, "alice") == count(several, "bob") == 6
    assert len(several.messages) - before == 6


def test_news_reach_the_other_processes(several: Server) -> None:
    with Imap(several.imap, "carol", PASSWORD) as imap:
        imap.select()
        imap.send(b"i1 IDLE\r\n")
        assert imap.response().text.startswith(b"+ ")
        send(several, 10, ["carol"])
        assert imap.response().text == b"* 1 EXISTS"
        several.command("deliver", "carol", octets=messages.make(2, 0, 2048))
        while (text := imap.response().text) != b"* 2 EXISTS":
            assert text.endswith(b" RECENT")


@pytest.mark.parametrize("options", [{}, {"ONECOPY_WORKERS_IMAP": "0", "ONECOPY_WORKERS_LMTP": "0"}])
def test_a_store_that_a_supervisor_owns(several: Server, options: dict[str, str]) -> None:
    refused = subprocess.run([PROGRAM, "serve"], capture_output=True, timeout=LIMIT, check=False,
                             env=several.environment() | options)
    assert refused.returncode == 2
    assert f"pid {several.pid}," in refused.stderr.decode()


def test_a_worker_that_dies_takes_nothing_along(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"], TWO) as server:
        all_serve(server)
        send(server, 0, ["alice"])
        before = workers(server)
        os.kill(before[-1], signal.SIGKILL)
        wait.until(lambda: _others(workers(server), before), "all have been started again", pid=server.pid, limit=LIMIT)
        server.answers()
        send(server, 1, ["alice"])
        assert count(server, "alice") == 2
        assert server.said().count("died: signal SIGKILL; all are started again") == 1
        _dies_while_it_is_drained(server)
    server.check()


def _dies_while_it_is_drained(server: Server) -> None:
    """It was to stop, and stops: systemd starts again what ends with another status than 0."""
    with Imap(server.imap, "alice", PASSWORD):
        server.command("drain", "--no-wait")
        wait.until(lambda: server.said().count("nobody new may log in") >= 3 or None, "all have heard it",
                   pid=server.pid, limit=LIMIT)
        os.kill(workers(server)[0], signal.SIGKILL)
        assert server.wait() == 0
    assert "died: signal SIGKILL; the server, which was drained, stops" in server.said()


def test_workers_that_die_again_and_again(tmp_path: Path) -> None:
    with Server(tmp_path, [], {**TWO, "workers.restarts": "1"}) as server:
        all_serve(server)
        first = workers(server)
        os.kill(first[-1], signal.SIGKILL)
        second = wait.until(lambda: _others(workers(server), first), "all have been started again", pid=server.pid,
                            limit=LIMIT)
        os.kill(second[0], signal.SIGKILL)
        assert server.wait() == 1
        for pid in second:
            wait.gone(pid, "a worker", limit=LIMIT)
        assert "the processes of the server die again and again" in server.said()


def test_workers_do_not_outlive_their_supervisor(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"], TWO) as server:
        send(server, 0, ["alice"])
        before = workers(server)
        os.kill(server.pid, signal.SIGKILL)
        for pid in before:
            wait.gone(pid, "a worker", limit=LIMIT)
        assert server.wait() == -signal.SIGKILL
        server.start()
        assert count(server, "alice") == 1
        assert server.stop() == 0


def test_a_supervised_stop_says_goodbye(tmp_path: Path) -> None:
    with Server(tmp_path, ["alice"], TWO) as server:
        pids = workers(server)
        imap, lmtp = Imap(server.imap, "alice", PASSWORD), Lmtp(server.lmtp)
        assert server.stop() == 0
        assert imap.response().text.startswith(b"* BYE")
        assert lmtp.reply().code == 421
        imap.close()
        lmtp.close()
        for pid in pids:
            wait.gone(pid, "a worker", limit=LIMIT)
    server.check()


def test_a_port_in_use_with_workers(tmp_path: Path) -> None:
    server = Server(tmp_path, [], TWO)
    with socket.create_server(("127.0.0.1", server.lmtp)):
        refused = subprocess.run([PROGRAM, "serve"], capture_output=True, timeout=LIMIT, check=False,
                                 env=server.environment())
    assert refused.returncode == 2
    assert refused.stderr.decode() == f"onecopy: cannot listen on 127.0.0.1:{server.lmtp}: Address already in use\n"


def test_the_log_goes_to_a_file_and_holds_one_line_for_each_event(tmp_path: Path) -> None:
    file = tmp_path / "mail.log"
    with Server(tmp_path, ["alice"], {"log.file": str(file)}) as server:
        send(server, 0, ["alice"])
        assert server.stop() == 0
    assert server.said() == ""
    lines = file.read_text().splitlines()
    assert all(line[:4].isdigit() and f" {os.getpid()} " not in line for line in lines)
    assert "serving: imap on" in lines[0] and lines[-1].endswith("stopped")
    assert PASSWORD not in file.read_text()


@pytest.mark.parametrize(("how", "expected"), [(signal.SIGKILL, _Died), (None, Failure)])
def test_who_is_kept_out_by_a_killed_one_has_not_failed_to_start(
        faults: Faults, how: signal.Signals | None, expected: type[Exception]) -> None:
    other = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)       # it has not been asked whether it is ready
    refused = subprocess.Popen(["false"], stdout=subprocess.PIPE)
    supervisor = Supervisor(None)       # type: ignore[arg-type]
    faults.around(Supervisor, "_wait", lambda *_: None)
    faults.around(Supervisor, "_has_changed", lambda *_: False)
    supervisor._processes.update({"all-1": refused, "all-2": other})
    try:
        if how is not None:
            other.send_signal(how)
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(expected):
            supervisor._wait_ready("all-1")
    finally:
        other.kill()
        other.communicate()


def test_a_drain_in_the_pause_before_a_restart() -> None:
    """All have been killed since one had died: there is nobody to be drained, and nothing is started again."""
    supervisor = Supervisor(None)       # type: ignore[arg-type]
    supervisor._up = True               # before that
    supervisor._kill()
    supervisor._wake, write = os.pipe()
    os.write(write, bytes([signal.SIGUSR1]))
    try:
        with pytest.raises(_Stopped):
            supervisor._sleep(60)
    finally:
        os.close(supervisor._wake)
        os.close(write)


@pytest.fixture
def supervisor(faults: Faults, tmp_path: Path) -> Iterator[Supervisor]:
    """One without processes, of a store that is not there; signals are left as they are."""
    read, write = os.pipe()
    faults.around(supervising, "_signals_to_pipe", lambda _: read)
    yield Supervisor(options.load({"root": str(tmp_path)}, {}, None))
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(("where", "name"), [(supervising.process_registry, "strangers"),
                                             (supervising.volumestate, "is_read_only")])
def test_no_error_of_a_look_ends_a_server(supervisor: Supervisor, faults: Faults, caplog: pytest.LogCaptureFixture,
                                          where: ModuleType, name: str) -> None:
    """Descriptors are used up, or a disk fails: it is said once, and who is served goes on."""
    faults.fail(where, name, OSError(errno.EIO, "Input/output error", "run/inside"))
    supervisor._tickets = TicketKeys.shared(Tls())
    TROUBLES.over(supervising.UNSEEN)
    for _ in range(2):
        supervisor._next_look = 0.0
        supervisor._look()
    TROUBLES.over(supervising.UNSEEN)
    said, over = (line.getMessage() for line in caplog.records)
    assert said == f"{supervising.UNSEEN}: run/inside: Input/output error (more of this is counted)"
    assert "met 2 times" in over


def test_what_keeps_processes_from_being_started_again_may_pass(
        supervisor: Supervisor, faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    """At the first start it ends the program, with the reason; later it is tried again."""
    full = OSError(errno.EMFILE, "Too many open files")
    faults.fail(Supervisor, "_start", full)
    with pytest.raises(OSError, match="Too many open files"):
        supervisor.run()
    supervisor._served, ends = True, [full, _Stopped()]
    faults.around(Supervisor, "_sleep", lambda *_: None)
    faults.around(Supervisor, "_require_not_superseded", lambda *_: None)
    faults.around(Supervisor, "_start", lambda *_: _raise(ends.pop(0)))
    supervisor.run()
    assert not ends
    assert "the processes cannot be started: Too many open files; all are started again" in caplog.text


def _raise(error: BaseException) -> None:
    raise error
