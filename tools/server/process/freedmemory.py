"""Large pieces of memory go back to the kernel when they are freed (mallopt(3))."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3       # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
LARGE = 4 << 20                                 # octets


def give_back() -> None:
    """Have a piece of more than `LARGE` octets be a mapping of its own, and keep no more than that unused.

    By itself glibc raises both limits to the largest piece that was freed. One login, whose password takes 16 MiB to
    compare (RFC 7914 section 2), was enough for each thread that compares passwords to keep up to 32 MiB for ever.
    Another C library has no such limits, or no such function: nothing is done then.
    """
    if set_limit := getattr(ctypes.CDLL(None), "mallopt", None):
        for limit in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            set_limit(limit, LARGE)
