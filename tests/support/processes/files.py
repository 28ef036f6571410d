"""More open files than a process may have by default: a connection is a file at both of its ends."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """So many may be open here, and in servers that are started meanwhile. Skips the test where they may not be; in CI
    it fails."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, count), max(most, count)))
    except ValueError:
        if "CI" in os.environ:
            raise
        pytest.skip(f"only {most} files may be open")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
