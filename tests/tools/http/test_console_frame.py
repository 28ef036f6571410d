"""The console's frame, in memory: sessions, roles, forms, and what a page is made with."""

import stat
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from store.accounts.base import Account, Status
from store.accounts.builtin import BuiltinDirectory
from store.accounts.passwords import hash_password
from store.net.admission import AdmissionControl
from store.opening import make_empty_store, open_store
from store.store import Store
from store.values import Secret
from tests.support.conversations.wire import Wire
from tools.http import protocol
from tools.http.apitokens import ADMINISTRATOR, AUDITOR, HELPDESK, ROLES, USER
from tools.http.console.consoleframe import Console
from tools.http.console.consolesessions import (
    CHALLENGE_TIME,
    MOST_OF_USER,
    SECOND,
    WHOLE,
    Session,
    Sessions,
    form_token,
)
from tools.http.console.rendering import rendered, seen, url
from tools.http.console.visit import Changed, Section, View, Visit
from tools.http.settings import Settings
from tools.http.userroles import role_of
from tools.http.webpages import Answer, Asked, Pages

ALICE = Account("alice", "primary", credential="1")
NOW = 1_800_000_000.0
IDLE, WHOLE_TIME = 1800, 43200
ELSEWHERE = "192.0.2.1"


def begin(sessions: Sessions, now: float, account: Account = ALICE, state: str = WHOLE) -> tuple[Session, Secret]:
    return sessions.begin(account, now, state=state, idle=IDLE, time=WHOLE_TIME, address=ELSEWHERE, secure=False,
                          browser="b" * 1000)


# Sessions

def test_a_session_holds_for_its_browser_until_it_is_idle_or_old(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    made, secret = begin(sessions, NOW)
    assert sessions.find(secret, NOW + IDLE - 1, IDLE) == made
    assert sessions.find(secret, NOW + 2 * IDLE - 2, IDLE) == made          # it was heard of meanwhile
    assert sessions.find(secret, NOW + 4 * IDLE, IDLE) is None
    assert sessions.find(secret, NOW + 2 * IDLE - 1, IDLE) is None          # it does not come back
    made, secret = begin(sessions, NOW)
    for hour in range(12):
        assert sessions.find(secret, NOW + 3600 * hour + 10, 3700) == made
    assert sessions.find(secret, NOW + WHOLE_TIME, 3600) is None


def test_only_the_owner_of_the_store_can_read_it_and_nobody_can_log_in_with_it(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    made, secret = begin(sessions, NOW)
    path, = sessions.folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(sessions.folder.stat().st_mode) == 0o700
    text = path.read_text() + path.name
    assert secret.reveal().decode()[16:] not in text and "alice" not in path.name
    for wrong in (b"", made.id.encode(), made.shown_id.encode(), secret.reveal()[:-1], secret.reveal() + b"x",
                  b"\xff" * 40, b"../../" + secret.reveal(), secret.reveal()[:16],
                  b"0" * 16 + secret.reveal()[16:]):
        assert sessions.find(Secret(wrong), NOW, IDLE) is None
    path.write_text("{}")                       # cut off, or of another version
    assert sessions.find(secret, NOW, IDLE) is None


def test_sessions_are_bounded_and_the_oldest_end(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    secrets = [begin(sessions, NOW + second)[1] for second in range(MOST_OF_USER + 2)]
    other = begin(sessions, NOW, evolve(ALICE, user="bob"))[1]
    found = [sessions.find(each, NOW + 100, IDLE) is not None for each in secrets]
    assert found == [False, False, *[True] * MOST_OF_USER]
    assert sessions.end_of("alice", but=sessions.all(NOW, IDLE, "alice")[0].id) == MOST_OF_USER - 1
    assert sessions.find(other, NOW, IDLE) is not None
    begin(sessions, NOW + 10 * IDLE)            # those that are over are removed
    assert len(list(sessions.folder.iterdir())) == 1


def test_a_session_is_ended_by_its_shown_name(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    made, secret = begin(sessions, NOW)
    assert not sessions.end_shown("console-") and not sessions.end_shown("x") and not sessions.end("../x")
    assert sessions.end_shown(made.shown_id) and sessions.find(secret, NOW, IDLE) is None
    assert not sessions.end_shown(made.shown_id)


def test_a_challenge_is_taken_once_in_its_time_and_ends_with_the_session(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path)
    (made, _), (other, _) = begin(sessions, NOW), begin(sessions, NOW)
    assert sessions.take_challenge(made, NOW) is None
    older, newer = sessions.give_challenge(made, NOW), sessions.give_challenge(made, NOW)
    assert len(newer) >= 16 and older != newer              # WebAuthn §13.4.3
    assert sessions.take_challenge(other, NOW) is None      # it is of the session that was given it
    assert sessions.take_challenge(made, NOW + CHALLENGE_TIME - 1) == newer
    assert sessions.take_challenge(made, NOW) is None
    sessions.give_challenge(made, NOW)
    assert sessions.take_challenge(made, NOW + CHALLENGE_TIME) is None
    sessions.give_challenge(made, NOW)
    path, = sessions.folder.glob("*.challenge")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"")                                   # cut off
    assert sessions.take_challenge(made, NOW) is None
    sessions.give_challenge(made, NOW)
    sessions.end(made.id)
    sessions.give_challenge(made, NOW)                      # by a page that was asked for before
    assert sessions.take_challenge(other, NOW) is None
    begin(sessions, NOW + CHALLENGE_TIME)
    assert not list(sessions.folder.glob("*.challenge"))


@pytest.mark.parametrize("changes", [{"credential": "2"}, {"status": Status.DISABLED}, {"status": Status.REMOVED},
                                     {"user": "bob"}])
def test_another_account_is_not_logged_in(tmp_path: Path, changes: dict[str, Any]) -> None:
    made, _ = begin(Sessions(tmp_path), NOW)
    assert made.is_of(ALICE) and not made.is_of(evolve(ALICE, **changes))


# Roles

def test_the_first_role_counts() -> None:
    chosen = Settings(administrators=("root", "group:postmasters"), helpdesk=("help=Example.org", "root=example.org"),
                      auditors=("group:revision", "help"))
    assert role_of(chosen, "root", ()) == (ADMINISTRATOR, "")
    assert role_of(chosen, "x", ("postmasters",)) == (ADMINISTRATOR, "")
    assert role_of(chosen, "help", ()) == (HELPDESK, "example.org")
    assert role_of(chosen, "x", ("revision",)) == (AUDITOR, "")
    assert role_of(chosen, "x", ("root",)) == (USER, "x")
    assert role_of(chosen, "group:postmasters", ()) == (USER, "group:postmasters")       # a user who is called so


@pytest.mark.parametrize("wrong", [{"helpdesk": ("help",)}, {"helpdesk": ("help=",)}, {"helpdesk": ("=x",)},
                                   {"helpdesk": ("a=x", "a=y")}, {"auditors": ("anyone",)}, {"administrators": ("-x",)},
                                   {"administrators": ("group:",)}, {"auditors": ("help=x",)}])
def test_roles_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Settings(**wrong)


# What is shown

@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_nothing_that_is_shown_is_unseen(text: str) -> None:
    shown = seen(text)
    assert all(each == "\n" or each.isprintable() or each.isspace() for each in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u200b\u200f\ufeff\x00\x1b\r\x85\u2028")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40, alphabet=st.characters(codec="utf-8")))
def test_whatever_a_name_is_a_page_gets_it_back(text: str) -> None:
    address = url("users/one", user=text)
    asked = Asked("GET", address, {})
    asked.check()
    assert asked.path == "/console/users/one" and asked.query.get("user", "") == text


def test_a_template_escapes_what_it_prints() -> None:
    page = rendered("problem.html", {"title": "<script>", "public": '<img src=x onerror="x">\u202egnp', "advice": ""})
    assert b"&lt;script&gt;" in page and b"<img" not in page and "⟨U+202E⟩gnp".encode() in page


# Requests

class Door:
    """A console with pages of its own, in memory."""

    def __init__(self, store: Store) -> None:
        self.store, self.settings = store, Settings(administrators=("root",))
        self.heard: list[str] = []
        sections = (Section("", "First", (ADMINISTRATOR,), (View("", self._page), View("broken", self._broken))),
                    Section("mine", "Mine", ROLES, (View("mine", self._page), View("mine/do", self._act, post=True),
                                                    View("mine/changed", self._changed, post=True),
                                                    View("second", self._page, state=SECOND))))
        self.pages = Pages()
        calls = cast(Any, SimpleNamespace(prepare=lambda: None))
        Console(store, calls, sections, lambda: self.settings, cast(Any, None)).add_pages(self.pages)
        self.sessions = Sessions(store.root)

    async def _page(self, visit: Visit) -> Answer:
        return await visit.show("problem.html", "Page", public=visit.user, advice="")

    async def _broken(self, visit: Visit) -> Answer:
        raise RuntimeError("secret of the server")

    async def _act(self, visit: Visit) -> Answer:
        self.heard.append(visit.form["what"])
        return visit.redirect(visit.url("mine"))

    async def _changed(self, visit: Visit) -> Answer:
        visit.require_unchanged("The limit", visit.form["seen"], "2G")
        raise AssertionError

    def log_in(self, user: str, state: str = WHOLE) -> Secret:
        account = self.store.directory.look_up(user)
        return self.sessions.begin(account, time.time(), state=state, idle=IDLE, time=WHOLE_TIME, address="127.0.0.1",
                                   secure=False, browser="")[1]

    def ask(self, path: str, secret: Secret | None = None, body: bytes = b"", **fields: str) -> Answer:
        cookie = {"cookie": f"onecopy={secret.reveal().decode()}"} if secret else {}
        asked = Asked("POST" if body else "GET", path, {
            "host": "x", **cookie, **({"content-type": "application/x-www-form-urlencoded"} if body else {}),
            **{name.replace("_", "-"): value for name, value in fields.items()}}, body, peer="127.0.0.1")
        found: list[Answer] = []
        ensureDeferred(self.pages.answer(asked)).addCallback(found.append)
        return found[0]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """With users alice and root."""
    folder = tmp_path_factory.mktemp("frame") / "store"
    make_empty_store(folder)
    store = open_store(folder)
    try:
        for user in ("alice", "root"):
            cast(BuiltinDirectory, store.directory).add(user, hash_password(Secret(b"secret")))
        yield Door(store)
    finally:
        store.close()


def test_pages_by_role_and_state(door: Door) -> None:
    alice, root, half = door.log_in("alice"), door.log_in("root"), door.log_in("root", SECOND)
    assert door.ask("/console/", root).status == 200
    assert dict(door.ask("/console/", alice).fields)["Location"] == "/console/mine"
    assert door.ask("/console/broken", alice).status == 403
    assert door.ask("/console/mine", alice).status == 200
    assert door.ask("/console/nothing", alice).status == 404
    assert door.ask("/console/mine", alice, b"x=y").status == 405
    for path in ("/console/", "/console/mine", "/console/broken", "/console/progress?id=x"):
        assert dict(door.ask(path, half).fields)["Location"] == "/console/second", path
    assert door.ask("/console/second", half).status == 200
    assert dict(door.ask("/console/second", alice).fields)["Location"] == "/console/"
    for wrong in (None, Secret(b"x" * 60), Secret(b"0" * 16 + b"x" * 43)):
        location = dict(door.ask("/console/mine", wrong).fields)["Location"]
        assert location == "/console/login?next=%2Fconsole%2Fmine"


def test_what_has_failed_is_told_in_words(door: Door) -> None:
    answer = door.ask("/console/broken", door.log_in("root"))
    assert answer.status == 500 and b"secret of the server" not in answer.body and b"log of the server" in answer.body
    assert dict(answer.fields)["Content-Security-Policy"].startswith("default-src 'none'")


def test_forms(door: Door) -> None:
    secret, host = door.log_in("alice"), {"origin": "https://x"}
    token = form_token(secret).encode()
    assert door.ask("/console/mine/do", secret, b"what=a&csrf=" + token, **host).status == 303
    assert door.ask("/console/mine/do", secret, b"what=b&csrf=" + token, sec_fetch_site="same-origin").status == 303
    for body, fields in ((b"what=c", host), (b"what=c&csrf=" + token, {}),
                         (b"what=c&csrf=" + token, {"origin": "null"}),
                         (b"what=c&csrf=" + token, {"origin": "https://x.y"}),
                         (b"what=c&csrf=" + token, {**host, "sec_fetch_site": "cross-site"}),
                         (b"what=c&csrf=" + form_token(door.log_in("root")).encode(), host)):
        assert door.ask("/console/mine/do", secret, body, **fields).status == 403, (body, fields)
    for body in (b"csrf=" + token, b"what=%ff&csrf=" + token, b"\xff=x", b"&" * 2000):
        assert door.ask("/console/mine/do", secret, body, **host).status in (400, 403)
    assert door.ask("/console/mine/do", secret, b"{}", content_type="application/json").status == 415
    assert door.heard == ["a", "b"]


def test_only_who_has_logged_in_sends_a_large_form(door: Door) -> None:
    admission = AdmissionControl.from_settings("http", door.settings)
    factory, secret = protocol.factory(door.pages, door.settings, Clock(), admission), door.log_in("alice")
    body = b"what=large&csrf=" + form_token(secret).encode() + b"&more=" + b"x" * 100_000
    for value, status in ((b"onecopy=x", b"413"), (b"onecopy=" + secret.reveal(), b"303")):
        wire = Wire(factory, factory.clock)
        wire.send(b"POST /console/mine/do HTTP/1.1\r\nHost: x\r\nOrigin: http://x\r\nCookie: %b\r\n"
                  b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%b"
                  % (value, len(body), body))
        assert wire.received().startswith(b"HTTP/1.1 " + status)
        wire.hang_up()
    assert door.heard.pop() == "large"


def test_what_has_changed_since_is_told(door: Door) -> None:
    secret = door.log_in("alice")
    body = b"seen=1G&csrf=" + form_token(secret).encode()
    answer = door.ask("/console/mine/changed", secret, body, origin="https://x")
    assert answer.status == 409 and b"it is now: 2G" in answer.body
    assert Changed("x", 1).status == 409


def test_two_cookies_are_none(door: Door) -> None:
    secret = door.log_in("alice").reveal().decode()
    assert door.ask("/console/mine", cookie=f"a=b; onecopy={secret}").status == 200
    assert door.ask("/console/mine", cookie=f"onecopy=x; onecopy={secret}").status == 303
    assert door.ask("/console/mine", cookie=f"__Host-onecopy={secret}").status == 303       # that is for TLS


def test_a_password_is_not_taken_in_the_clear_from_elsewhere(door: Door) -> None:
    chosen = evolve(door.settings, networks=("0.0.0.0/0",))
    factory = protocol.factory(door.pages, chosen, clock := Clock(), AdmissionControl.from_settings("http", chosen))
    for peer, status in ((ELSEWHERE, b"403"), ("127.0.0.1", b"200")):
        wire = Wire(factory, clock, peer)
        wire.send(b"GET /console/login HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (received := wire.received()).startswith(b"HTTP/1.1 " + status), received
        assert (b"only over TLS" in received) == (peer == ELSEWHERE)
        wire.hang_up()


def test_the_console_can_be_off(door: Door) -> None:
    before, door.settings = door.settings, evolve(door.settings, console=False)
    try:
        assert door.ask("/console/login").status == 404 and door.ask("/console/").status == 404
    finally:
        door.settings = before
