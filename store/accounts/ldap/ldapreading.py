"""An account out of the entries of a directory: each value, where it comes from, and what is wrong with it. Pure.

What decides who a user is and where the mail belongs must be right, or there is no account (BadEntry). Other values
that make no sense are passed over, and said: the account then has what is safe, never more than the directory gives.
"""

import unicodedata
from collections.abc import Sequence

from attrs import define, field

from mboxlist.acl import GROUP, AclProblem, parse_identifier
from mboxlist.names import NameProblem, legal_owner
from store.accounts import sieverules
from store.accounts.accessrules import BadRule, Rules
from store.accounts.aliases import MOST, legal_aliases
from store.accounts.base import Account, Status
from store.accounts.ldap import ldapnames
from store.accounts.ldap.ldapentry import BadEntry, Entry, Found, Here
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldapprofiles import Control, Fields
from store.accounts.ldap.ldapquota import BadQuota, QuotaWish, parse_composite
from store.accounts.sieverules import BadSieveRule
from store.errors import StoreError
from store.sieve.scriptlimits import DEFAULT as LIMITS
from store.tables.quotatable import DEFAULT

ALONE = Here()              # the only back end, with its one partition

MOST_GROUPS = 1000          # of a user
DISABLED_FLAG = 0x2         # of userAccountControl: ACCOUNTDISABLE

_HOST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._:")
_DENIAL = "-ALL:*"          # rules that nobody passes
_ONLY_THE_SITES = "own=no"  # of Sieve scripts
SCRIPT = LIMITS.script      # octets of all scripts of a user: they are stored as one
_FINAL = (Status.DELETED, Status.REMOVED, Status.DISABLED, Status.INACTIVE, Status.HOLD)


@define
class _Reading:
    """The user's entry and the domain's, and what has been found out so far."""

    profile: Profile
    user: Entry
    domain: Entry | None
    origins: dict[str, str] = field(factory=dict)
    warnings: list[str] = field(factory=list)
    unread: list[str] = field(factory=list)         # what is wrong with limits of the user

    def sources(self, name: str) -> list[tuple[Entry, Fields]]:
        """The entries that may say it, the user's first."""
        schema = self.profile.schema
        found = [(self.user, schema.user)]
        if self.domain is not None:
            found.append((self.domain, schema.domain))
        return [(entry, fields) for entry, fields in found if fields.get(name)]

    def texts(self, entry: Entry, attributes: Sequence[str]) -> list[tuple[str, str]]:
        """The values; those that are no text are passed over."""
        try:
            return entry.texts(attributes)
        except BadEntry as error:
            self.warnings.append(str(error))
            return []

    def note(self, name: str, entry: Entry, attribute: str, value: str) -> None:
        """That is where the value of a field comes from."""
        self.origins[name] = f"{attribute}={value} of {entry.dn}"


def read_account(profile: Profile, user: Entry, domain: Entry | None = None, here: Here = ALONE,
                 groups: Sequence[Entry] = (), *, before: Account | None = None) -> Found:
    """What the entries say; `before` is the account as the store has had it until now. Raises BadEntry."""
    reading = _Reading(profile, user, domain)
    name, origin = profile.user_id(user, domain)
    reading.origins["user"] = origin
    try:
        legal_owner(name)
    except NameProblem as error:
        raise BadEntry(f"{user.dn}: {error}") from None
    host = _host(reading, here)
    is_here = not host or not here.host or host == here.host
    account = Account(
        name, _partition(reading, here, before if is_here else None, known=is_here), _status(reading),
        before.removed if before is not None else 0, _groups(reading, groups), _aliases(reading, name),
        _access(reading), host, sieve=_sieve(reading))
    quota = _quota(reading, user, profile.schema.user, "")
    if is_here and before is None and reading.unread:
        raise BadEntry(f"{reading.unread[0]}; and no earlier limit is known")
    domain_name, domain_quota = "", QuotaWish(None, None)
    if domain is not None:
        domain_name = profile.domain_name(domain)
        domain_quota = _quota(reading, domain, profile.schema.domain, "domain_")
    return Found(account, _logins(reading, name), quota, domain_name, domain_quota, _scripts(reading), reading.origins,
                 tuple(dict.fromkeys(reading.warnings)))


# Status

def _status(reading: _Reading) -> Status:
    """Of the domain, the domain's mail, the user, the user's mail: the first that is not active decides.

    Except that a domain over quota, whose users can log in, does not open an account that is closed by itself.
    """
    schema, found = reading.profile.schema, Status.ACTIVE
    steps = [*((reading.domain, schema.domain, name) for name in ("status", "mail_status")),
             *((reading.user, schema.user, name) for name in ("status", "mail_status"))]
    reading.origins["status"] = "default: nothing says otherwise"
    for entry, fields, name in steps:
        if entry is None or not fields.get(name):
            continue
        flags = entry is reading.user and name == "status" and schema.control is Control.FLAGS
        status, attribute, value = _one_status(reading, entry, fields[name], flags)
        if value is None:
            continue
        if found is Status.ACTIVE or (found is Status.OVERQUOTA and status in _FINAL):
            reading.note("status", entry, attribute, value)
            found = status
        if found not in (Status.ACTIVE, Status.OVERQUOTA):
            break
    return found


def _one_status(reading: _Reading, entry: Entry, attributes: Sequence[str], flags: bool
                ) -> tuple[Status, str, str | None]:
    """What one entry says, by which attribute; a missing value is active, one that is not known inactive."""
    try:
        values = entry.texts(attributes)
    except BadEntry as error:
        reading.warnings.append(f"{error}: taken as inactive")
        return Status.INACTIVE, attributes[0], "(no text)"
    if not values:
        return Status.ACTIVE, attributes[0], None
    statuses = {_flags(value) if flags else reading.profile.schema.statuses.get(value.strip().lower())
                for _, value in values}
    attribute, value = values[0][0], ", ".join(value for _, value in values)
    if len(statuses) == 1 and (status := statuses.pop()) is not None:
        return status, attribute, value
    reading.warnings.append(f"{entry.dn}: {attribute}={value!r} is no status: taken as inactive")
    return Status.INACTIVE, attribute, value


def _flags(value: str) -> Status | None:
    """Of userAccountControl."""
    if not value.isascii() or not value.removeprefix("-").isdigit() or len(value) > 11:
        return None
    return Status.INACTIVE if int(value) & DISABLED_FLAG else Status.ACTIVE


# Where the mail is

def _host(reading: _Reading, here: Here) -> str:
    """The user's, else the domain's, else that of the settings. Raises BadEntry."""
    for entry, fields in reading.sources("host"):
        values = entry.texts(fields["host"])
        if not values:
            continue
        hosts = {value.strip().lower().rstrip(".") for _, value in values}
        host = hosts.pop()
        if hosts or not host or not set(host) <= _HOST:
            raise BadEntry(f"{entry.dn}: {values[0][0]} is not the name of one host")
        reading.note("host", entry, *values[0])
        return host
    default = reading.profile.settings.default_host.lower()
    reading.origins["host"] = "default: directory.default_host" if default else "default: the only back end"
    if here.host and not default:
        raise BadEntry(f"{reading.user.dn} does not say which back end keeps the mail")
    return default


def _partition(reading: _Reading, here: Here, before: Account | None, *, known: bool) -> str:
    """The user's, else the domain's, else the one that it had, else the default; the same in place of one that is not
    there. `known`: whether that is known here."""
    for entry, fields in reading.sources("partition"):
        values = reading.texts(entry, fields["partition"])
        if not values:
            continue
        attribute, value = values[0]
        name = value.strip()
        if len(values) == 1 and (name in here.partitions or not known):
            reading.note("partition", entry, attribute, value)
            return name
        reading.warnings.append(f"{entry.dn}: {attribute}={', '.join(value for _, value in values)!r} is no partition "
                                "of this store")
        break
    if before is not None and before.partition in here.partitions:
        reading.origins["partition"] = "store: that of the user until now"
        return before.partition
    reading.origins["partition"] = "default: store.default_partition"
    return here.default_partition


# Names

def _logins(reading: _Reading, name: str) -> frozenset[str]:
    names = {name}
    for _, value in reading.texts(reading.user, reading.profile.schema.user["logins"]):
        if "@" in value and not reading.profile.may_name(value, reading.domain):
            reading.warnings.append(f"{reading.user.dn}: {value!r} is in another domain than the entry: passed over")
        elif "@" in value or not reading.profile.is_alone(reading.domain):
            names.add(reading.profile.named(value))
        elif reading.domain is not None:
            names.add(reading.profile.named(f"{value}@{reading.profile.domain_name(reading.domain)}"))
    return frozenset(names - {""})


def _aliases(reading: _Reading, name: str) -> tuple[str, ...]:
    """All addresses but the user id itself, each once, in order."""
    fields, profile = reading.profile.schema.user, reading.profile
    found: dict[str, str] = {}
    for attribute, text in reading.texts(reading.user, (*fields["mail"], *fields["aliases"])):
        scheme, colon, address = text.strip().rpartition(":")
        if colon and scheme.lower() != "smtp":
            continue                                    # x500:, sip:
        alias = profile.named(address) if "@" in address.strip("@") else ""
        try:
            legal_aliases([alias])
        except StoreError:
            reading.warnings.append(f"{reading.user.dn}: {attribute}={text!r} is no address that can be an alias")
            continue
        if not profile.may_name(address, reading.domain):
            reading.warnings.append(f"{reading.user.dn}: {attribute}={text!r} is in another domain than the entry: "
                                    "passed over")
        elif alias != name:
            found.setdefault(alias, attribute)
    if len(found) > MOST:
        reading.warnings.append(f"{reading.user.dn} has more than {MOST} aliases: the first ones count")
    aliases = tuple(sorted(found)[:MOST])
    if aliases:
        used = sorted({found[alias] for alias in aliases})
        reading.origins["aliases"] = f"{', '.join(used)} of {reading.user.dn}"
    else:
        reading.origins["aliases"] = "default: none"
    return aliases


def _access(reading: _Reading) -> str:
    """The rules of the user, else of the domain. Several values have no order: denials come first."""
    reading.origins["access"] = "default: login.access"
    for entry, fields in reading.sources("access"):
        try:
            values = entry.texts(fields["access"])
        except BadEntry as error:
            reading.warnings.append(f"{error}: nothing may be used")
            reading.origins["access"] = f"default: denied, {error}"
            return _DENIAL
        texts = [value.strip() for _, value in values if value.strip()]
        rules = sorted(texts, key=lambda rule: (rule[:1] != "-", rule))
        if not rules:
            continue
        text = "$".join(rules)
        reading.note("access", entry, values[0][0], text)
        if len(rules) > 1:
            reading.warnings.append(f"{entry.dn}: {values[0][0]} has several values, which have no order: the denials "
                                    "are taken first")
        try:
            Rules.parse(text)
        except BadRule as error:
            reading.warnings.append(f"{entry.dn}: {values[0][0]}: {error}: nobody gets in by it")
        return text
    return ""


# Sieve

def _sieve(reading: _Reading) -> str:
    """What holds for the user's scripts: what the domain says, and behind it the user, who has the last word."""
    reading.origins["sieve"] = "default: section [sieve]"
    found: list[str] = []
    for entry, fields in reversed(reading.sources("sieve")):
        for attribute, value in reading.texts(entry, fields["sieve"]):
            reading.note("sieve", entry, attribute, value)
            try:
                sieverules.parse(value)
            except BadSieveRule as error:
                reading.warnings.append(f"{entry.dn}: {attribute}: {error}: the user's own scripts do not run")
                return _ONLY_THE_SITES
            found.append(value)
    return " ".join(found)


def _scripts(reading: _Reading) -> tuple[str, ...]:
    """The user's, else the domain's; several values have no order but that of their octets."""
    reading.origins["sieve_script"] = "default: none"
    for entry, fields in reading.sources("sieve_script"):
        try:
            values = entry.texts(fields["sieve_script"], SCRIPT)
        except BadEntry as error:
            reading.warnings.append(f"{error}: no script of the directory runs")
            return ()
        if sum(len(value.encode()) for _, value in values) > SCRIPT:
            reading.warnings.append(f"{entry.dn}: the values of {values[0][0]} are longer than {SCRIPT} octets: no "
                                    "script of the directory runs")
            return ()
        if values:
            reading.origins["sieve_script"] = f"{values[0][0]} of {entry.dn}"
            return tuple([value for _, value in values])
    return ()


# Groups

def _groups(reading: _Reading, found: Sequence[Entry]) -> tuple[str, ...]:
    """The names of the groups in order, each once: of those that were found, and those that the entry names."""
    profile, names = reading.profile, {}
    attributes = profile.schema.user["groups"]
    dns: list[tuple[str, Entry | None]] = [(group.dn, group) for group in found]
    dns += [(value, None) for _, value in reading.texts(reading.user, attributes)]
    base = profile.settings.group_base
    for dn, group in dns:
        try:
            if base and not ldapnames.is_below(dn, base):
                continue
            name = group_name(dn, group, profile.schema.group_name, whole=profile.settings.group_names == "dn")
            parse_identifier(GROUP + name)
        except (ValueError, AclProblem) as error:
            reading.warnings.append(f"{reading.user.dn}: the group {dn!r} is passed over: {error}")
            continue
        names[name] = dn
    if len(names) > MOST_GROUPS:
        reading.warnings.append(f"{reading.user.dn} is in more than {MOST_GROUPS} groups: the first ones count")
    ordered = tuple(sorted(names)[:MOST_GROUPS])
    by = "a search for groups" if profile.schema.group_filter else ", ".join(attributes) or "nothing"
    reading.origins["groups"] = f"{by}: {'; '.join(names[name] for name in ordered)}" if ordered else "default: none"
    return ordered


def group_name(dn: str, group: Entry | None, attributes: Sequence[str], *, whole: bool) -> str:
    """What a group is called in access control lists: always the same, and no two groups with different values alike.

    Lower case; a space, a per cent sign and what does not print as %XX. Raises ValueError.
    """
    rdns = ldapnames.compared_dn(dn)
    if not rdns:
        raise ValueError("it has no name")
    if whole:
        text = ",".join("+".join(f"{kind}={ldapnames.escape_value(value)}" for kind, value in rdn) for rdn in rdns)
    else:
        wanted = {name.lower() for name in attributes}
        in_rdn = [value for kind, value in rdns[0] if kind in wanted]
        values = in_rdn or sorted({ldapnames.folded(value) for _, value in group.texts(attributes)} if group else ())
        if not values and group is None:
            values = [rdns[0][0][1]]
        if len(values) != 1:
            raise ValueError(f"it has {'no' if not values else 'more than one'} value of {' or '.join(attributes)}")
        text = values[0]
    text = unicodedata.normalize("NFC", text)
    return "".join(each if each.isprintable() and each not in " %" else
                   "".join(f"%{octet:02X}" for octet in each.encode()) for each in text)


# Quota

def _quota(reading: _Reading, entry: Entry, fields: Fields, prefix: str) -> QuotaWish:
    """The limits that an entry says. One that cannot be read is left as it is: it is None."""
    octets, of_octets, said = _limits(reading, entry, fields.get("quota", ()), prefix, "quota")
    messages, of_messages, also = _limits(reading, entry, fields.get("message_quota", ()), prefix, "message_quota")
    paths = sorted({*of_octets, *of_messages})
    return QuotaWish(octets, messages, tuple((path, of_octets.get(path), of_messages.get(path)) for path in paths),
                     said or also)


def _limits(reading: _Reading, entry: Entry, attributes: Sequence[str], prefix: str, name: str
            ) -> tuple[int | None, dict[str, int], bool]:
    """The limit, those of mailboxes, and whether the entry says anything of it."""
    if not attributes:
        reading.origins[prefix + name] = "store: the directory has no attribute for it"
        return None, {}, False
    reading.origins[prefix + name] = "default: no limit" if prefix else f"default: store.default_{name}"
    messages = name == "message_quota"
    try:
        values = entry.texts(attributes)
        if not values:
            return DEFAULT, {}, False
        attribute, value = values[0]
        if len(values) > 1:
            raise BadEntry(f"{entry.dn}: {attribute} has more than one value")
        limit, parts, types = parse_composite(value, messages=messages)
        if prefix and (parts or types):
            raise BadQuota("a domain has no limits of mailboxes")
    except (BadQuota, BadEntry) as error:
        text = str(error) if isinstance(error, BadEntry) else f"{entry.dn}: {attribute}: {error}"
        reading.warnings.append(text)
        if entry is reading.user:
            reading.unread.append(text)
        reading.origins[prefix + name] = f"store: left as it was, {text}"
        return None, {}, True
    reading.note(prefix + name, entry, attribute, value)
    if types:
        reading.warnings.append(f"{entry.dn}: {attribute}: there are no limits for types of messages "
                                f"({', '.join(types)})")
    return limit, parts, True
