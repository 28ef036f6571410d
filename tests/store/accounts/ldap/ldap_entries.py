"""Entries as directories of each schema have them, and the profiles that read them."""

from attrs import evolve

from store.accounts.ldap.ldapentry import Entry, Here
from store.accounts.ldap.ldapmap import Profile
from store.accounts.ldap.ldapprofiles import MapSettings

BASE = "dc=example,dc=org"
TWO = Here("mail1.example.org", frozenset({"primary", "fast"}), "primary")
SETTINGS = {
    "openldap": MapSettings("openldap", base=BASE),
    "domains": MapSettings("openldap", base=f"ou=people,{BASE}", domain_base=f"ou=domains,{BASE}"),
    "sun1": MapSettings("sun1", base="o=internet"),
    "sun2": MapSettings("sun2", base="o=root"),
    "posix": MapSettings("posix", base=BASE),
    "ad": MapSettings("ad", base="dc=corp,dc=example,dc=org"),
}


def profile(name, **changes):
    return Profile.of(evolve(SETTINGS[name], **changes), "example.org")


def entry(dn, **values):
    """Attributes by name; texts, octets, or lists of them."""
    return Entry.of(dn, {name: [value.encode() if isinstance(value, str) else value for value in (
        values[name] if isinstance(values[name], list) else [values[name]])] for name in values})


def person(**values):
    return entry(f"uid=alice,ou=people,{BASE}", **{"uid": "alice", "mail": "alice@example.org", **values})


def domain(name="example.net", **values):
    return entry(f"associatedDomain={name},ou=domains,{BASE}", **{"associatedDomain": name, **values})
