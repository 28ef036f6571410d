"""A wire between a client and a server that can be cut, or tells somebody, after so many octets from the server."""

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence

Plan = Sequence[tuple[int, Callable[[], object] | None]]


class Between:
    """Listens on `port`, and passes on what comes to `target`. Each connection takes the next of what is planned: after
    so many octets what is to be called, or, where there is nothing, the connection is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = 0
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._plan: list[tuple[int, Callable[[], object] | None]] = []

    def plan(self, plan: Plan) -> None:
        """From the next connection on."""
        self._plan = list(plan)

    def hold(self) -> None:
        """Pass nothing on, as a network does that is half open: nobody hears that the connection has ended."""
        self._open.clear()

    def release(self) -> None:
        """Go on with what has come meanwhile."""
        self._open.set()

    def cut_all(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def __enter__(self) -> "Between":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:             # nobody listens
                client.close()
                continue
            self._sockets += client, server
            limit, call = self._plan.pop(0) if self._plan else (1 << 60, None)
            threading.Thread(target=self._pass, args=(client, server, 1 << 60, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, limit, call), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, limit: int, call: Callable[[], object] | None
              ) -> None:
        passed = 0
        try:
            while passed < limit and (data := source.recv(min(4096, limit - passed))):
                self._open.wait()
                target.sendall(data)
                passed += len(data)
            if passed >= limit and call is not None:
                call()
            elif passed >= limit:
                self.cut += 1
        except OSError:
            pass
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
