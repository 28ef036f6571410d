"""The keys of session tickets (RFC 5077, RFC 8446 §4.6.1), with which clients take up a session that they had before.

OpenSSL makes the keys with a context, and this library cannot set others. So there is a context that holds nothing but
keys for each span of time, from which connections begin before they are given the one with the certificates.
"""

import time
from collections.abc import Callable

from attrs import define
from OpenSSL import SSL

from tools.serversettings import Tls

AHEAD = 100             # spans for which there are keys at the start


def _context(settings: Tls) -> SSL.Context:
    """With what a connection keeps from its first context: versions, options, ticket keys."""
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION if settings.minimum_version == "1.3" else SSL.TLS1_2_VERSION)
    context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)          # memory of a connection that idles
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)  # clients keep their sessions, we keep nothing
    return context


@define(eq=False)
class TicketKeys:
    """Contexts for spans of `seconds` each since `begun`; what is past is forgotten, tickets and all."""

    settings: Tls
    begun: float
    ahead: list[SSL.Context]
    clock: Callable[[], float] = time.time
    _span: int = 0

    @classmethod
    def alone(cls, settings: Tls) -> "TicketKeys":
        """For one process."""
        return cls(settings, time.time(), [_context(settings)])

    @classmethod
    def shared(cls, settings: Tls) -> "TicketKeys":
        """For this process and those that it forks."""
        return cls(settings, time.time(), [_context(settings) for _ in range(AHEAD)])

    def current(self) -> SSL.Context:
        """The context of now."""
        span = int((self.clock() - self.begun) / self.settings.ticket_time)
        while self._span < span:
            self._span += 1
            del self.ahead[0]
            if not self.ahead:                  # nothing is shared any more
                self.ahead.append(_context(self.settings))
                self._span = span
        return self.ahead[0]
