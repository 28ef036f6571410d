"""onecopy init, serve"""

from tools.commands import Invocation, Parsers
from tools.opening import init


def add(parser: Parsers) -> None:
    """Make the parsers."""
    parser("init", make_store, "make an empty store, and a self-signed certificate")
    made = parser("serve", run_server, "serve IMAP, POP3 and LMTP until SIGTERM", settings=True)
    made.add_argument("--create", action="store_true", help="make the store first if there is none")


def make_store(invocation: Invocation) -> int:
    """onecopy init"""
    init(invocation.config.root)
    return 0


def run_server(invocation: Invocation) -> int:
    """onecopy serve"""
    from tools.serve import serve  # here: it loads the three servers, which no other command needs
    serve(invocation.config, create=invocation.arguments.create)
    return 0
