"""The manual and what shells complete, written by an installed onecopy into a folder `share`: all in one process.

    python -P manualfiles.py SHARE ZSH-FOLDER
"""

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path


def write(share: Path, zsh: str) -> None:
    """`zsh`: the folder in which that shell looks, which is another in Debian."""
    scripts = {"bash": "bash-completion/completions/onecopy", "zsh": f"{zsh}/_onecopy",
               "fish": "fish/vendor_completions.d/onecopy.fish"}
    for name in scripts.values():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
    _run("man", "--to", str(share / "man"))
    for shell, name in scripts.items():
        with (share / name).open("w", encoding="utf-8") as script, redirect_stdout(script):
            _run("completion", shell)


def _run(*words: str) -> None:
    main: Callable[[], int] = import_module("onecopy.__main__").main
    sys.argv = ["onecopy", *words]
    status = main()
    os.umask(0o022)         # it lets nobody else read what it makes
    if status:
        sys.exit(status)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
