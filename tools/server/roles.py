"""What kinds of workers a server has, and how many of each."""

from attrs import frozen

from tools.server.process.sockets import EXCHANGE, HTTP, SERVERS
from tools.serversettings import Workers


@frozen
class Role:
    """What one kind of worker serves, and how many of it there are."""

    name: str
    servers: tuple[str, ...]
    processes: int


# What standbys are sent is read and encrypted beside the mail, not between two turns of its event loop.
STANDBYS = Role(EXCHANGE, (EXCHANGE,), 1)


def roles(workers: Workers, *, http: bool = False) -> list[Role]:
    """The workers that the settings ask for; a protocol that has no process of its own shares one, but for HTTP, if it
    is served: what it gathers takes time from nobody's mail.

    None: the keeper serves all clients.
    """
    found = [Role(server, (server,), count) for server in SERVERS if (count := getattr(workers, server))]
    rest = tuple(server for server in SERVERS if not getattr(workers, server))
    if workers.all:
        found.append(Role("all", SERVERS, workers.all))
    elif rest and found:
        found.append(Role("+".join(rest), rest, 1))
    if http and (found or workers.http):
        found += [Role("+".join(SERVERS), SERVERS, 1)] if not found else []
        found.append(Role(HTTP, (HTTP,), max(1, workers.http)))
    return found
