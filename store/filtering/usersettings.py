"""The settings of Sieve as they are for one user: the user's, else the domain's, else those of the configuration."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import evolve

from store.accounts import sieverules
from store.accounts.sieverules import READERS
from store.filtering.sievesettings import Settings

if TYPE_CHECKING:                   # who only asks opens no store
    from store.quota.overview import Overview


def settings_of(store: "Overview", settings: Settings, user: str) -> Settings:
    """Those that hold for the user; `settings` are the configuration's. Waits for no lock."""
    own, domain = _rules(store, user)
    return _merged(settings, domain, own) if own or domain else settings


@lru_cache(maxsize=1000)
def _merged(settings: Settings, domain: str, own: str) -> Settings:
    values: dict[str, Any] = {**sieverules.safe(domain), **sieverules.safe(own)}
    return evolve(settings, **values)


def _rules(store: "Overview", user: str) -> tuple[str, str]:
    """What is said of the user, and of the domain."""
    account = store.directory.find(user)
    try:
        domain = store.directory.domains.row(store.directory.domain(user)).sieve
    except ValueError:              # none can be made for it
        domain = ""
    return account.sieve if account is not None else "", domain


def origins(store: "Overview", user: str) -> dict[str, str]:
    """Where each of the settings that can differ comes from, by its name."""
    own, domain = map(sieverules.safe, _rules(store, user))
    whose = {**dict.fromkeys(domain, "its domain: onecopy user domain"), **dict.fromkeys(own, "the user")}
    return {name: whose.get(name, f"sieve.{name}") for name in READERS}
