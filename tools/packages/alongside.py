"""The manual and what shells complete, written by an installed onecopy into a folder `share`: all in one process.

    python -P alongside.py SHARE ZSH-FOLDER
"""

import sys
from contextlib import redirect_stdout
from pathlib import Path

from onecopy.__main__ import main


def write(share: Path, zsh: str) -> None:
    """`zsh`: the folder in which that shell looks, which is another in Debian."""
    scripts = {"bash": "bash-completion/completions/onecopy", "zsh": f"{zsh}/_onecopy",
               "fish": "fish/vendor_completions.d/onecopy.fish"}
    _run("man", "--to", str(share / "man"))
    for shell, name in scripts.items():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
        with (share / name).open("w", encoding="utf-8") as script, redirect_stdout(script):
            _run("completion", shell)


def _run(*words: str) -> None:
    sys.argv = ["onecopy", *words]
    if status := main():
        sys.exit(status)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
