"""Logging in to the console, and out: with the password of the directory, by the one way of every login."""

import logging
import secrets
import time
from collections.abc import Mapping

from attrs import define

from store import offload
from store.accounts.apppasswords.accessfiles import AccessFiles
from store.accounts.base import Account
from store.errors import Problem, StoreError
from store.net.authentication import Authenticator
from store.net.callers import IN_THE_CLEAR, Caller
from store.store import Store
from store.values import Secret
from tools.http.api.operationcalls import OperationCalls
from tools.http.apitokens import USER
from tools.http.console.consolesessions import SECOND, WHOLE, Session, Sessions, TooMany, form_token
from tools.http.console.forms import TOKEN, Form, require_own
from tools.http.console.rendering import BASE, HTML, OF_PAGES, rendered, url
from tools.http.settings import ADMINISTRATORS, ALL, Settings
from tools.http.userroles import role_of
from tools.http.webpages import Answer, Asked, Refused

log = logging.getLogger(__name__)

SERVICE = "http"            # its name in access rules and in the log
_SECURE, _PLAIN = "__Host-onecopy", "onecopy"       # RFC 6265bis §4.1.3.2: a browser takes the first over TLS alone
LONGEST = 1024              # characters of a name or password
#: What the page says to who has just had a session.
NOTICES = {"logged-out": "You have logged out.", "password": "The password has been changed. Log in with the new one."}
WRONG = "The user name or the password is wrong."
TOO_MANY = "Too many people have logged in to the console. Try again later."
_CLEAR = ("Passwords are taken only over TLS, or on the server itself. Use https:// and the port that "
          "http.tls_port names.")


async def needs_second(store: Store, settings: Settings, account: Account) -> bool:
    """Whether a second factor must be shown besides the password, or set up: then the session is in the state SECOND
    until the page at /console/second has seen it. Raises StoreError."""
    role, _ = role_of(settings, account.user, account.groups)
    if settings.second_factor == ALL or settings.second_factor == ADMINISTRATORS and role != USER:
        return True
    access = await offload.run(store, "pages", AccessFiles(store.root).of, account.user)
    return access.has_second_factor


@define(eq=False)
class Doorway:
    """The pages of those who have no session."""

    store: Store
    calls: OperationCalls

    async def show(self, asked: Asked, settings: Settings) -> Answer:
        """The page with the form. Its browser is given a secret of its own, by which the form is known to be ours."""
        self._require_private(asked, "")
        self.calls.prepare()
        cookie = shown_cookie(self.store, asked)
        if cookie is None:
            made = Secret(secrets.token_urlsafe(32).encode())
            return await self._page(asked, made, "", 200, [cookie_field(self.store, asked, made)])
        return await self._page(asked, cookie, "", 200, [])

    async def log_in(self, asked: Asked, settings: Settings) -> Answer:
        """The form was sent. Raises Refused."""
        form = Form.of(asked)
        name, password = form["user"], Secret(form["password"].encode("utf-8", "surrogateescape"))
        self._require_private(asked, name)
        cookie = shown_cookie(self.store, asked)
        if cookie is None:
            raise Refused(403, "Your browser has sent no cookie. The console needs cookies to know who has logged in.")
        require_own(asked, form, cookie)
        try:
            account = await self._account(asked, name, password)
            state = SECOND if await needs_second(self.store, settings, account) else WHOLE
        except StoreError as error:
            return await self._refusal(asked, cookie, error, name)
        try:
            session, secret = await offload.run(self.store, "pages", self.begin, asked, settings, account, state)
        except TooMany:
            raise Refused(503, TOO_MANY) from None
        log.info("%s has logged in to the console from %s (%s)", account.user, asked.peer, session.state)
        to = url("second") if state == SECOND else _inside(form.get("next"))
        return Answer(303, fields=[("Location", to), *OF_PAGES,
                                   ("Set-Cookie", cookie_field(self.store, asked, secret))])

    def begin(self, asked: Asked, settings: Settings, account: Account, state: str) -> tuple[Session, Secret]:
        """A session for the account. For a thread."""
        return Sessions(self.store.root).begin(
            account, time.time(), state=state, idle=settings.session_idle, time=settings.session_time,
            address=asked.peer, secure=is_secure(self.store, asked), browser=asked.fields.get("user-agent", ""))

    async def _account(self, asked: Asked, name: str, password: Secret) -> Account:
        assert asked.stream is not None
        if not 0 < len(name) <= LONGEST or not 0 < len(password.reveal()) <= LONGEST:
            raise StoreError(Problem.BAD_LOGIN)
        caller = Caller(asked.stream, SERVICE, passwords=True, anywhere=True)
        return (await Authenticator.of(self.store).password(caller, name, password)).account

    def _require_private(self, asked: Asked, name: str) -> None:
        authenticator = Authenticator.of(self.store)
        if asked.stream is None or not authenticator.is_private(asked.stream):
            if name and asked.stream is not None:
                authenticator.not_looked_at(Caller(asked.stream, SERVICE, passwords=False), IN_THE_CLEAR, name)
            raise Refused(403, _CLEAR)

    async def _refusal(self, asked: Asked, cookie: Secret, error: StoreError, name: str) -> Answer:
        text = WRONG if error.problem is Problem.BAD_LOGIN else f"{error.public}."
        status = {Problem.LIMIT: 429, Problem.UNAVAILABLE: 503}.get(error.problem, 403)
        return await self._page(asked, cookie, text, status, [], name)

    async def _page(self, asked: Asked, cookie: Secret, wrong: str, status: int, cookies: list[str], name: str = ""
                    ) -> Answer:
        values: Mapping[str, object] = {
            "title": "Log in", "wrong": wrong, "name": name, "token_field": TOKEN, "token": form_token(cookie),
            "next": _inside(asked.query.get("next", "")) if asked.method != "POST" else BASE,
            "notice": NOTICES.get(asked.query.get("done", ""), "")}
        page = await offload.run(self.store, "pages", rendered, "login.html", values)
        return Answer(status, page, HTML, [*OF_PAGES, *(("Set-Cookie", each) for each in cookies)])


def _inside(address: str) -> str:
    """An address of the console; its first page for any other."""
    fine = all(32 < ord(character) < 127 and character not in '\\"<>' for character in address)
    inside = address.startswith(BASE) and not address.startswith((url("login"), url("logout")))
    return address if fine and inside else BASE


# The cookie

def is_secure(store: Store, asked: Asked) -> bool:
    """Whether the browser speaks TLS, to us or to the proxy through which it comes."""
    return asked.secure or asked.stream is not None and Authenticator.of(store).is_secure(asked.stream)


def cookie_name(store: Store, asked: Asked) -> str:
    """That of the cookie, by whether the browser speaks TLS."""
    return _SECURE if is_secure(store, asked) else _PLAIN


def shown_cookie(store: Store, asked: Asked) -> Secret | None:
    """What the browser shows; None where it shows nothing, or two (RFC 6265 §5.4)."""
    name = cookie_name(store, asked)
    pairs = [part.strip().partition("=") for part in asked.fields.get("cookie", "").split(";")]
    found = [value for each, _, value in pairs if each == name]
    return Secret(found[0].encode("latin-1")) if len(found) == 1 and found[0] else None


def cookie_field(store: Store, asked: Asked, secret: Secret | None) -> str:
    """The value of Set-Cookie; without a secret the browser forgets the cookie."""
    value = "" if secret is None else secret.reveal().decode("ascii")
    return f"{cookie_name(store, asked)}={value}; Path=/; HttpOnly; SameSite=Strict" + (
        "; Secure" if is_secure(store, asked) else "") + ("; Max-Age=0" if secret is None else "")
