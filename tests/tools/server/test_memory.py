"""What logins take goes back to the system: by default the C library keeps the 16 MiB of each password check, once for
each thread that has done one, so that a worker grew by some 50 MiB with its first crowds."""

import subprocess
import sys

CHECKS = """
import hashlib
from concurrent.futures import ThreadPoolExecutor
from tools.server.worker import give_back_memory
if {mended}:
    give_back_memory()

def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss_Anon"))

def check(number):
    hashlib.scrypt(b"%d" % number, salt=b"salt", n=1 << 14, r=8, p=1, maxmem=64 << 20)

before = anonymous()
with ThreadPoolExecutor(4) as threads:
    list(threads.map(check, range(16)))
    print(anonymous() - before)
"""
KEPT = 8 << 10      # KiB, half of what one check takes


def grown(*, mended: bool) -> int:
    """KiB that a process has more after logins in four threads, which still live."""
    return int(subprocess.run([sys.executable, "-c", CHECKS.format(mended=mended)], capture_output=True, text=True,
                              check=True).stdout)


def test_what_password_checks_take_goes_back() -> None:
    assert grown(mended=True) < KEPT < grown(mended=False)
