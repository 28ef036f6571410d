"""onecopy directory, and what it takes to open a store whose users are in an outside directory."""

import json
from pathlib import Path

import pytest

from tests.support.processes.program import Program

NOWHERE = ("--directory-uris", "ldap://127.0.0.1:1", "--directory-base", "dc=example,dc=org",
           "--directory-starttls", "no")


def test_a_server_that_is_not_there(bare: Program, tmp_path: Path) -> None:
    bare("init")
    assert "built-in" in bare.refused("directory", "status", status=2)
    bare("directory", "flush")
    shown, = json.loads(bare("directory", "status", "--json", *NOWHERE, status=1))
    assert shown["server"] == "ldap://127.0.0.1:1" and shown["answers"] is False and "refused" in shown["problem"]
    bare("directory", "flush", *NOWHERE)
    assert bare("user", "list", *NOWHERE)                   # what is known here needs nobody
    assert bare("user", "show", "nobody", *NOWHERE, status=1) == ""
    (tmp_path / "password").write_text("secret\n")
    words = ("user", "add", "--password-file", str(tmp_path / "password"))
    bare(*words, "alice", *NOWHERE, status=2)               # whom the directory has, or not
    assert "directory.local" in bare.error
    bare(*words, "proxy", *NOWHERE, "--directory-local", "proxy")


@pytest.mark.long
def test_settings_that_cannot_work(bare: Program) -> None:
    bare("init")
    for option, value in {"ca": "/nonexistent/file", "bind-password-file": "/nonexistent/file", "bind-dn": "cn=x",
                          "write-dn": "cn=x"}.items():
        said = bare.refused("user", "list", *NOWHERE, f"--directory-{option}", value, status=2)
        assert said.startswith("directory: ")
