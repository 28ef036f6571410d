"""Partitions that have message files, and no databases that anybody could use."""

from pathlib import Path

from store.partition.processes import partitions_in_use, server
from store.partitions import volumes
from store.reconstruct.request import Request


def is_lost(root: Path, name: str) -> bool:
    """Whether the partition is one of these."""
    folder = root / "partitions" / name
    return (folder / "messages").is_dir() and not volumes.is_whole(folder)


def wanted(request: Request) -> list[str]:
    """The partitions whose databases are to be rebuilt."""
    if request.what:
        return []
    names = [folder.name for folder in volumes.with_messages(request.root)
             if (request.all or request.partition == folder.name) and is_lost(request.root, folder.name)]
    if request.partition and not names and (request.force or _is_unlisted(request.root, request.partition)):
        names = [request.partition]
    return names


def _is_unlisted(root: Path, name: str) -> bool:
    """Whether the partition is whole, and the processes in the store do not know of it."""
    known = partitions_in_use(root)
    return known is not None and name not in known and volumes.is_whole(root / "partitions" / name) and server(
        root / "run" / "server.pid") != 0
