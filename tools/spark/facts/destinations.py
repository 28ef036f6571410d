"""Where facts are written: a folder, or whatever Hadoop's file systems write (s3a://, hdfs://, abfs://).

A name is written once: what is there under it is whole, since it gets its name when all of it has been written. Only
the manifest is written again.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from mboxlist.privatefiles import Folder

_OBJECTS = ("s3a",)                             # what stores objects, without real folders
_OVER = ("hdfs", "webhdfs", "swebhdfs")         # where a name can be taken from an older file in one step


class Destination(Protocol):
    """A place for files: they are made in the folder `work`, from which `take` brings them there."""

    @property
    def work(self) -> Path:
        """Where files are made."""

    def read(self, name: str) -> bytes | None:
        """The octets of a small file; None when there is none. Raises OSError."""

    def write(self, name: str, octets: bytes) -> None:
        """Have the file be these octets, from one moment to the next. Raises OSError."""

    def take(self, name: str) -> None:
        """Have the file that was made in `work` under that name there. Raises OSError."""

    def files(self) -> Iterator[tuple[str, int]]:
        """The names of all files that are there, and their octets; -1 for what is no file. Raises OSError."""

    def remove(self, name: str) -> None:
        """Have no such file. Raises OSError."""


@frozen
class FolderDestination:
    """A folder of this machine, 0700. Files are made where they belong. Others may be able to write to it: no link in
    it is followed."""

    work: Path

    def read(self, name: str) -> bytes | None:
        """See Destination."""
        try:
            with Folder.at(self.work) as folder:
                return folder.read(name)
        except FileNotFoundError:
            return None

    def write(self, name: str, octets: bytes) -> None:
        """See Destination."""
        with Folder.at(self.work, make=True) as folder:
            folder.replace(name, octets)

    def take(self, name: str) -> None:
        """See Destination."""

    def files(self) -> Iterator[tuple[str, int]]:
        """See Destination."""
        for folder, folders, files in os.walk(self.work):
            for path in (os.path.join(folder, name) for name in (*files, *folders)):
                status = os.lstat(path)
                if not stat.S_ISDIR(status.st_mode):
                    yield os.path.relpath(path, self.work), status.st_size if stat.S_ISREG(status.st_mode) else -1

    def remove(self, name: str) -> None:
        """See Destination."""
        with Folder.at(self.work) as folder:
            folder.remove(name)


@frozen
class HadoopDestination:
    """A folder of a file system that Hadoop knows, through the virtual machine of a Spark session. A file gets its name
    by being renamed, over an older one in one step where that is possible (else a reader finds none for a moment). In
    object stores it is there when all of it has been written, and to rename it would be to copy it."""

    work: Path
    top: str
    gateway: Any
    system: Any
    scheme: str

    @classmethod
    def at(cls, spark: Any, top: str, work: Path) -> "HadoopDestination":
        """The folder at that URI. Raises Py4JError."""
        gateway = spark.sparkContext._gateway
        system = gateway.jvm.org.apache.hadoop.fs.Path(top).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        return cls(work, top.rstrip("/"), gateway, system, top.partition("://")[0])

    def _path(self, name: str) -> Any:
        return self.gateway.jvm.org.apache.hadoop.fs.Path(f"{self.top}/{name}")

    def _part(self, name: str) -> Any:
        return self._path(name if self.scheme in _OBJECTS else name + ".new")

    def read(self, name: str) -> bytes | None:
        """See Destination."""
        path = self._path(name)
        if not self.system.exists(path):
            return None
        stream = self.system.open(path)
        try:
            return bytes(self.gateway.jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, octets: bytes) -> None:
        """See Destination."""
        part = self._part(name)
        stream = self.system.create(part, True)
        stream.write(bytearray(octets))
        stream.close()              # not when it failed: an object would be there, cut off
        self._rename(part, name)

    def take(self, name: str) -> None:
        """See Destination."""
        part, made = self._part(name), self.work / name
        local = self.gateway.jvm.org.apache.hadoop.fs.Path(made.as_uri())
        self.system.mkdirs(part.getParent())
        self.system.copyFromLocalFile(False, True, local, part)
        self._rename(part, name)
        made.unlink()

    def _rename(self, part: Any, name: str) -> None:
        path = self._path(name)
        if self.scheme in _OVER:
            ways = self.gateway.jvm.org.apache.hadoop.fs.Options.Rename
            over = self.gateway.new_array(ways, 1)
            over[0] = ways.OVERWRITE
            self.system.rename(part, path, over)
        elif self.scheme not in _OBJECTS:
            if self.system.exists(path):
                self.system.delete(path, False)
            if not self.system.rename(part, path):
                raise OSError(f"{path.toString()} cannot be written")

    def files(self) -> Iterator[tuple[str, int]]:
        """See Destination."""
        top = self._path("")
        if not self.system.exists(top):
            return
        begin = len(self.system.makeQualified(top).toString().rstrip("/")) + 1
        found = self.system.listFiles(top, True)
        while found.hasNext():
            one = found.next()
            yield str(one.getPath().toString())[begin:], int(one.getLen())

    def remove(self, name: str) -> None:
        """See Destination."""
        self.system.delete(self._path(name), False)
