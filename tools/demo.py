"""`tools/serve`: a server to try out, on loopback, with two users, that says how to use it."""

import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from mboxlist import privatefiles
from store.accounts.passwords import hash_password
from store.errors import StoreError
from store.store import Store
from store.users.newuser import add_user
from store.values import Secret
from tools.cli import program
from tools.cli.options import Config
from tools.cli.storeaccess import init, is_store, open_configured
from tools.exits import Failure
from tools.server.start import serve

REPOSITORY = Path(__file__).resolve().parents[1]
VAR = REPOSITORY / "var"
USERS = ("alice", "bob")
LONGEST_SOCKET = 107        # octets of the path of a UNIX socket

DEFAULTS = {
    "root": str(VAR / "store"),
    "imap.address": "127.0.0.1", "imap.port": "1143", "imap.tls_port": "1993",
    "pop3.address": "127.0.0.1", "pop3.port": "1110", "pop3.tls_port": "1995",
    "lmtp.address": "127.0.0.1", "lmtp.port": "1024",
    "managesieve.address": "127.0.0.1", "managesieve.port": "14190",
    "http.address": "127.0.0.1", "http.port": "1080", "http.administrators": USERS[0],
}


def passwords_file(root: Path) -> Path:
    """Where the passwords of the demo users are kept."""
    return (VAR if root == VAR / "store" else root) / "demo-users.txt"


def make_users(store: Store, path: Path) -> None:
    """Give an empty store its users, with random passwords that are written down for the next start."""
    if next(store.directory.all(), None) is not None:
        return
    passwords = {user: secrets.token_urlsafe(9) for user in USERS}
    with privatefiles.open_file(path, "xb") as stream:
        stream.writelines(f"{user} {password}\n".encode() for user, password in passwords.items())
    for user, password in passwords.items():
        add_user(store, user, hash_password(Secret(password.encode())))


def read_passwords(path: Path) -> dict[str, str]:
    """User -> password, as `make_users` wrote them."""
    try:
        lines = privatefiles.read_text(path).splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split(" ", 1) for line in lines if " " in line)


def instructions(values: Mapping[str, object], passwords: Mapping[str, str], pid: int) -> str:
    """What a person can do now."""
    def address(server: str) -> str:
        first = next(iter(values[f"{server}.address"]), "*")    # type: ignore[call-overload]
        return "127.0.0.1" if first == "*" else str(first)

    user, password = next(iter(passwords.items()), ("USER", "PASSWORD"))
    root, socket, domain = values["root"], values["lmtp.socket"], values["store.default_domain"]
    account, to = shlex.quote(f"{user}:{password}"), shlex.quote(f"{user}@{domain}")
    deliver = [str(REPOSITORY / ".venv" / "bin" / "onecopy"), "deliver", "--root", str(root), user]
    lines = [
        "onecopy is running.",
        f"  store    {root}",
        f"  IMAP     {address('imap')}, port {values['imap.port']} (STARTTLS) or {values['imap.tls_port']} (TLS)",
        f"  POP3     {address('pop3')}, port {values['pop3.port']} (STLS) or {values['pop3.tls_port']} (TLS)",
        f"  Sieve    {address('managesieve')}, port {values['managesieve.port']} (ManageSieve, STARTTLS)",
        f"  LMTP     {address('lmtp')}, port {values['lmtp.port']}" + (f", and the socket {socket}" if socket else ""),
        f"  HTTP     {address('http')}, port {values['http.port']}: /console/ (log in as {USERS[0]}), /metrics",
        *(f"  user     {name}, password {secret}" for name, secret in passwords.items()),
        "To deliver:",
        f"  printf 'Subject: hello\\n\\nHello.\\n' | {shlex.join(deliver)}",
        f"  swaks --protocol LMTP --server {address('lmtp')}:{values['lmtp.port']} --to {to}",
        "To read:",
        f"  curl -u {account} 'imap://{address('imap')}:{values['imap.port']}/INBOX;MAILINDEX=1'",
        f"  curl -u {account} 'pop3://{address('pop3')}:{values['pop3.port']}/1'",
        f"To stop: Ctrl-C, or kill {pid}",
    ]
    return "\n".join(lines)


def run(words: list[str]) -> int:
    """Serve until a signal says stop. Raises Failure."""
    socket = VAR / "run" / "lmtp"
    fits = len(os.fsencode(socket)) <= LONGEST_SOCKET
    invocation = program.parse(["serve", *words], {**DEFAULTS, **({"lmtp.socket": str(socket)} if fits else {})})
    config: Config = invocation.config
    privatefiles.make_folder(VAR, exist_ok=True)
    privatefiles.make_folder(socket.parent, exist_ok=True)
    if not is_store(config.root):
        init(config.root)
    path = passwords_file(config.root)
    if not path.exists():
        store = open_configured(config, "tools/serve")
        try:
            make_users(store, path)
        except (OSError, StoreError) as error:
            raise Failure(f"cannot make the users: {error}", 1) from error
        finally:
            store.close()

    def ready() -> None:
        print(instructions(config.values, read_passwords(path), os.getpid()), flush=True)

    serve(config, create=False, ready=ready)
    return 0


if __name__ == "__main__":
    sys.exit(program.guarded(lambda: run(sys.argv[1:])))
