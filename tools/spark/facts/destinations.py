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
    """A folder of a file system that Hadoop knows, through the virtual machine of a Spark session."""

    work: Path
    top: str
    virtual_machine: Any
    system: Any

    @classmethod
    def at(cls, spark: Any, top: str, work: Path) -> "HadoopDestination":
        """The folder at that URI. Raises Py4JError."""
        virtual_machine = spark.sparkContext._jvm
        path = virtual_machine.org.apache.hadoop.fs.Path(top)
        system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        return cls(work, top.rstrip("/"), virtual_machine, system)

    def _path(self, name: str) -> Any:
        return self.virtual_machine.org.apache.hadoop.fs.Path(f"{self.top}/{name}")

    def read(self, name: str) -> bytes | None:
        """See Destination."""
        path = self._path(name)
        if not self.system.exists(path):
            return None
        stream = self.system.open(path)
        try:
            return bytes(self.virtual_machine.org.apache.hadoop.io.IOUtils.readFullyToByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, octets: bytes) -> None:
        """See Destination."""
        part, path = self._path(name + ".new"), self._path(name)
        stream = self.system.create(part, True)
        try:
            stream.write(bytearray(octets))
        finally:
            stream.close()
        self._rename(part, path)

    def take(self, name: str) -> None:
        """See Destination."""
        part, path, made = self._path(name + ".new"), self._path(name), self.work / name
        local = self.virtual_machine.org.apache.hadoop.fs.Path(made.as_uri())
        self.system.mkdirs(path.getParent())
        self.system.copyFromLocalFile(False, True, local, part)
        self._rename(part, path)
        made.unlink()

    def _rename(self, part: Any, path: Any) -> None:
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
