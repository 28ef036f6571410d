"""The workloads by name, in the order in which a full run takes them."""

from collections.abc import Callable

from tools.benchmarks.load.measuring import Context
from tools.benchmarks.load.workloads import (
    byscript,
    changing,
    delivering,
    fetching,
    idling,
    mixedload,
    searching,
    sessions,
)

WORKLOADS: dict[str, Callable[[Context], None]] = {
    "lmtp-1": delivering.lmtp_1,
    "lmtp-50": delivering.lmtp_50,
    "lmtp-big": delivering.lmtp_big,
    "sieve-1": byscript.sieve_1,
    "sieve-50": byscript.sieve_50,
    "append": delivering.append,
    "login": sessions.login,
    "fetch-flags": fetching.fetch_flags,
    "fetch-envelope": fetching.fetch_envelope,
    "fetch-header": fetching.fetch_header,
    "fetch-body": fetching.fetch_body,
    "store": changing.store,
    "search": searching.search,
    "sort": searching.sort,
    "copy": changing.copy,
    "expunge": changing.expunge,
    "pop3": sessions.pop3,
    "idle": idling.idle,
    "mixed": mixedload.mixed,
}
