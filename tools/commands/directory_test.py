"""onecopy directory test: what would happen at a login with that name, or to mail to that address, and why."""

from pathlib import Path

from lmtp.refusals import REPLIES
from store.accounts.loginsettings import Settings as LoginSettings
from store.users.directorytrial import Report, examine
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json
from tools.cli.progressbar import bar
from tools.commands.user import read_password


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("directory test", test, "say step by step what would happen at a login, and to mail; status 1 if "
                                          "either is refused, or the password is wrong")
    made.add_argument("user", metavar="USER", help="a login name, or an address")
    made.add_argument("--from", dest="peer", default="192.0.2.1", metavar="ADDRESS",
                      help="where the client is, as rules of access see it (192.0.2.1)")
    source = made.add_mutually_exclusive_group()
    source.add_argument("--password-file", type=Path, metavar="FILE", help="try the password on its first line, too")
    source.add_argument("--password-stdin", action="store_true", help="try the first line of standard input")
    made.add_argument("--json", action="store_true")


def test(invocation: Invocation) -> int:
    """onecopy directory test"""
    arguments = invocation.arguments
    password = read_password(invocation) if arguments.password_file or arguments.password_stdin else None
    login = invocation.config.settings("login", LoginSettings)
    with invocation.store() as store, bar("asking the directory"):
        report = examine(store, arguments.user, login, arguments.peer, password)
    if arguments.json:
        print_json(_json(report))
    else:
        _print(report)
    return 0 if report.good else 1


def _reply(report: Report) -> str:
    """What LMTP would answer to RCPT."""
    if report.problem is None:
        return "250"
    code, enhanced = REPLIES[report.problem]
    return f"{code} {enhanced}"


def _json(report: Report) -> dict[str, object]:
    return {"steps": report.steps, "account": report.values, "login": {
        service: {"allowed": not why, "why": why} for service, why in report.login.items()},
        "delivery": {"accepted": not report.delivery, "reply": _reply(report), "why": report.delivery}}


def _print(report: Report) -> None:
    for number, step in enumerate(report.steps, 1):
        print(f"{number:2}. {step['step']}: {step['result']}")
    if report.values:
        print()
        width = max(map(len, report.values))
        for name, value in report.values.items():
            shown = value["value"]
            text = ", ".join(map(str, shown)) if isinstance(shown, list) else str(shown)
            print(f"{name.replace('_', ' '):<{width}}  {text or '-'}   ({value['origin']})")
    print()
    for service, why in report.login.items():
        print(f"login by {service} under TLS: {f'refused: {why}' if why else 'let in, with the right password'}")
    print(f"delivery: {_reply(report)} {f'refused: {report.delivery}' if report.delivery else 'accepted'}")
