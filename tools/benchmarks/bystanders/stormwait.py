"""What a good user waits while others storm the doors: `python -m tools.benchmarks.bystanders.stormwait`, on
a fresh server of its own.

Many addresses of loopback log in with wrong passwords as fast as they can. One user connects, logs in, opens INBOX and
goes, again and again: first when all is quiet, then in the storm.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from mboxlist import privatefiles
from tools.benchmarks.temporaryserver import ADDRESS, PASSWORD, USER, free_ports, make_users
from tools.cli.storeaccess import init

USERS = 50
FACTOR = 5.0            # how many times the quiet p99 it may be in the storm
START_TIME = 60.0


def good_work(port: int, rounds: int) -> list[float]:
    """How many seconds each round took."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        with socket.create_connection((ADDRESS, port), 120) as client, client.makefile("rb") as file:
            file.readline()
            for tag, command in (("a", f"LOGIN {USER % 0} {PASSWORD}"), ("b", "SELECT INBOX"), ("c", "LOGOUT")):
                client.sendall(f"{tag} {command}\r\n".encode())
                while not (line := file.readline()).startswith(tag.encode()):
                    if not line:
                        raise ConnectionError("the server has ended the connection of the good user")
                if not line.startswith(f"{tag} OK".encode()):
                    raise ConnectionError(f"the good user was refused: {line!r}")
        taken.append(time.perf_counter() - begun)
        time.sleep(0.01)
    return taken


async def attack(number: int, port: int, stop: Event, count: list[int]) -> None:
    """One address; every login that is answered is counted."""
    tried = 0
    source = f"127.0.{100 + number // 250}.{1 + number % 250}"
    while not stop.is_set():
        try:
            reader, writer = await asyncio.open_connection(ADDRESS, port, local_addr=(source, 0))
            await reader.readline()
            line = b"a NO"
            while line.startswith(b"a NO") and not stop.is_set():
                user = USER % (tried % USERS) if tried % 2 else f"nobody{number}"
                writer.write(f"a LOGIN {user} wrong{tried}\r\n".encode())
                line = await asyncio.wait_for(reader.readline(), 60)
                tried += 1
                count[0] += 1
            writer.close()
        except (OSError, TimeoutError):
            await asyncio.sleep(0.1)


def storm(addresses: int, port: int, stop: Event, count: "multiprocessing.Queue[int]") -> None:
    """All addresses, in a process of its own."""
    os.nice(5)

    async def all_of_them() -> int:
        answered = [0]
        running = [asyncio.ensure_future(attack(number, port, stop, answered)) for number in range(addresses)]
        while not stop.is_set():
            await asyncio.sleep(0.1)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return answered[0]

    count.put(asyncio.run(all_of_them()))


def p99(taken: list[float]) -> float:
    """The value that one in a hundred exceeds, in milliseconds."""
    return sorted(taken)[int(len(taken) * 0.99)] * 1000


def measure(port: int, addresses: int, rounds: int) -> dict[str, float]:
    """The figures, quiet and in the storm."""
    good_work(port, 10)                         # the password is known from now on, as of anybody who has been here
    quiet = good_work(port, rounds)
    stop: Event = multiprocessing.Event()
    count: multiprocessing.Queue[int] = multiprocessing.Queue()
    attackers = multiprocessing.Process(target=storm, args=(addresses, port, stop, count))
    attackers.start()
    try:
        time.sleep(2)
        stormy = good_work(port, rounds)
    finally:
        stop.set()
        answered = count.get()
        attackers.join()
    return {"addresses": addresses, "rounds": rounds, "refused": answered, "quiet_p99_ms": round(p99(quiet), 1),
            "storm_p99_ms": round(p99(stormy), 1), "factor": round(p99(stormy) / p99(quiet), 2)}


def served(folder: Path, workers: int, port: int) -> "subprocess.Popen[bytes]":
    """A server on a fresh store, once it answers."""
    root = folder / "store"
    init(root)
    make_users(root, USERS)
    command = [sys.executable, "-P", "-m", "tools.cli.program", "serve", "--root", str(root), "--imap-address", ADDRESS,
               "--imap-port", str(port), "--imap-tls-port", "0", "--pop3-port", "0", "--pop3-tls-port", "0",
               "--lmtp-port", "0", "--log-level", "error", "--workers-all", str(workers)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + START_TIME
    while True:
        try:
            with socket.create_connection((ADDRESS, port), 60) as client:
                if client.recv(4) == b"* OK":
                    return process
        except ConnectionRefusedError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the server does not answer")
        time.sleep(0.05)


def main() -> int:
    """Measure; the exit status tells whether the good user was served well."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.bystanders.stormwait", description=__doc__)
    parser.add_argument("--addresses", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: one")
    arguments = parser.parse_args()
    folder = privatefiles.new_folder("onecopy-doors-")
    port, = free_ports(1)
    process = served(folder, arguments.workers, port)
    try:
        figures = measure(port, arguments.addresses, arguments.rounds)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        shutil.rmtree(folder)
    print(json.dumps(figures))
    return 0 if figures["factor"] < FACTOR else 1


if __name__ == "__main__":
    sys.exit(main())
