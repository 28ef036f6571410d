"""onecopy standby status, where the server or the process that follows does not run."""

import json
import time
from pathlib import Path

import pytest

from store.opening import make_empty_store
from store.standby.standbystate import StandbyState
from store.standby.succession import Succession
from tests.support.processes import command

IN_STEP = {"waited": True, "step": "in step", "current": 1.0, "behind": 0, "trip": 0.01, "through": "",
           "unprotected": []}


def told(root: Path, *words: str) -> tuple[int, str]:
    found, out, _ = command.run_here(("standby", "status", *words), {"ONECOPY_ROOT": str(root)}, b"")
    return found, out


@pytest.mark.parametrize(("successor", "text"), [("", "the server does not run"), (
    "second.example.org", "second.example.org has been promoted and serves this store")])
def test_a_server_that_has_just_ended(tmp_path: Path, successor: str, text: str) -> None:
    """What it noted last is not what is so now: nobody's answers wait for anything."""
    make_empty_store(root := tmp_path / "store")
    (root / "run" / "standbys").write_text(json.dumps({
        "time": time.time(), "refuse": True, "standbys": {"second.example.org": IN_STEP}}))
    Succession(successor=successor, later=1).save(root)
    status, out = told(root)
    assert status == 1 and text in out
    status, out = told(root, "--json")
    said = json.loads(out)
    assert status == 1 and (said["runs"], said["successor"]) == (False, successor)


def test_a_standby_that_has_not_got_to_its_beginning(tmp_path: Path) -> None:
    """No process follows, and so no answers wait for what was noted last."""
    StandbyState("mail.example.org", "mail.example.org:4191").save(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "standby").write_text(json.dumps({"step": "in step"}))
    status, out = told(tmp_path)
    assert status == 1 and "not all is here yet" in out
    assert "1970" not in out and "answers there" not in out


@pytest.mark.parametrize("words", [("serve",), ("config", "reload")])
def test_a_command_that_is_for_a_server_says_what_this_is(tmp_path: Path, words: tuple[str, ...]) -> None:
    """`onecopy init` and `systemctl start onecopy`, which ends what follows, are no advice here."""
    StandbyState("mail.example.org", "mail.example.org:4191").save(tmp_path)
    (tmp_path / "run").mkdir()
    status, _, complaint = command.run_here(words, {"ONECOPY_ROOT": str(tmp_path)}, b"")
    assert status and "is a standby" in complaint
    assert "init" not in complaint and "start onecopy" not in complaint.replace("restart", "")
