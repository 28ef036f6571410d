"""Whether a user may log in now, and what decides that, from what is stored. Changes nothing, and asks no password."""


from attrs import frozen

from store import hosting
from store.accounts.accessrules import BadRule, Rules
from store.accounts.base import Account
from store.accounts.loginsettings import Settings
from store.store import Store

SERVICES = ("imap", "pop", "lmtp")


@frozen
class Service:
    """Whether a service may be used without TLS and under it, and which rules say so."""

    service: str
    clear: bool
    tls: bool
    because: tuple[str, ...]


@frozen
class Login:
    """What holds for a user's logins from an address ("": wherever; then rules about addresses are not decided)."""

    user: str
    address: str
    status: str
    may_log_in: bool
    host: str                       # the back end that keeps the user's mail; "" for this one
    services: tuple[Service, ...]
    notes: tuple[str, ...]

    @property
    def refused(self) -> bool:
        """Whether no service would let the user in, whatever the password."""
        return not self.may_log_in or not any(each.clear or each.tls for each in self.services)


def login(store: Store, settings: Settings, account: Account, address: str) -> Login:
    """What holds now."""
    own = store.directory.access_rules(account)
    origin = "the user's own access rules" if account.access else "the access rules of the domain" if own else ""
    texts = [(text, where) for text, where in (
        (settings.service_access, "login.service_access"),
        (own or settings.access, origin or "login.access")) if text]
    notes = []
    if not account.status.may_log_in:
        notes.append(f"the status {account.status.value} lets nobody in")
    if account.status.may_log_in and not hosting.is_here(store, account):
        notes.append(f"the user's mail is on {account.host}: clients are sent there, or told so")
    if texts and not address:
        notes.append("which rule decides depends on where the user is: ask again with --from ADDRESS")
    services = tuple(_service(name, texts, address) for name in SERVICES)
    return Login(account.user, address, account.status.value, account.status.may_log_in,
                 "" if hosting.is_here(store, account) else account.host, services, tuple(notes))


def _service(name: str, texts: list[tuple[str, str]], address: str) -> Service:
    because, clear, tls = [], True, True
    for text, where in texts:
        try:
            rules = Rules.parse(text)
        except BadRule as error:
            return Service(name, False, False, (f"{where} cannot be read, and let nobody in: {error}",))
        if not address:
            because.append(f"{where}: {text}")
            continue
        for secure in (False, True):
            if not rules.allow(name, address, secure=secure):
                clear, tls = clear and secure, tls and not secure
        because.append(f"{where}: {_deciding(rules, text, name, address)}")
    return Service(name, clear, tls, tuple(because) or ("there are no access rules",))


def _deciding(rules: Rules, text: str, name: str, address: str) -> str:
    """The rule that speaks of the service and the client under TLS, and without it if that is another one."""
    parts, said = text.split("$"), []
    for secure in (False, True):
        at = rules.deciding(name, address, secure=secure)
        said.append("no rule speaks of it, so it is " + ("allowed" if rules.allow(name, address, secure=secure) else
                                                         "denied") if at is None else parts[at].strip())
    return said[0] if said[0] == said[1] else f"{said[0]}; under TLS: {said[1]}"
