"""How the fuzzers are run: python -m tests.PROTOCOL.fuzz NAME COUNT [SEED] gives that many inputs to a target, guided
by what they reach (atheris).

It ends with a line of figures and status 0, or with a traceback and the input in hexadecimal digits, with which

    python -m tests.PROTOCOL.fuzz NAME =DIGITS

runs it again. No input may raise, or take for ever; and in the second half nothing may stay in memory. The module of
that name beside `__main__` has the `TARGET`: how inputs are made, run, and counted.
"""

import ctypes
import functools
import gc
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

HANGS = 300             # seconds for one input: for an endless loop. What is slow is found by counting steps
BLOCKS_FOR_EACH = 0.2   # blocks of memory that an input may leave behind, in the mean
GROWTH = 16 << 20       # octets that all inputs of the second half may leave behind,
CORPUS = 4 << 10        # beside what libFuzzer itself keeps, for each: those that reached something new, and what


class Counted:
    """Runs a target `count` times, says how it went, and removes the folder."""

    def __init__(self, target, name, count, folder):
        self._target = target
        self._folder = folder
        self._name = name
        self._count = count
        self._done = 0
        self._before = (0, 0)

    def __call__(self, data):
        try:
            self._target.run(data, self._done)
        except BaseException:
            print(f"the input: ={data.hex()}", flush=True)
            raise
        self._done += 1
        if self._done == self._count // 2:
            self._before = memory()
        elif self._done == self._count:
            self._end()

    def _end(self):
        (blocks, octets), (blocks_before, octets_before) = memory(), self._before
        blocks, octets = blocks - blocks_before, octets - octets_before
        each = getattr(self._target, "each", BLOCKS_FOR_EACH)
        assert blocks < self._target.kept + each * (self._count - self._count // 2), f"{blocks} blocks"
        assert octets < GROWTH + CORPUS * (self._count - self._count // 2), f"{octets >> 10} KiB"
        print(f"{self._name}: {self._count} inputs, {self._target.end()}; the second half left {blocks} blocks, "
              f"{octets >> 10} KiB", flush=True)
        shutil.rmtree(self._folder)
        os._exit(0)             # libFuzzer would go on


def memory():
    """Blocks of Python's small objects, and octets of memory that is no file's: those that are needed.

    Not what caches that are bounded happen to hold, nor what the allocator keeps although nobody uses it: that goes
    up and down by as much as the largest message.
    """
    gc.collect()
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper) and thing.cache_parameters()["maxsize"] is not None:
            thing.cache_clear()
    getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)(0)      # only glibc has it
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return sys.getallocatedblocks(), int(status.split("RssAnon:")[1].split()[0]) * 1024


def quoted(word):
    """An entry of libFuzzer's dictionary."""
    return '"' + "".join(f"\\x{octet:02x}" for octet in word) + '"\n'


def main(package, watched, name, what, seed="1"):
    """See the module's text. `package` has the targets; `watched` are the packages whose coverage guides the fuzzer, as
    far as they have not been imported yet."""
    import atheris
    with atheris.instrument_imports(include=watched):
        target = importlib.import_module(f"{package}.{name}").TARGET
    target.begin()
    if what.startswith("="):
        target.run(bytes.fromhex(what[1:]), 0)
        print(target.end())
        return
    with tempfile.TemporaryDirectory(prefix="onecopy-fuzz-") as folder:
        corpus, words = Path(folder) / "corpus", Path(folder) / "words"
        corpus.mkdir()
        for number, data in enumerate(target.corpus()):
            (corpus / f"{number:04}").write_bytes(data)
        words.write_text('"a"\n' + "".join(quoted(word) for word in target.words), encoding="ascii")
        atheris.Setup([sys.argv[0], f"-seed={seed}", f"-max_len={target.longest}", "-len_control=0", "-verbosity=0",
                       f"-timeout={HANGS}", f"-dict={words}", f"-artifact_prefix={folder}-",
                       str(corpus)], Counted(target, name, int(what), folder))
        atheris.Fuzz()
