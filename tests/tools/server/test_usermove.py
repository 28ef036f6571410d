"""What is configured for back ends to speak to each other; and moves that housekeeping finishes."""

from pathlib import Path

import pytest

from store.errors import Problem, StoreError
from store.usermove import sourceside
from store.usermove.sourceside import send
from tests.support.servers.certificates import Authority
from tests.support.stores.movepair import ONE, TWO, Line, two_back_ends
from tools.cli import options as config
from tools.exits import Failure
from tools.server.control.backendlink import Place, of_worker, task
from tools.server.process.accepting import Spares


def place(folder: Path, host: str = ONE, **options: str) -> Place:
    given = {"root": str(folder), "exchange.authorities": str(folder / "authorities.pem")} | {
        f"exchange.{name}": value for name, value in options.items()}
    if not (folder / "authorities.pem").exists():
        (folder / "authorities.pem").write_bytes(Authority(folder, "authority").file.read_bytes())
    return Place.of(config.load(given, {}, None), host)


def test_where_the_others_are(tmp_path):
    found = place(tmp_path, peers=f"{TWO.upper()}=127.0.0.1:2525, three = [::1]:99")
    assert [(each.host, each.address, each.port) for each in found.peers.values()] == [
        (TWO, "127.0.0.1", 2525), ("three", "::1", 99)]


@pytest.mark.parametrize(("said", "options"), [
    ("store.host is not set", {"host": ""}), ("exchange.authorities is not set", {"authorities": ""}),
    ("exchange.authorities: /nowhere: No such file", {"authorities": "/nowhere"}),
    ("exchange.certificate: /nowhere: No such file", {"certificate": "/nowhere"}),
    ("exchange.key is given without exchange.certificate", {"key": "/nowhere"}),
    ("is not host=address:port", {"peers": "two"}),
    ("is not host=address:port", {"peers": "two=127.0.0.1"}), ("is not host=address:port", {"peers": "two=:25"}),
    ("is not host=address:port", {"peers": "two=a:0"}), ("is not host=address:port", {"peers": "=a:25"})])
def test_what_cannot_be(tmp_path, said, options):
    with pytest.raises(Failure, match=said):
        place(tmp_path, **options)


def test_the_secret_of_former_versions_keeps_no_server_from_starting(tmp_path, caplog):
    (tmp_path / "secret").write_text("0123456789abcdef01234567")
    given = {"root": str(tmp_path), "exchange.secret": str(tmp_path / "secret"), "exchange.peers": "two=127.0.0.1:1"}
    loaded = config.load(given, {}, None)
    assert of_worker(loaded, None, [], Spares()) == (None, [])
    assert "exchange.authorities is not set" in caplog.text
    with pytest.raises(Failure, match="exchange.authorities is not set"):
        Place.of(loaded, ONE)


def test_who_cannot_be_reached(tmp_path):
    found = place(tmp_path, peers=f"{TWO}=127.0.0.1:1")
    for host, problem in ((TWO, Problem.UNAVAILABLE), ("three", Problem.NO_PERMISSION)):
        with pytest.raises(StoreError) as refused:
            found.connect(host)
        assert refused.value.problem is problem and host in refused.value.public


def test_a_back_end_that_is_alone_serves_no_others(tmp_path):
    assert of_worker(config.load({"root": str(tmp_path)}, {}, None), None, [], Spares()) == (None, [])


def test_housekeeping_finishes_what_was_cut_off(tmp_path, faults):
    with two_back_ends(tmp_path) as (one, two):
        line = Line(two, ONE)
        faults.around(sourceside, "finish", lambda *_: None)
        send(one, "alice", TWO, line.connect)
        line.ended()                            # or the other one may still be at it
        faults.mend()
        assert one.names("alice") and not two.names("alice")

        class There:
            def connect(self, host):
                assert host == TWO
                return line.connect()

        work = task(There())
        users = list(work.items(one))
        with sourceside.alone(one):
            work.work(one, "alice")                     # somebody is at it
        assert users == list(work.items(one)) == ["alice"]
        work.work(one, "alice")
        line.ended()
        assert list(work.items(one)) == [] and not one.names("alice")
        assert [entry.name.path for entry in two.names("alice")] == ["INBOX"]
