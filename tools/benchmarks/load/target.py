"""The servers that a run is made against."""

from pathlib import Path

from attrs import frozen

from tools.benchmarks.load.bytestream import Address


@frozen
class Target:
    """One server. `user` is the pattern of the login names, which a number goes into; `pid` is the root of its process
    tree, `data` the folder of its mail, `version` what it calls itself."""

    name: str
    user: str
    password: str
    users: int
    imap: Address
    pop3: Address
    lmtp: Address
    pid: int
    data: Path
    version: str = ""

    def user_name(self, index: int) -> str:
        """The login name of the `index`-th user, from 0; wraps around."""
        return self.user % (index % self.users)

    def recipient(self, index: int) -> bytes:
        """That user's address in LMTP."""
        return self.user_name(index).encode()
