"""onecopy config certificate"""

from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json
from tools.server.tls.backendtls import BackEndTls
from tools.serversettings import Exchange


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("config certificate", certificate, "print the certificate that this back end shows to others, for "
                                                     "the file that they name as exchange.authorities; made if there "
                                                     "is none", settings=True)
    made.add_argument("--json", action="store_true")


def certificate(invocation: Invocation) -> int:
    """onecopy config certificate"""
    config = invocation.config
    tls = BackEndTls.of(config.settings("exchange", Exchange), config.root, str(config.values["store.host"]))
    tls.make_certificate(config.root)
    if invocation.arguments.json:
        print_json({"certificate": tls.text()})
    else:
        print(tls.text(), end="")
    return 0
