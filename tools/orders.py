"""What a supervisor and its workers say to each other. (The supervisor does not load what only the workers need.)"""

import json
from collections.abc import Sequence

from attrs import frozen

from tools.config import Config

NAME = "onecopy serve"      # with which the name of every process of a server begins, for others in the store
READY = b"ready\n"          # from a worker: it serves; anything else is why it cannot


@frozen
class Orders:
    """What a supervisor wants of a worker. `sockets`: (server, TLS, purpose, descriptor)."""

    name: str
    keeper: bool                                # the first one: recovers the store, keeps house for all
    sockets: Sequence[tuple[str, bool, str, int]]
    config: Config

    def to_json(self) -> str:
        """For the worker's standard input."""
        return json.dumps({"name": self.name, "keeper": self.keeper, "sockets": list(self.sockets),
                           "config": self.config.to_json()})

    @classmethod
    def from_json(cls, text: str) -> "Orders":
        """From the worker's standard input."""
        values = json.loads(text)
        return cls(values["name"], values["keeper"], [tuple(each) for each in values["sockets"]],
                   Config.from_json(values["config"]))
