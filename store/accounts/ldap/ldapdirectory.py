"""The users of an LDAP directory. `users.db` mirrors those whose mail is here, so that whatever walks the users, or
asks at once who somebody is, goes on as with the built-in directory and waits for nothing.

What the directory says is asked for in threads where it matters, at each login, recipient and token (`fetch`,
`authenticate`), and written into the rows when it has changed. It is believed for a while; who asks meanwhile is
answered at once (`at_once`). When it cannot be had or understood, there is no answer but UNAVAILABLE: nobody gets in,
and mail waits.
"""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from attrs import evolve, frozen

from mboxlist.table import MailboxList
from store.accounts.base import NO_USER_ID, Account, Known, Status
from store.accounts.ldap.freshness import Ages
from store.accounts.ldap.groupnames import GroupNames
from store.accounts.ldap.ldapentry import BadEntry, Entry, Found, Search
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldappool import Servers
from store.accounts.ldap.ldapprofiles import MapSettings
from store.accounts.ldap.ldapreading import read_account
from store.accounts.ldap.ldapsettings import Settings
from store.accounts.ldap.mirror import Mirror, not_understood
from store.accounts.sasl.scram import Keys
from store.errors import Problem, StoreError
from store.values import Secret

log = logging.getLogger(__name__)

MOST_GROUPS = 1000
# Which entry it is (RFC 4530 §2.1), and since when it is as it is (RFC 4512 §3.4.2): in whole seconds. So numbers of
# changes are asked for, too: OpenLDAP and Active Directory have them.
_CHANGED = ("modifyTimestamp", "entryCSN", "uSNChanged")
_IDENTITY = ("entryUUID", *_CHANGED)
# Since when the password is what it is: OpenLDAP with its overlay ppolicy, Active Directory, FreeIPA, 389 DS.
_PASSWORD = ("pwdChangedTime", "pwdLastSet", "krbLastPwdChange", "pwdUpdateTime")


@frozen
class _Answer(Known):
    """What the directory said of a name. `logins`: by which names the user logs in; `identity`: see `_identity`."""

    logins: frozenset[str] = frozenset()
    identity: str = ""
    warnings: tuple[str, ...] = ()


NOBODY = _Answer(None)


class LdapDirectory(Mirror):
    """An outside directory. The users in `Settings.local` are those of the built-in one."""

    def __init__(self, mailboxes: MailboxList, default_domain: str, settings: Settings, map_settings: MapSettings,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError, ValueError for files that do not hold what they should."""
        super().__init__(mailboxes, default_domain, settings.local)
        self.profile = Profile.of(map_settings, default_domain)
        self.servers = Servers(settings, clock)
        self._writing = Servers(settings.writing, clock) if settings.writing is not None else None
        self.asked: Callable[[Search, Sequence[Entry]], None] = lambda search, entries: None
        self.on_found: Callable[[Found], None] = lambda found: None
        self._clock = clock
        self.session_time = settings.session_time
        self._scope = settings.scope
        self._cache_time = settings.cache_time
        self._negative_time = settings.cache_negative_time
        self._known: Ages[_Answer] = Ages(settings.cache_size, settings.cache_time, clock)
        self._elsewhere: Ages[_Answer] = Ages(settings.cache_size, min(settings.cache_host_time, settings.cache_time),
                                              clock)
        self._nobody: Ages[_Answer] = Ages(settings.cache_size, settings.cache_negative_time, clock)
        self._domains: Ages[Entry] = Ages(settings.cache_size, min(settings.cache_time, settings.session_time or
                                                                   settings.cache_time), clock)
        self._groups_named = GroupNames(self.servers, self.profile, settings.cache_time, clock)
        self._sane_until = float("-inf")
        self._epoch = self.domains.epoch()

    # At once

    def at_once(self, address: str) -> Known | None:
        """What is known of an address without asking anybody."""
        name = self.user_id(address)
        if name == NO_USER_ID:
            return NOBODY
        if (own := self._local(name)) is not None:
            return Known(own)
        answer = self._believed(name)
        return answer if answer is None else Known(self._as_it_is(answer))

    def _local(self, name: str) -> Account | None:
        """The local user with that name or alias."""
        if not self.local:
            return None
        found = self.look_up(name)
        return found if found is not None and found.user in self.local else None

    def _believed(self, name: str) -> _Answer | None:
        epoch = self.domains.epoch()
        if epoch != self._epoch:
            self._epoch = epoch
            self.forget()
        return self._known.get(name) or self._elsewhere.get(name) or self._nobody.get(name)

    def _as_it_is(self, answer: _Answer) -> Account | None:
        """The row is as new: another process may have asked meanwhile."""
        return answer.account and (self.find(answer.account.user) or answer.account)

    def forget(self) -> None:
        """Believe nothing that was said before."""
        for ages in (self._known, self._elsewhere, self._nobody, self._domains):
            ages.clear()
        self._groups_named.clear()
        self._verified.clear()
        self._sane_until = float("-inf")

    def flush(self) -> None:
        """Have all processes believe nothing that was said before."""
        self.domains.next_epoch()

    def group_of_dn(self, dn: str) -> str:
        """See BuiltinDirectory."""
        return self._groups_named.of_dn(dn)

    def group_at_once(self, address: str) -> str | None:
        """See BuiltinDirectory."""
        return self._groups_named.of_mail_at_once(address)

    def fetch_group(self, address: str) -> str:
        """See BuiltinDirectory."""
        return self._groups_named.of_mail(address)

    @property
    def has_keys(self) -> bool:
        """No directory gives the keys of SCRAM away; and what some users cannot use is offered to none."""
        return False

    def find_keys(self, login: str, mechanism: str) -> tuple[Keys, Account | None]:
        """Keys that nothing fits."""
        return self.nobodys_keys(login, mechanism), None

    def remembers(self, login: str, password: Secret) -> Account | None:
        """The account, if this password was found right a short while ago, by the entry as it still is."""
        name = self.user_id(login)
        if name in self.local:
            return super().remembers(login, password)
        answer = self._believed(name)
        if answer is None or answer.account is None or name not in answer.logins:
            return None
        account = self._as_it_is(answer)
        if account is None or not account.status.may_log_in:
            return None
        return account if (account.user, password, answer.identity) in self._verified else None

    def login_user(self, login: str) -> str:
        """See BuiltinDirectory: by further names to log in by, too."""
        name = self.user_id(login)
        answer = None if name in self.local else self._believed(name)
        return name if answer is None or answer.account is None else answer.account.user

    def is_login(self, login: str, account: Account) -> bool:
        """See BuiltinDirectory."""
        name = self.user_id(login)
        answer = None if name in self.local else self._believed(name)
        return account.user == name if answer is None else name in answer.logins

    # By asking

    def fetch(self, address: str) -> Account | None:
        """The account that mail to the address is for. For a thread. Raises StoreError UNAVAILABLE."""
        known = self.at_once(address)
        return known.account if known is not None else self._ask(self.user_id(address))

    def refresh(self, user: str) -> Account | None:
        """See BuiltinDirectory; what is said is in the row, if there is one, and remembered."""
        return self.find(user) if user in self.local else self._ask(user)

    def _ask(self, name: str) -> Account | None:
        epoch, found = self.domains.epoch(), self._sure_entry(name)
        if found is None:
            self._gone(name, epoch)
            return None
        return self._learnt(name, epoch, *found).account

    def consult(self, address: str) -> Found | None:
        """What the directory says of an address, or a login name, now: nothing is written or remembered.

        Raises StoreError UNAVAILABLE; NotUnderstood when that is so for this one alone.
        """
        name = self.user_id(address)
        self._domains.clear()
        found = None if name == NO_USER_ID else self._sure_entry(name)
        return None if found is None else self._read(name, *found)[0]

    def authenticate(self, login: str, password: Secret) -> Account:
        """The account that logs in; see BuiltinDirectory. Raises StoreError BAD_LOGIN, UNAVAILABLE.

        What is asked, and in which order, is the same for an unknown user as for a wrong password; the account is only
        looked at when the password is right.
        """
        name = self.user_id(login)
        if name in self.local:
            return super().authenticate(login, password)
        epoch, found = self.domains.epoch(), None if name == NO_USER_ID else self._entry(name)
        doubtful = found is None and self.servers.several and self.find(name) is not None
        if doubtful:                            # who was there is not gone because one server says so
            found = self._entry(name, of_all=True)
        known = found is not None and self._was_proved(*found, password, epoch)
        right = known or self.servers.proves(found[0].dn if found else self._nobodys_dn(), _sendable(password),
                                             of_all=doubtful)
        if found is None and self.find(name) is not None:
            self._gone(name, epoch)
        if found is None or not right:
            raise StoreError(Problem.BAD_LOGIN)
        answer = self._learnt(name, epoch, *found)
        account = answer.account
        if account is None or name not in answer.logins or not account.status.may_log_in:
            raise StoreError(Problem.BAD_LOGIN)
        if not known:                           # or else it would be known for ever
            self._verified.add(account.user, password, answer.identity, self._cache_time)
        return account

    def turn_away(self, login: str, password: Secret) -> NoReturn:
        """See BuiltinDirectory: what is asked is what `authenticate` asks. The user's own entry is not tried, or a
        server that counts wrong passwords would lock it."""
        name = self.user_id(login)
        if name in self.local:
            super().turn_away(login, password)
        if name != NO_USER_ID:
            self._entry(name)
        self.servers.proves(self._nobodys_dn(), _sendable(password))
        raise StoreError(Problem.BAD_LOGIN)

    def _was_proved(self, entry: Entry, domain: Entry | None, password: Secret, epoch: bytes) -> bool:
        """Whether this password was found right a short while ago, by any process, for the entry as it is now. One that
        does not say when it was changed may have another password by now."""
        if not any(entry.values.get(name.lower()) for name in _CHANGED):
            return False
        try:
            user, _ = self.profile.user_id(entry, domain)
        except BadEntry:
            return False
        return (user, password, _identity(entry, epoch)) in self._verified

    def _nobodys_dn(self) -> str:
        """Of an entry that is not there, below where the users are."""
        base = self.profile.settings.base
        return f"cn={os.urandom(12).hex()}" + (f",{base}" if base else "")

    def _entry(self, name: str, *, of_all: bool = False) -> tuple[Entry, Entry | None] | None:
        """The entry of a user and that of its domain; None: there is no such user, at the first server that answers or
        (`of_all`) at any. Raises StoreError UNAVAILABLE."""
        parts = self.profile.whole(name)
        if parts is None:
            return None
        try:
            domain = self._domain(parts[1], of_all=of_all)
            search = self.profile.user_search(name, domain)
            entry = self._one(search, name, self._scope, of_all=of_all) if search is not None else None
            if entry is None:
                self._require_sane()
                return None
            return entry, domain
        except BadEntry as error:
            raise not_understood(name, error) from None

    def _sure_entry(self, name: str) -> tuple[Entry, Entry | None] | None:
        """The entry of a user and that of its domain; nobody is there only if all servers say so. A replica may be
        behind, or be filled at this moment, and mail would be refused for good."""
        found = self._entry(name)
        return self._entry(name, of_all=True) if found is None and self.servers.several else found

    def _domain(self, domain: str, *, of_all: bool = False) -> Entry | None:
        """Its entry, if domains have entries and this one has."""
        search = self.profile.domain_search(domain)
        if search is None:
            return None
        entry = self._domains.get(domain)
        if entry is None:
            entry = self._one(search, domain, of_all=of_all)
            if entry is not None:
                self._domains.put(domain, entry)
        return entry

    def _one(self, search: Search, name: str, scope: str = "subtree", *, of_all: bool = False) -> Entry | None:
        """The one entry that is found. Raises StoreError UNAVAILABLE, also for two: which one is meant?"""
        answer = self.servers.search(search.base, search.filter, (*search.attributes, *_IDENTITY, *_PASSWORD),
                                     scope=scope if search.below else "base", may_lack=not search.below, of_all=of_all)
        self.asked(search, answer.entries)
        if len(answer.entries) > 1 or not answer.complete:
            dns = " and ".join(entry.dn for entry in answer.entries)
            raise not_understood(name, f"there are several entries for it, {dns}")
        if not answer.entries:
            return None
        entry = answer.entries[0]
        if not entry.dn:                        # the root of all has no name, and a bind without one always succeeds
            raise not_understood(name, "an entry without a name was found for it")
        return entry

    def _require_sane(self) -> None:
        """Nobody is there only if the directory has something at all: when its contents are gone, or are not to be seen
        by us, mail must wait. Raises StoreError UNAVAILABLE."""
        if self._clock() < self._sane_until:
            return
        for base in {self.profile.settings.base, self.profile.settings.domain_base or self.profile.settings.base}:
            answer = self.servers.search(base, "(objectClass=*)", (), scope="base", may_lack=True)
            if not answer.entries:
                log.warning("directory: there is nothing to be seen at %s", base or "directory.base")
                raise StoreError(Problem.UNAVAILABLE, detail=f"directory: there is nothing to be seen at {base}")
        self._sane_until = self._clock() + self._negative_time

    # Where the mail is

    def may_set_hosts(self) -> bool:
        """Whether there is somebody as whom to write, and an attribute to write."""
        return self._writing is not None and bool(self.profile.schema.user["host"])

    def try_set_host(self, user: str) -> None:
        """See BuiltinDirectory: the entry gets the host that it has; without one, this back end."""
        self._write_host(user, "")

    def set_host(self, user: str, host: str) -> None:
        """Have the directory say which back end keeps the user's mail; see BuiltinDirectory."""
        self._write_host(user, host)

    def _write_host(self, user: str, host: str) -> None:
        """`host`: empty, the one that it has."""
        if user in self.local:
            return
        if self._writing is None or not self.may_set_hosts():
            raise StoreError(Problem.NO_PERMISSION, "The directory cannot be told of a move: see directory.write_dn")
        found = self._entry(user)
        if found is None:
            raise StoreError(Problem.UNAVAILABLE, f"{user} is not in the directory")
        attribute = self.profile.schema.user["host"][0]
        try:
            hosts = [host.encode()] if host else list(self._original(found[0]).values.get(attribute.lower(), ()))
            self._writing.replace(found[0].dn, attribute, hosts or [self.here().host.encode()])
        except (StoreError, BadEntry) as error:
            why = error.detail if isinstance(error, StoreError) else str(error)
            raise StoreError(Problem.UNAVAILABLE, f"The directory cannot be told of a move (directory.write_dn, "
                                                  f"directory.write_uris): {why}") from error
        self.drop(user)

    # What has been said

    def _learnt(self, name: str, epoch: bytes, entry: Entry, domain: Entry | None) -> _Answer:
        """The account of an entry, mirrored and remembered. Raises StoreError UNAVAILABLE."""
        found, host = self._read(name, entry, domain)
        before = self._known.get(name)
        if found.warnings and (before is None or before.warnings != found.warnings):
            for warning in found.warnings:
                log.warning("directory: %s: %s", found.account.user, warning)
        account = self.mirror(found.account, host)
        answer = _Answer(account, found.logins, _identity(entry, epoch), found.warnings)
        if self.domains.epoch() == epoch:
            for each in {name, account.user}:
                self.drop(each)
                (self._known if self.is_here(account) else self._elsewhere).put(each, answer)
        if self.is_here(account):
            self.on_found(evolve(found, account=account))
        return answer

    def _read(self, name: str, entry: Entry, domain: Entry | None) -> tuple[Found, str]:
        """What is said of the user, and the host that the row has named meanwhile; that one counts during a move."""
        profile = self.profile
        try:
            user, _ = profile.user_id(entry, domain)
            if user in self.local:
                raise BadEntry(f"{entry.dn} has the name of a user of directory.local")
            own = user.rpartition("@")[2] if "@" in user else profile.default_domain
            if domain is not None and profile.domain_name(domain) != own:       # found by an alias in another domain
                domain = self._domain(own)
                if domain is None:
                    raise BadEntry(f"{entry.dn}: there is no domain {own}")
            search = profile.group_search(entry, domain)
            groups = self._groups(search, entry) if search is not None else ()
            before = self.find(user)
            found = _marked(read_account(profile, entry, domain, self.here(), groups, before=before), entry)
            if before is None:
                return found, ""
            if self._moves.find(user) is not None:
                return evolve(found, account=evolve(found.account, host=before.host)), before.host
            if self._writing is not None and before.host != found.account.host:
                original = self._original(entry)
                found = _marked(read_account(profile, original, domain, self.here(), groups, before=before), entry)
            return found, before.host
        except BadEntry as error:
            raise not_understood(name, error) from None

    def _original(self, entry: Entry) -> Entry:
        """As the server says that takes changes: a replica may be behind, and serve a user who has moved away."""
        assert self._writing is not None
        answer = self._writing.search(entry.dn, "(objectClass=*)", self.profile.attributes, scope="base", most=1)
        if not answer.entries:
            raise BadEntry(f"{entry.dn} is not to be seen where changes are made")
        return answer.entries[0]

    def _groups(self, search: Search, user: Entry) -> tuple[Entry, ...]:
        answer = self.servers.search(search.base, search.filter, search.attributes, scope="subtree", most=MOST_GROUPS)
        self.asked(search, answer.entries)
        if not answer.complete:
            log.warning("directory: the server tells of %d groups of %s only", len(answer.entries), user.dn)
        return answer.entries

    def _gone(self, name: str, epoch: bytes) -> None:
        """There is no such user or alias."""
        row = self.look_up(name)
        if row is not None and row.user == name:
            if row.status not in (Status.DELETED, Status.REMOVED) or row.aliases:
                log.warning("directory: %s is not there any more: the mail stays until `onecopy user purge`", name)
            status = row.status if row.status is Status.REMOVED else Status.DELETED
            self.mirror(evolve(row, status=status, aliases=()))
        elif row is not None:                   # an alias until now
            self._ask(row.user)
        if self.domains.epoch() == epoch:
            self.drop(name)
            self._nobody.put(name, NOBODY)

    def drop(self, name: str) -> None:
        """Believe nothing that was said before about that name."""
        for ages in (self._known, self._elsewhere, self._nobody):
            ages.drop(name)


def _marked(found: Found, entry: Entry) -> Found:
    """With what another password would change, as far as the directory shows it."""
    marks = [(name, sorted(entry.values[name.lower()])) for name in _PASSWORD if entry.values.get(name.lower())]
    mark = hashlib.blake2b(repr(marks).encode(), digest_size=16).hexdigest() if marks else ""
    return evolve(found, account=evolve(found.account, credential=mark))


def _identity(entry: Entry, epoch: bytes) -> str:
    """Of which entry something was said, as it was when, and since which `flush`."""
    since = hashlib.blake2b(epoch, digest_size=16).hexdigest()
    return f"{entry.dn} {[sorted(entry.values.get(name.lower(), ())) for name in _IDENTITY]} {since}"


def _sendable(password: Secret) -> Secret:
    """As text (RFC 4513 §5.1.3); what is none is nobody's password, and takes as long."""
    try:
        password.reveal().decode()
    except UnicodeDecodeError:
        return Secret(os.urandom(16).hex().encode())
    return password
