"""What a directory is asked, what it answers, and what an account is made of: values, without I/O."""

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from store.accounts.base import Account
from store.accounts.ldap.ldapquota import QuotaWish

LONGEST = 4096              # octets of a value that is looked at: more is none of ours


class BadEntry(ValueError):
    """The entry cannot be understood, so that it is not known who this is or where the mail belongs; it says why."""


@frozen
class Entry:
    """What a search found; the names of attributes in lower case."""

    dn: str
    values: Mapping[str, Sequence[bytes]]

    @classmethod
    def of(cls, dn: str, values: Mapping[str, Sequence[bytes]]) -> "Entry":
        """With names in any case, and with options (;lang-de), which are passed over."""
        found: dict[str, list[bytes]] = {}
        for name, octets in values.items():
            if ";" not in name or name.lower().endswith(";binary"):
                found.setdefault(name.partition(";")[0].lower(), []).extend(octets)
        return cls(dn, found)

    def texts(self, names: Iterable[str], longest: int = LONGEST) -> list[tuple[str, str]]:
        """The values of these attributes in order of attribute, then of octets: a directory gives values in any order.

        Raises BadEntry for octets that are no text, and for more than `longest` of them.
        """
        found = []
        for name in names:
            for value in sorted(set(self.values.get(name.lower(), ()))):
                try:
                    if len(value) > longest:
                        raise BadEntry(f"{self.dn}: a value of {name} is longer than {longest} octets")
                    found.append((name, value.decode()))
                except UnicodeDecodeError:
                    raise BadEntry(f"{self.dn}: a value of {name} is not UTF-8") from None
        return found


@frozen
class Search:
    """What to ask the directory: below `base`, or of that entry alone (not `below`)."""

    base: str
    filter: str
    attributes: tuple[str, ...]
    below: bool = True


@frozen
class Here:
    """What a back end knows when it reads an entry: its name, its partitions, and the one for new users."""

    host: str = ""
    partitions: frozenset[str] = frozenset({"primary"})
    default_partition: str = "primary"


@frozen
class Found:
    """An account, and what comes with it.

    `logins`: the user ids under which the user can log in. `domain_quota` are the limits of the quota root
    "@" + `domain`. `scripts` are the Sieve scripts that the directory has for the user. `origins` says of each value
    where it comes from; `warnings` what was passed over.
    """

    account: Account
    logins: frozenset[str]
    quota: QuotaWish = QuotaWish()
    domain: str = ""
    domain_quota: QuotaWish = QuotaWish()
    scripts: tuple[str, ...] = ()
    origins: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
