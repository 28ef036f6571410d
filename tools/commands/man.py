"""onecopy man"""

import shutil
import subprocess
import sys
from pathlib import Path

from mboxlist import privatefiles
from tools.cli import commandtree, manpages, options
from tools.cli.invocation import Invocation, Parsers
from tools.exits import Failure
from tools.reference import writtenpages
from tools.server.process.reloadable import is_reloaded

FOR_ALL = "everybody on the host may read the manual"


def add(parser: Parsers) -> None:
    """Make the parser."""
    made = parser("man", man, "show a man page, or write all of them into a folder")
    made.add_argument("page", metavar="PAGE", nargs="?",
                      help="such as onecopy-user or onecopy.toml; to a pipe it goes as it is written, for man -l -; "
                           "default: list the pages")
    made.add_argument("--markdown", type=Path, metavar="FOLDER",
                      help="write the pages of docs/reference into this folder, in Markdown: commands, options, files, "
                           "metrics and so on")
    made.add_argument("--to", type=Path, metavar="FOLDER",
                      help="write all into man1 and man5 of this folder, such as /usr/local/share/man")


def man(invocation: Invocation) -> int:
    """onecopy man"""
    arguments, reloaded = invocation.arguments, {name for name in options.table() if is_reloaded(name)}
    if arguments.markdown is not None:
        for name, text in writtenpages.pages(commandtree.tree(), reloaded).items():
            privatefiles.make_folder(arguments.markdown, parents=True, exist_ok=True)
            privatefiles.write(arguments.markdown / name, text)
            privatefiles.share(arguments.markdown / name, 0o644, FOR_ALL)
        return 0
    found = manpages.pages(commandtree.tree(), reloaded)
    if arguments.to is not None:
        for name, text in found.items():
            file = arguments.to / f"man{name[-1]}" / name
            for folder in file.parent.parent, file.parent:
                if not folder.is_dir():
                    privatefiles.make_folder(folder, parents=True)
                    privatefiles.share(folder, 0o755, FOR_ALL)
            privatefiles.write(file, text)
            privatefiles.share(file, 0o644, FOR_ALL)
        return 0
    if arguments.page is None:
        for name in found:
            print(f"{name[:-2]}({name[-1]})")
        return 0
    wanted = next((found[name] for name in found if arguments.page in (name, name[:-2], f"{name[:-2]}({name[-1]})")),
                  None) or found.get(f"onecopy-{arguments.page}.1")
    if wanted is None:
        raise Failure(f"there is no page {arguments.page}: onecopy man lists them")
    if sys.stdout.isatty() and shutil.which("man"):
        return subprocess.run(["man", "-l", "-"], input=wanted.encode(), check=False).returncode and 1
    print(wanted, end="")
    return 0
