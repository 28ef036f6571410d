"""Which attribute of a directory says what, for the schemas that there are: profiles, and what settings change in them.

A field is what the store wants to know, its attributes where that is written, in order of preference; of aliases,
groups and login names all attributes count.
"""

from collections.abc import Mapping
from enum import Enum

from attrs import Attribute, evolve, field, frozen

from store.accounts.base import Status
from store.accounts.ldap.ldapnames import check_filter, fill, parse_dn, places
from store.values import setting

Fields = Mapping[str, tuple[str, ...]]

#: The fields of a user's entry.
USER = {
    "name": "the user's name without a domain, as user id and login name are made from it",
    "mail": "the primary address",
    "aliases": "further addresses; with a scheme before them (smtp:) only those of smtp count",
    "logins": "further names to log in by",
    "status": "whether the account is open, for all services",
    "mail_status": "whether it is open for mail",
    "host": "the back end that keeps the mail",
    "partition": "the partition for new mailboxes",
    "quota": "octets that the user may keep",
    "message_quota": "messages that the user may keep",
    "access": "which services the user may use from where",
    "groups": "the groups that the user is in, by their distinguished names",
    "sieve": "what holds for the user's Sieve scripts",
    "sieve_script": "the Sieve script of a user who has none active",
}
#: The fields of a domain's entry.
DOMAIN = {
    "name": "the domain's names",
    "main_name": "the one of them that user ids are made with",
    "base": "where the domain's users are, a distinguished name",
    "status": "whether the domain is open, for all services",
    "mail_status": "whether it is open for mail",
    "host": "the back end of users who have none",
    "partition": "the partition of users who have none",
    "quota": "octets that all users of the domain may keep",
    "message_quota": "messages that they may keep",
    "access": "access rules of users who have none",
    "sieve": "what holds for the Sieve scripts of its users, unless they have something else",
    "sieve_script": "the Sieve script of users whose entries have none",
}


class Kind(Enum):
    """How the user id is made."""

    NAME = "name"           # of the name, with the domain if it is not the default one
    ADDRESS = "address"     # of the primary address


class Tree(Enum):
    """How the entry of a domain is found, and its users."""

    NONE = "none"           # there are no such entries
    SEARCH = "search"       # by a filter; its users are below the entry that it names, or with those of other domains
    BELOW = "below"         # by a filter; its users are below it
    LABELS = "labels"       # it is dc=example,dc=org below the base of domains; its users are where it says


class Control(Enum):
    """What the status of a user is written as."""

    WORDS = "words"         # active, inactive, ...
    FLAGS = "flags"         # userAccountControl: bits, of which one says that the account is disabled


@frozen
class Schema:
    """What a profile knows before the settings change it; filters are of all entries of the kind."""

    user: Fields
    user_class: str
    kind: Kind = Kind.NAME
    tree: Tree = Tree.NONE
    domain: Fields = field(factory=dict)
    domain_class: str = ""
    group_filter: str = ""          # "": groups are those of the user's entry
    group_name: tuple[str, ...] = ("cn",)
    group_mail_filter: str = ""     # for the group with the address {mail}; "": groups have none
    control: Control = Control.WORDS
    statuses: Mapping[str, Status] = field(factory=lambda: {status.value: status for status in Status})


_SUN_USER: Fields = {
    "name": ("uid",), "mail": ("mail",), "aliases": ("mailAlternateAddress", "mailEquivalentAddress"), "logins": (),
    "status": ("inetUserStatus",), "mail_status": ("mailUserStatus",), "host": ("mailHost",),
    "partition": ("mailMessageStore",), "quota": ("mailQuota",), "message_quota": ("mailMsgQuota",),
    "access": ("mailAllowedServiceAccess",), "groups": ("isMemberOf", "memberOf"), "sieve": (),
    "sieve_script": ("mailSieveRuleSource",),
}
_SUN_DOMAIN: Fields = {
    "name": ("associatedDomain",), "main_name": ("inetCanonicalDomainName",), "base": ("inetDomainBaseDN",),
    "status": ("inetDomainStatus",), "mail_status": ("mailDomainStatus",), "host": ("preferredMailHost",),
    "partition": ("preferredMailMessageStore",), "quota": ("mailDomainDiskQuota",),
    "message_quota": ("mailDomainMsgQuota",), "access": ("mailDomainAllowedServiceAccess",),
    "sieve": (), "sieve_script": ("mailDomainSieveRuleSource",),
}
_MAIL = "(&(|(objectClass=groupOfNames)(objectClass=groupOfUniqueNames)(objectClass=inetMailGroup))(mail={mail}))"
_MEMBERS = "(|(&(objectClass=groupOfNames)(member={dn}))(&(objectClass=groupOfUniqueNames)(uniqueMember={dn})))"

PROFILES: Mapping[str, Schema] = {
    "sun1": Schema(_SUN_USER, "(objectClass=inetMailUser)", tree=Tree.LABELS, domain=_SUN_DOMAIN,
                   domain_class="(objectClass=inetDomain)", group_mail_filter=_MAIL),
    "sun2": Schema(_SUN_USER, "(objectClass=inetMailUser)", tree=Tree.BELOW,
                   domain={**_SUN_DOMAIN, "name": ("sunPreferredDomain", "associatedDomain"),
                           "main_name": ("sunPreferredDomain",), "base": ()},
                   domain_class="(objectClass=sunManagedOrganization)", group_mail_filter=_MAIL),
    "openldap": Schema({**_SUN_USER, "groups": (), "sieve": ("mailSieveSettings",)}, "(objectClass=mailStoreUser)",
                       kind=Kind.ADDRESS, tree=Tree.SEARCH,
                       domain={**_SUN_DOMAIN, "main_name": (), "base": ("mailDomainBaseDN",),
                               "sieve": ("mailDomainSieveSettings",)},
                       domain_class="(objectClass=mailStoreDomain)", group_filter=_MEMBERS,
                       group_mail_filter=_MAIL),
    "posix": Schema({**dict.fromkeys(USER, ()), "name": ("uid",)}, "(objectClass=posixAccount)",
                    group_filter="(&(objectClass=posixGroup)(|(memberUid={name})(gidNumber={gidNumber})))"),
    "ad": Schema({**dict.fromkeys(USER, ()), "name": ("sAMAccountName",), "mail": ("mail",),
                  "aliases": ("proxyAddresses", "userPrincipalName"), "logins": ("userPrincipalName",),
                  "status": ("userAccountControl",), "groups": ("memberOf",)},
                 "(&(objectCategory=person)(objectClass=user))", control=Control.FLAGS,
                 group_mail_filter="(&(objectClass=group)(mail={mail}))"),
}


def _words(value: tuple[str, ...]) -> None:
    _changes(value, {**USER, **{f"domain_{name}": "" for name in DOMAIN}})


def _statuses(value: tuple[str, ...]) -> None:
    for _, words in _changes(value, None).items():
        for word in words:
            Status(word)


def _changes(values: tuple[str, ...], known: Mapping[str, str] | None) -> dict[str, tuple[str, ...]]:
    """name=word word... Raises ValueError."""
    found = {}
    for text in values:
        name, equals, words = text.partition("=")
        if not equals or (known is not None and name.strip() not in known):
            raise ValueError(f"{text!r} does not begin with one of {', '.join(sorted(known))} and an equals sign"
                             if known is not None else f"{text!r} has no equals sign")
        found[name.strip()] = tuple(words.split())
    return found


def _filter(settings: "MapSettings", attribute: "Attribute[str]", value: str) -> None:
    if not value or (value == "none" and attribute.name == "group_filter"):
        return
    known = {"user_filter": {"user", "domain", "address"}, "domain_filter": {"domain"}}.get(attribute.name)
    if known is not None and (unknown := places(value) - known):
        raise ValueError(f"there is no {{{min(unknown)}}}: {', '.join(sorted(known))}")
    check_filter(fill(value, dict.fromkeys(places(value), "x")))


def _profile(value: str) -> None:
    if value not in PROFILES:
        raise ValueError(f"is none of {', '.join(PROFILES)}")


def _kind(value: str) -> None:
    if value and value not in {kind.value for kind in Kind}:
        raise ValueError("is neither name nor address")


def _group_names(value: str) -> None:
    if value not in ("name", "dn"):
        raise ValueError("is neither name nor dn")


@frozen
class MapSettings:
    """What the entries of the directory mean; empty values are the profile's."""

    profile: str = setting("openldap", f"the schema of the directory: {', '.join(PROFILES)}", check=_profile)
    base: str = setting("", "distinguished name below which the users are; with a tree of domains, those whose domain "
                        "names none", check=parse_dn)
    domain_base: str = setting("", "distinguished name below which the domains are; empty: there are no entries of "
                               "domains (with sun1, sun2: it is directory.base)", check=parse_dn)
    group_base: str = setting("", "distinguished name below which the groups are; only those count; empty: "
                              "directory.base", check=parse_dn)
    user_id: str = setting("", "what user ids are made from: name (uid, and the domain if it is not the default one), "
                           "address (the primary one)", check=_kind)
    user_filter: str = setting("", "filter for the user with {user}@{domain}, which is {address}", validator=_filter)
    domain_filter: str = setting("", "filter for the entry of {domain}", validator=_filter)
    group_filter: str = setting("", "filter for the groups of a user, with {dn}, {name} and attributes of the user's "
                                "entry; none: no groups are searched for", validator=_filter)
    group_names: str = setting("name", "what groups are called in access control lists: name (their own, which must be "
                               "unique below directory.group_base), dn (all of the distinguished name)",
                               check=_group_names)
    attributes: tuple[str, ...] = setting((), "other attributes than those of the profile, by field: host=mailServer, "
                                          "aliases=alias otherMailbox, access= (none), domain_status=domainState",
                                          check=_words)
    statuses: tuple[str, ...] = setting((), "other words for the status of an account: enabled=active, locked=inactive",
                                        check=_statuses)
    default_host: str = setting("", "the back end (store.host) that keeps the mail of users for whom the directory "
                                "names none; empty, with store.host set: their mail waits, and they cannot log in")

    @property
    def schema(self) -> Schema:
        """The profile with what the other settings change in it."""
        schema = PROFILES[self.profile]
        changes = _changes(self.attributes, None)
        user = {**schema.user, **{name: words for name, words in changes.items() if name in USER}}
        domain = {**schema.domain, **{name.removeprefix("domain_"): words for name, words in changes.items()
                                      if name.startswith("domain_")}}
        statuses = {word: Status(value) for word, (value, *_) in _changes(self.statuses, None).items()}
        searched = "" if self.group_filter == "none" else self.group_filter or schema.group_filter
        tree = schema.tree
        if not self.domain_base and tree is Tree.SEARCH:
            tree = Tree.NONE
        return evolve(schema, user=user, domain=domain, tree=tree, group_filter=searched,
                      kind=Kind(self.user_id) if self.user_id else schema.kind,
                      statuses={**schema.statuses, **{word.lower(): status for word, status in statuses.items()}})
