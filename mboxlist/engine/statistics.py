"""What Berkeley DB counts of an environment."""

from typing import Any

from attrs import frozen


@frozen
class Statistics:
    """What Berkeley DB counts of an environment, over all processes, since the last recovery; sizes in octets.

    `evicted`: pages that had to make room for others; `log_octets`: written to the log. `checkpoint` is a Unix time.
    """

    cache: int
    hits: int
    misses: int
    evicted: int
    lock_requests: int
    lock_waits: int
    deadlocks: int
    lock_timeouts: int
    most_locks: int
    log_octets: int
    log_syncs: int
    transactions: int
    aborts: int
    active: int
    checkpoint: int

    @classmethod
    def of(cls, env: Any) -> "Statistics":
        """The statistics of an open environment, a berkeleydb DBEnv."""
        cache, locks, logs, txns = env.memp_stat()[0], env.lock_stat(), env.log_stat(), env.txn_stat()
        return cls(
            cache=(cache["gbytes"] << 30) + cache["bytes"], hits=cache["cache_hit"], misses=cache["cache_miss"],
            evicted=cache["ro_evict"] + cache["rw_evict"], lock_requests=locks["nrequests"],
            lock_waits=locks["lock_wait"], deadlocks=locks["ndeadlocks"], lock_timeouts=locks["nlocktimeouts"],
            most_locks=locks["maxnlocks"], log_octets=(logs["w_mbytes"] << 20) + logs["w_bytes"],
            log_syncs=logs["scount"], transactions=txns["nbegins"], aborts=txns["naborts"], active=txns["nactive"],
            checkpoint=txns["time_ckp"])

    @property
    def hit_rate(self) -> float | None:
        """How many per cent of the pages were found in the cache; None: none was asked for."""
        asked = self.hits + self.misses
        return 100.0 * self.hits / asked if asked else None
