"""Programs of Debian packages that were unpacked and not installed, which run as if they were: in a mount namespace of
their own where /usr, /etc and /var/lib have the package's files on top of the machine's.

Nothing of the machine is changed, and the namespace ends with its programs. They are this machine's in all else: the
network, /tmp and who they are. tools/packages/unpacked.list names the packages. It must be done by root.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

UNPACKED = Path(sys.prefix) / "unpacked"

_ENTER = """\
set -e
package=$1 own=$2
shift 2
for name in usr etc var/lib; do
    layers=/$name
    if [ -d "$package/$name" ]; then layers=$package/$name:$layers; fi
    if [ -d "$own/$name" ]; then layers=$own/$name:$layers; fi
    if [ "$layers" != "/$name" ]; then mount -t overlay overlay -o "lowerdir=$layers" "/$name"; fi
done
exec "$@"
"""


class Overlaid:
    """`name`: the folder below .venv/unpacked; `own`: a folder with more files on top of these, such as own/etc/hosts.
    """

    def __init__(self, name: str, own: Path) -> None:
        if os.getuid() != 0:
            raise AssertionError(f"{name} can only be started by root: run these tests as root")
        self.package, self.own = UNPACKED / name, own
        if not self.package.is_dir():
            raise AssertionError(f"{name} is not unpacked: tools/test does that")

    def write(self, path: str, text: str) -> Path:
        """A file that the programs find below /."""
        file = self.own / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def words(self, *command: str) -> list[str]:
        """What starts a program there."""
        return ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", _ENTER, "sh", str(self.package),
                str(self.own), *command]

    def start(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None,
              network: Sequence[str] = ()) -> "subprocess.Popen[bytes]":
        """A program that goes on; what it says is in the log. `network`: words that put it into another network."""
        with log.open("ab") as said:
            return subprocess.Popen([*network, *self.words(*command)], stdin=subprocess.DEVNULL, stdout=said,
                                    stderr=said, env={**os.environ, **(environment or {})}, start_new_session=True)
