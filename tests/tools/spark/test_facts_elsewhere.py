"""Facts on a file system that is not of this machine: by a URI, through Hadoop's own client (issue 25, item 1). Its
WebHDFS client is within Spark; s3a, hdfs and abfs differ from it in nothing that we call."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.opening import open_store
from tests.support.servers.webhdfs import Remote, webhdfs
from tests.support.stores.messages import make
from tests.support.stores.stores import deliver
from tests.tools.spark.conftest import LOCAL, QUIET
from tests.tools.spark.test_facts import copy, quiet_options  # noqa: F401
from tools.cli import program
from tools.spark.facts.factsexport import MANIFEST

WHERE = [LOCAL]
pytestmark = pytest.mark.usefixtures("quiet_options", "in_session")
TOP = "/facts/mail1"


@pytest.fixture
def remote() -> Iterator[Remote]:
    with webhdfs() as made:
        yield made


def manifest(remote: Remote) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(remote.files[f"{TOP}/{MANIFEST}"])
    return found


def named(remote: Remote) -> dict[str, int]:
    """Octets of the files that the manifest names."""
    return {f"{TOP}/{path}": size for _, files in manifest(remote)["ranges"].values() for path, _, _, size in files}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, which ends with that exit status; what it prints, or complains of."""
    def ran(*words: object, status: int = 0) -> str:
        assert program.main([str(word) for word in words]) == status
        out, error = capsys.readouterr()
        return error if status else out

    return ran


def test_export(copy: Path, remote: Remote, run: Callable[..., str]) -> None:        # noqa: F811
    """An export that is cut off is never taken for a whole one, and what is lost there is written again."""
    place = remote.uri(TOP)
    export = ("facts", "export", place, "--root", copy, "--name", "mail1", "--json")

    def messages(status: int = 0) -> Any:
        out = run("spark", "sql", "SELECT count(*) AS n FROM references", "--facts", place, "--root", copy, "--json",
                  status=status)
        return out if status else json.loads(out)[0]["n"]

    remote.room = 5                             # the first one is cut off: it is none
    assert "there is no room" in run(*export, status=1)
    assert remote.files and f"{TOP}/{MANIFEST}" not in remote.files
    assert f"{MANIFEST}, which comes last, is not there" in messages(2)
    remote.room = 1_000_000
    first = json.loads(run(*export))
    assert {path: len(octets) for path, octets in remote.files.items() if not path.endswith(MANIFEST)} == named(remote)
    whole = messages()
    assert whole > 30

    store = open_store(copy, QUIET)
    deliver(store, make(9, 1, 1500), "user/dave/INBOX")
    store.close()
    remote.room = 2                             # the next one is cut off: who reads sees the first
    assert "there is no room" in run(*export, status=1) and messages() == whole
    remote.room, remote.refused = 1_000_000, (MANIFEST,)        # so is one that ends with its last step undone
    assert "not renamed" in run(*export, status=1) and messages() == whole
    remote.refused = ()
    assert json.loads(run(*export))["rows_written"] < first["rows"] and messages() == whole + 1

    lost = next(path for path in named(remote) if "/references/primary/" in path)
    remote.files[lost] = remote.files[lost][:-1]
    assert "is missing or cut off: export the facts again" in messages(2)
    run(*export)
    assert messages() == whole + 1
    run(*export)
    assert lost not in remote.files and named(remote).items() <= {
        path: len(octets) for path, octets in remote.files.items()}.items()
