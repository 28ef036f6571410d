"""onecopy config show"""

from tools.commands import Invocation, Parsers
from tools.config import table
from tools.output import print_json, print_table


def add(parser: Parsers) -> None:
    """Make the parsers."""
    made = parser("config show", show, "print every option, its value, and where it came from", settings=True)
    made.add_argument("--json", action="store_true")


def show(invocation: Invocation) -> int:
    """onecopy config show"""
    config, options = invocation.config, table()
    rows = [{"option": name, "value": options[name].show(value), "origin": config.origins[name]}
            for name, value in config.values.items()]
    if invocation.arguments.json:
        print_json({row["option"]: {"value": row["value"], "origin": row["origin"]} for row in rows})
    else:
        print_table(rows, ("option", "value", "origin"))
    return 0
