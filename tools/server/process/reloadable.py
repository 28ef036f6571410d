"""Which options a running server takes over without a restart. Pure; `reload.py` does it."""

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from tools.cli.options import Config

# Of these sections all options are taken over by connections that come later, but those that open sockets or are in use
# by all connections together.
_SESSIONS = ("imap", "pop3", "lmtp", "front", "http", "login", "managesieve", "sieve")
_FIXED = frozenset({
    "address", "port", "tls_port", "socket", "guaranteed_port", "guaranteed_socket", "verify_port", "verify_socket",
    "socket_mode", "ipv6_prefix", "client_ca"})
RELOADED = frozenset({
    "audit.kinds", "exchange.standbys", "log.format", "log.level", "log.levels", "log.slow",
    "tls.certificate", "tls.key", "tls.certificates", "tls.ciphers",
    *(f"store.{key}" for key in (
        "message_limit", "default_quota", "default_message_quota", "quota_enforce", "quota_grace", "quota_warn",
        "quota_notice", "quota_notice_interval", "special_mailboxes", "mailbox_limit", "purge_delay", "disk_reserve",
        "disk_threshold", "public_user", "default_partition", "user_delay", "housekeeping_rate", "index_rate",
        "journal_size", "journal_time"))})


def is_reloaded(name: str) -> bool:
    """Whether a running server takes over a new value of that option."""
    section, _, key = name.partition(".")
    if name in ("imap.proxy_networks", "pop3.proxy_networks", "lmtp.proxy_networks", "http.proxy_networks"):
        return False
    return name in RELOADED or section in _SESSIONS and key not in _FIXED


def differing(running: Config, wanted: Config) -> list[str]:
    """The options whose values are not the same."""
    return [name for name in {**dict.fromkeys(running.values), **dict.fromkeys(wanted.values)}
            if running.values[name] != wanted.values[name]]


def joined(running: Config, wanted: Config) -> Config:
    """What a server has that has taken over what it can: the rest is as before."""
    def pick(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        every = {**dict.fromkeys(ours), **dict.fromkeys(theirs)}
        return {name: theirs[name] if is_reloaded(name) else ours[name] for name in every}

    return evolve(running, values=pick(running.values, wanted.values), origins=pick(running.origins, wanted.origins))
