"""onecopy doctor"""

from pathlib import Path

from attrs import asdict

from store.values import few
from tools.cli.controlclient import is_up
from tools.cli.invocation import Invocation, Parsers
from tools.cli.output import print_json
from tools.cli.progressbar import bar
from tools.commands import status
from tools.server.control.servedconfig import differing, served
from tools.server.doctor import deployment
from tools.server.doctor.advice import Advice
from tools.server.metrics import figures


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("doctor", doctor, "look over a deployment, with the relay in front, and say what to change; exit "
                                    "status 1 if something is serious", settings=True)
    made.add_argument("--name", action="append", default=[], metavar="NAME",
                      help="by which mail programs reach the server: its addresses and certificates are looked at; can "
                           "be repeated; default: that of the host")
    made.add_argument("--postfix", type=Path, metavar="FOLDER",
                      help="configuration of the Postfix in front; default: that of the one that is installed")
    made.add_argument("--json", action="store_true")


def doctor(invocation: Invocation) -> int:
    """onecopy doctor"""
    arguments, root = invocation.arguments, invocation.config.root
    config = served(invocation.config) if is_up(root) else None
    wanted = deployment.Wanted(arguments.name, arguments.postfix)
    with bar("looking"):
        found = list(deployment.look_over(config or invocation.config, wanted))
    invocation.act_as_owner()
    if config is not None and (others := differing(invocation.config, config)):
        found.append(Advice("configuration", False, f"the running server goes by other values of {few(others)} "
                            "than its files, or this command, have now; it is judged by what it goes by",
                            "onecopy config diff --running"))
    found += [Advice("status", True, text, "") for text in status.gather(root)["troubles"]]
    if is_up(root):
        with invocation.store() as store:
            found += [Advice("stats", False, text, "") for text in figures.gather(store)["advice"]]
    found.sort(key=lambda each: not each.serious)
    if arguments.json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            print(f"{'wrong' if each.serious else 'better'}: {each.about}: {each.text}")
            if each.do:
                print(f"    {each.do}")
        if not found:
            print("nothing wrong was found")
    return int(any(each.serious for each in found))
