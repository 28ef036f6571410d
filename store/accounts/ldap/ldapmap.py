"""What the entries of an LDAP directory mean: searches out of addresses, and accounts out of entries. Pure, no I/O.

A login name or address is looked up in up to three searches. `domain_search` finds the entry of its domain, where there
are such entries; without one nobody is there. `user_search` finds the user: none is nobody, two are an error.
`group_search` finds the user's groups, where the user's own entry does not name them. `account` makes the account.

Who logs in must be in `Found.logins`: an entry may have been found by an address that is no login name.
"""

from collections.abc import Iterable, Sequence

from attrs import evolve, frozen

from store.accounts.base import Account, Status
from store.accounts.ldap import ldapnames
from store.accounts.ldap.ldapentry import BadEntry, Entry, Search
from store.accounts.ldap.ldapnames import Rdn, escape, fill, folded
from store.accounts.ldap.ldapprofiles import Fields, Kind, MapSettings, Schema, Tree
from store.addresses import canonical, canonical_domain


@frozen
class Profile:
    """How a directory is asked and read; `default_domain` is the one whose users are named without it."""

    settings: MapSettings
    schema: Schema
    default_domain: str

    @classmethod
    def of(cls, settings: MapSettings, default_domain: str) -> "Profile":
        """From the settings."""
        return cls(settings, settings.schema, canonical_domain(default_domain))

    def whole(self, address: str) -> tuple[str, str] | None:
        """Local part and domain of an address or login name; None for what cannot be one."""
        try:
            local, _, domain = canonical(address if "@" in address else f"{address}@{self.default_domain}"
                                         ).rpartition("@")
        except ValueError:
            return None
        return (local, domain) if local and domain and "\0" not in address else None

    # Domains

    @property
    def domain_attributes(self) -> tuple[str, ...]:
        """Those of a domain's entry that are read."""
        return _names(self.schema.domain)

    def domain_filter(self, domain: str) -> str:
        """The filter for a domain's entry."""
        if self.settings.domain_filter:
            return fill(self.settings.domain_filter, {"domain": domain})
        schema = self.schema
        if schema.tree is Tree.LABELS:
            return schema.domain_class
        return f"(&{schema.domain_class}{_any((name, domain) for name in schema.domain['name'])})"

    def domain_search(self, domain: str) -> Search | None:
        """For the entry of a domain; None where there are no such entries."""
        tree, base = self.schema.tree, self.settings.domain_base or self.settings.base
        if tree is Tree.NONE:
            return None
        if tree is Tree.LABELS:
            labels = [f"dc={ldapnames.escape_value(label)}" for label in domain.split(".")]
            return Search(",".join([*labels, *([base] if base else [])]), self.domain_filter(domain),
                          self.domain_attributes, below=False)
        return Search(base, self.domain_filter(domain), self.domain_attributes)

    def domain_name(self, entry: Entry) -> str:
        """The name with which the user ids of a domain are made. Raises BadEntry."""
        schema = self.schema
        names = (entry.texts(schema.domain.get("main_name", ())) or self._labels(entry)
                 or _own(entry, schema.domain["name"]))
        found = {canonical for _, name in names if (canonical := _domain(name))}
        if len(found) != 1:
            said = f"which of {', '.join(sorted(found))} is the domain's own name is not said"
            raise BadEntry(f"{entry.dn}: {said if found else 'the domain has no name'}")
        return found.pop()

    def domain_names(self, entry: Entry) -> frozenset[str]:
        """All names of a domain. Raises BadEntry."""
        names = (*entry.texts(self.schema.domain["name"]), *self._labels(entry))
        return frozenset({_domain(name) for _, name in names} | {self.domain_name(entry)}) - {""}

    def _labels(self, entry: Entry) -> list[tuple[str, str]]:
        """The domain that the name of the entry spells out."""
        if self.schema.tree is not Tree.LABELS:
            return []
        rdns, base = _rdns(entry.dn), self.settings.domain_base or self.settings.base
        return [("dc", ".".join(rdn[0][1] for rdn in rdns[:len(rdns) - len(_rdns(base))]))]

    def is_alone(self, domain: Entry | None) -> bool:
        """Whether the users of that domain are in a place of their own, where who keeps it can do as it likes: what is
        written there speaks of addresses of that domain only. Raises BadEntry."""
        return domain is not None and bool(self._base_of(domain))

    # Users

    @property
    def attributes(self) -> tuple[str, ...]:
        """Those of a user's entry that are read."""
        wanted = ldapnames.places(self.schema.group_filter) - {"dn", "name"}
        return _names({**self.schema.user, "groups of": tuple(sorted(wanted))})

    def user_filter(self, address: str, main: str = "", *, alone: bool = False) -> str:
        """The filter for the user with that address or login name, "" if nobody can have it.

        `main` is the domain's own name, if the address has another; `alone`: the search is among users of that domain.
        """
        parts = self.whole(address)
        if parts is None:
            return ""
        local, domain = parts
        domains = list(dict.fromkeys((domain, main or domain)))
        if self.settings.user_filter:
            return _either([fill(self.settings.user_filter, {
                "user": local, "domain": each, "address": f"{local}@{each}"}) for each in domains])
        tests: list[tuple[str, str]] = []
        user, home = self.schema.user, self.default_domain in domains
        for each in domains:
            address = f"{local}@{each}"
            tests += [(name, address) for name in (*user["mail"], *user["logins"])]
            if self.schema.kind is Kind.NAME:
                tests += [(name, address) for name in user["name"]]
            for name in user["aliases"]:
                tests += [(name, address)] if name.lower() != "proxyaddresses" else [(name, f"smtp:{address}")]
        if alone or (home and self.schema.tree in (Tree.NONE, Tree.SEARCH)):
            tests += [(name, local) for name in (*(user["name"] if self.schema.kind is Kind.NAME else ()),
                                                 *user["logins"])]
        return f"(&{self.schema.user_class}{_any(tests)})" if tests else ""

    def user_search(self, address: str, domain: Entry | None = None) -> Search | None:
        """For the user; `domain` is what `domain_search` found. None: nobody can have that address.

        Raises BadEntry for a domain that cannot be understood.
        """
        base, main, alone = self.settings.base, "", False
        if domain is not None:
            main = self.domain_name(domain)
            own = self._base_of(domain)
            base, alone = own or base, bool(own)
        elif self.schema.tree is not Tree.NONE:
            return None
        text = self.user_filter(address, main, alone=alone)
        return Search(base, text, self.attributes) if text else None

    def _base_of(self, domain: Entry) -> str:
        """Below what the users of this domain, and no others, are; "" for where all are."""
        if self.schema.tree is Tree.BELOW:
            return domain.dn
        found = domain.texts(self.schema.domain.get("base", ()))
        if len(found) > 1:
            raise BadEntry(f"{domain.dn} has more than one value of {found[0][0]}")
        for name, value in found:
            try:
                if ldapnames.parse_dn(value):
                    return value
            except ValueError:
                pass
            raise BadEntry(f"{domain.dn}: {name} is not a distinguished name")
        if self.schema.tree is Tree.LABELS:
            raise BadEntry(f"{domain.dn} does not say where its users are ({', '.join(self.schema.domain['base'])})")
        return ""

    # Groups

    def group_search(self, user: Entry, domain: Entry | None = None) -> Search | None:
        """For the user's groups; None when they are not searched for. Raises BadEntry."""
        template = self.schema.group_filter
        if not template:
            return None
        values = {"dn": user.dn, "name": self._name(user, domain)[1]}
        for place in ldapnames.places(template) - set(values):
            texts = user.texts((place,))
            if len(texts) != 1:
                raise BadEntry(f"{user.dn} has {'no' if not texts else 'more than one'} value of {place}, which its "
                               "groups are found by")
            values[place] = texts[0][1]
        return Search(self.settings.group_base or self.settings.base, fill(template, values), self.schema.group_name)

    # Accounts

    def _name(self, user: Entry, domain: Entry | None) -> tuple[str, str]:
        """The attribute that the user id is made from, and its value. Raises BadEntry."""
        kind = self.schema.kind
        names = self.schema.user["name" if kind is Kind.NAME else "mail"]
        found = _own(user, names)
        values = {value.lower() for _, value in found}
        if len(values) != 1:
            raise BadEntry(f"{user.dn}: which of several values of {found[0][0]} the user id is made from is not said"
                           if values else f"{user.dn}: there is no value of {' or '.join(names)}")
        return found[0]

    def user_id(self, user: Entry, domain: Entry | None) -> tuple[str, str]:
        """The user id, and where it comes from. Raises BadEntry."""
        name, value = self._name(user, domain)
        text = value
        if "@" not in value:
            if self.schema.kind is Kind.ADDRESS:
                raise BadEntry(f"{user.dn}: {name} is not an address")
            if domain is not None and self.is_alone(domain):
                text = f"{value}@{self.domain_name(domain)}"
        elif domain is not None and not self.may_name(value, domain):
            raise BadEntry(f"{user.dn}: {name}={value} is in another domain than the entry")
        found = self.named(text)
        if not found:
            raise BadEntry(f"{user.dn}: no user can have the name that {name} says")
        return found, f"{name}={value} of {user.dn}"

    def named(self, address: str) -> str:
        """The user id of an address or name: in the form in which the store has it; "" for what cannot be one."""
        parts = self.whole(address)
        if parts is None:
            return ""
        return parts[0] if parts[1] == self.default_domain else "@".join(parts)

    def may_name(self, address: str, domain: Entry | None) -> bool:
        """Whether an entry that belongs to that domain may have that address. Raises BadEntry."""
        if domain is None or not self.is_alone(domain):
            return True
        return _domain(address.rpartition("@")[2]) in self.domain_names(domain)


def mirrored(before: Account | None, account: Account, now: float) -> Account:
    """The account as the store keeps it: with the time since when it is deleted, which no directory tells."""
    if account.status not in (Status.DELETED, Status.REMOVED):
        return evolve(account, removed=0)
    return evolve(account, removed=before.removed if before is not None and before.removed else int(now))


def _names(fields: Fields) -> tuple[str, ...]:
    return tuple(sorted({name for names in fields.values() for name in names}))


def _any(tests: Iterable[tuple[str, str]]) -> str:
    return _either([f"({name}={escape(value)})" for name, value in dict.fromkeys(tests)])


def _either(filters: Sequence[str]) -> str:
    return filters[0] if len(filters) == 1 else f"(|{''.join(filters)})"


def _domain(text: str) -> str:
    try:
        return canonical_domain(text.strip().rstrip("."))
    except ValueError:
        return ""


def _rdns(dn: str) -> tuple[Rdn, ...]:
    try:
        return ldapnames.parse_dn(dn)
    except ValueError as error:
        raise BadEntry(str(error)) from None


def _own(entry: Entry, names: Sequence[str]) -> list[tuple[str, str]]:
    """The values of these attributes; of several the one that the entry is named by. Raises BadEntry."""
    found = entry.texts(names)
    if len(found) > 1:
        rdns = _rdns(entry.dn)
        named = {(kind, folded(value)) for kind, value in (rdns[0] if rdns else ())}
        found = [each for each in found if (each[0].lower(), folded(each[1])) in named] or found
    return found
