"""The API, asked by each role for everything that its own description has, with hostile values. Nothing of it may be an
error of the server, or change what is not the role's."""

import http.client
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import VERSION
from tests.support.processes.ports import free_port
from tests.support.servers.server import Server
from tests.tools.http.test_api import HOSTILE
from tools.http.api.operationparsers import listed
from tools.http.api.permissions import READING
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK, USER

NAMES = ("alice", "bob@example.net", "carol", "INBOX", "user/alice/INBOX", "public/", "1G", "default", "1:*", "",
         *HOSTILE)
TEXT = st.sampled_from(NAMES) | st.text(max_size=20)
ROLES = {ADMINISTRATOR: (), AUDITOR: (), HELPDESK: ("--domain", "example.net"), USER: ("--user", "carol")}
#: What takes long, or changes something that only an administrator should, is not asked for by one here.
OF_ADMINISTRATORS = frozenset(READING)


@cache
def document() -> Any:
    """What the API says of itself; it loads all commands."""
    return json.loads(listed(VERSION).description)


def value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What fits, mostly; and what does not."""
    if schema["type"] == "array":
        return st.lists(value(schema["items"]), max_size=2)
    fits = st.booleans() if schema["type"] == "boolean" else (
        st.sampled_from(schema["enum"]) if "enum" in schema else TEXT)
    return st.one_of(fits, fits, fits, TEXT, st.none() | st.integers() | st.just({}))


def arguments(path: str) -> st.SearchStrategy[dict[str, Any]]:
    """Of an operation, some of them; and one that it has not."""
    schema = document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    known = {**{name: value(each) for name, each in schema["properties"].items()}, "unknown": TEXT}
    always = [name for name in known if name in ("user", "root", "mailbox")]
    return st.lists(st.sampled_from(sorted(known)), max_size=2).flatmap(
        lambda names: st.fixed_dictionaries({name: known[name] for name in (*always, *names)}))


def requests(names: "frozenset[str] | None") -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    paths = sorted(path for path in document()["paths"] if "post" in document()["paths"][path]
                   and (names is None or path[1:].replace("/", " ") in names))
    return st.sampled_from(paths).flatmap(lambda path: st.tuples(st.just(path), arguments(path)))


class Scanned:
    """A server, with a token for each role."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self._port = server, port
        self._tokens = {role: server.command("token", "create", "--role", role, *more).strip()
                        for role, more in ROLES.items()}
        self._tokens[""] = "oc_none_none"

    def ask(self, role: str, path: str, body: object) -> int:
        """The status, of an answer that fits the description."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        try:
            connection.request("POST", f"/api/v1{path}", json.dumps(body), {
                "Content-Type": "application/json", "Authorization": f"Bearer {self._tokens[role]}"})
            answer = connection.getresponse()
            octets = answer.read()
        finally:
            connection.close()
        described = document()["paths"][path]["post"]["responses"]
        assert str(answer.status) in described, (role, path, body, answer.status, octets)
        kind = answer.headers["Content-Type"]
        assert list(described[str(answer.status)]["content"]) == [kind] or answer.status == 400, (path, body, kind)
        schema = document()["components"]["schemas"]["Problem" if "problem" in kind else "Outcome"]
        self._fits(json.loads(octets), schema)
        assert b"Traceback" not in octets
        return answer.status

    def _fits(self, found: dict[str, Any], schema: dict[str, Any]) -> None:
        kinds = {"string": str, "integer": int}
        assert set(schema["required"]) <= set(found)
        for name, each in schema["properties"].items():
            assert name not in found or isinstance(found[name], kinds.get(each.get("type"), object)), (name, found)

    def state(self) -> list[str]:
        """What neither the helpdesk of example.net nor carol may change."""
        return [self.server.command(*words) for words in (
            ("user", "show", "alice", "--json"), ("mailbox", "list", "alice", "--json"), ("token", "list", "--json"),
            ("quota", "show", "alice", "--json"), ("snapshot", "list", "--json"), ("expire", "rules", "--json"))]


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scanned]:
    port = free_port()
    with Server(Path(tmp_path_factory.mktemp("scanned")), ["alice", "bob@example.net", "carol"], {
            "http.port": str(port), "http.helpdesk_quota": "1G"}) as server:
        made = Scanned(server, port)
        before = made.state()
        yield made
        assert made.state() == before
        said = server.log.read_text()
        assert "Traceback" not in said, said[-4000:]
        assert server.stop() == 0
        server.check()


EXAMPLES = {ADMINISTRATOR: 15, AUDITOR: 40, HELPDESK: 40, USER: 40, "": 5}


@pytest.mark.parametrize("role", list(EXAMPLES))
def test_no_role_finds_an_error_or_a_way_around(role: str, scanned: Scanned) -> None:
    @settings(max_examples=EXAMPLES[role], derandomize=True, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(requests(OF_ADMINISTRATORS if role == ADMINISTRATOR else None))
    def scan(asked: tuple[str, dict[str, Any]]) -> None:
        status = scanned.ask(role, *asked)
        assert (status == 401) == (role == "")

    scan()
