"""onecopy config check"""

from store.values import few
from tools.cli.invocation import Invocation, Parsers
from tools.cli.options import Config
from tools.cli.output import print_json
from tools.cli.progressbar import bar
from tools.server.configcheck import Finding, examine


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("config check", check, "look for what would not work: files, permissions, certificates, ports, "
                                         "options that contradict each other; exit status 1 if there is something",
                  settings=True)
    made.add_argument("--online", action="store_true",
                      help="also ask the directory, and resolve and try the other hosts that are named")
    made.add_argument("--json", action="store_true")


def check(invocation: Invocation) -> int:
    """onecopy config check"""
    with bar("looking"):
        found = examine(invocation.config, online=invocation.arguments.online)
    if invocation.arguments.json:
        print_json([{"option": each.option, "serious": each.serious, "text": each.text} for each in found])
    else:
        for each in found:
            print(_line(each))
        if not found:
            print("nothing wrong was found")
        print(f"looked at: {_sources(invocation.config)}; the running server may go by others: onecopy config diff "
              "--running")
    return 1 if any(each.serious for each in found) else 0


def _sources(config: Config) -> str:
    """What has been judged."""
    others = sorted({origin for origin in config.origins.values() if origin != "default"
                     and not origin.startswith(f"{config.file}: ")})
    return few([str(config.file) if config.file is not None else "no file", *others])


def _line(found: Finding) -> str:
    return f"{'error' if found.serious else 'warning'}: {found.option}: {found.text}"
