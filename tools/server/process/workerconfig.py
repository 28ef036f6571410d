"""What a supervisor and its workers say to each other. (The supervisor does not load what only the workers need.)"""

import signal
from collections.abc import Sequence

from attrs import frozen

from store.accounts.throttle.loginmemory import LoginMemory
from store.accounts.throttle.sharedcounts import Place
from store.news.changeboard import Place as BoardPlace
from tools.cli.options import Config
from tools.server.process.sockets import Listening
from tools.server.tls.tickets import TicketKeys

NAME = "onecopy serve"      # with which the name of every process of a server begins, for others in the store
HELD_BACK = (signal.SIGHUP, signal.SIGUSR1)     # from a worker until it knows what they mean
BROKEN = 3                  # the exit status of a process that found a database damaged
READY = b"ready\n"          # from a worker: it serves; anything else is why it cannot


@frozen
class WorkerConfig:
    """What a supervisor, a process of that number, wants of a worker."""

    name: str
    keeper: bool                                # the first one: recovers the store, keeps house for all
    sockets: Sequence[Listening]
    config: Config
    counts: Place
    board: BoardPlace
    logins: LoginMemory
    tickets: TicketKeys
    supervisor: int
    processes: Sequence[str] = ()               # the names of all that serve beside it, and its own
    hands_on: bool = False                      # when it takes nobody new, another server does at these sockets
    exchange: bool = False                      # it serves other back ends, where any are served
