"""Names of receivers are looked up in threads for which no stop waits: a real reactor, in a process of its own."""

import subprocess
import sys

import pytest

LIMIT = 180                  # seconds; a stop that waits for the name server never ends

PROGRAM = """
import socket, sys, threading
from twisted.internet import reactor, endpoints
from twisted.internet.protocol import Factory, Protocol
from tools.outbox import hostlookups

def hangs(*_how, **_more):
    asked.append(1)
    reactor.callFromThread(reactor.stop)
    threading.Event().wait()

asked, real = [], socket.getaddrinfo
if sys.argv[1] == "hangs":
    socket.getaddrinfo = hangs
    ended = lambda result: None
else:
    hostlookups.MOST = int(sys.argv[2])
    def ended(result):
        print(getattr(result, "type", type(result)).__name__)
        reactor.callLater(0, reactor.stop)
hostlookups.install(reactor)
if sys.argv[1] == "answers":
    server = reactor.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
    port = server.getHost().port
else:
    port = 9
name = b"localhost" if sys.argv[1] == "answers" else b"receiver.invalid"
reactor.callWhenRunning(lambda: endpoints.connectProtocol(endpoints.HostnameEndpoint(reactor, name, port), Protocol()
                                                          ).addBoth(ended))
reactor.run()
if sys.argv[1] == "hangs":
    print("stopped", len(asked))
"""


@pytest.mark.parametrize(("what", "most", "said"), [
    ("hangs", 16, "stopped 1"), ("answers", 16, "Protocol"), ("unknown", 16, "DNSLookupError"),
    ("answers", 0, "DNSLookupError")])
def test_a_stop_waits_for_no_name_server(what, most, said):
    """RFC 6761 §6.4: `invalid` has no addresses. With as many under way as there may be, a name has none, either."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, what, str(most)], capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    assert (done.stdout.strip(), done.returncode) == (said, 0), done.stderr
