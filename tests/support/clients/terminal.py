"""A program in a terminal of its own: keys go in, and what comes is read off the screen. tmux is the terminal."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes import wait

WIDTH, HEIGHT = 140, 40
LIMIT = 180          # seconds


def is_possible() -> bool:
    """Whether this system gives out terminals; a bare chroot does not."""
    try:
        for fileno in os.openpty():
            os.close(fileno)
    except OSError:
        return False
    return True


class Terminal:
    """Runs `command` in `folder` on entry; on exit it is gone."""

    def __init__(self, command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> None:
        self.command = shlex.join(map(str, command))
        self.folder = folder
        self.environment = environment
        self._sockets = tempfile.mkdtemp(prefix="onecopy-tmux-")        # short: the path of a socket may be 107 octets
        self.pid = 0

    def __enter__(self) -> "Terminal":
        # what the program leaves on its screen stays to be read when it has ended
        self._tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), self.command,
                   ";", "set-option", "-g", "remain-on-exit", "on")
        self.pid = int(self._tmux("display-message", "-p", "#{pid}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")
        wait.gone(self.pid, "tmux", limit=LIMIT)
        shutil.rmtree(self._sockets)

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-u", "-S", f"{self._sockets}/s", "-f", "/dev/null", *arguments],
                              cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=LIMIT, check=False)
        assert done.returncode == 0, f"tmux {arguments}: {done.stderr.decode()}"
        return done.stdout.decode()

    def screen(self) -> str:
        """What is to be seen now."""
        return self._tmux("capture-pane", "-p")

    def keys(self, *names: str) -> None:
        """Press keys by the names that tmux has for them: Enter, Escape, C-g, or a character."""
        self._tmux("send-keys", *(r"\;" if name == ";" else name for name in names))

    def type(self, text: str, end: str = "Enter") -> None:
        """Write a text and then press a key."""
        self._tmux("send-keys", "-l", "--", text)
        if end:
            self.keys(end)

    def see(self, *texts: str, without: Sequence[str] = ()) -> str:
        """Wait until all of these are on the screen and none of those; the screen. Raises AssertionError with it."""
        def ready() -> str | None:
            screen = self.screen()
            right = all(text in screen for text in texts) and not any(text in screen for text in without)
            return screen if right else None

        try:
            return wait.until(ready, f"{texts} without {tuple(without)} on the screen", pid=self.pid, limit=LIMIT)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.screen()}") from None

    def ended(self) -> bool:
        """Whether the program has."""
        return self._tmux("display-message", "-p", "#{pane_dead}").strip() == "1"
