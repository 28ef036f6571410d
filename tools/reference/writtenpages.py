"""All pages by their file names."""

from collections.abc import Collection

from tools.cli.commandtree import Node
from tools.reference import commandpage, extensionpage, filepage, loglinepage, metricpage, optionpage


def pages(top: Node, reloaded: Collection[str]) -> dict[str, str]:
    """Each page by its file name. `top`: of the tree of commands; `reloaded`: the options of which a running server
    takes over a new value."""
    made = {"options.md": optionpage.lines(reloaded), "commands.md": commandpage.lines(top),
            "extensions.md": extensionpage.lines(), "metrics.md": metricpage.lines(),
            "log-lines.md": loglinepage.lines(), "files.md": filepage.lines()}
    return {name: "\n".join([*lines, ""]) for name, lines in made.items()}
