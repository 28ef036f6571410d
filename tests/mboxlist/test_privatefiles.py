"""Files that are opened and made for the whole product: modes, links, and what others may have put in the way."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mboxlist import privatefiles
from mboxlist.privatefiles import Folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=[0, 0o022, 0o077, 0o277])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


MAKERS: dict[str, Callable[[Path], object]] = {
    "wb": lambda path: privatefiles.open_file(path, "wb").close(),
    "xb": lambda path: privatefiles.open_file(path, "xb").close(),
    "ab": lambda path: privatefiles.open_file(path, "ab").close(),
    "handle": lambda path: os.close(privatefiles.open_handle(path, os.O_RDWR | os.O_CREAT)),
    "write": lambda path: privatefiles.write(path, "x"),
    "touch": privatefiles.touch,
    "empty": lambda path: list(privatefiles.make_empty([path])),
    "second empty": lambda path: list(privatefiles.make_empty([path.with_name("first"), path])),
    "copy": lambda path: privatefiles.copy(__file__, path),
    "replacing": lambda path: _replace(path),
    "folder": lambda path: Folder.at(path.parent).replace(path.name, b"x"),
}


def _replace(path: Path) -> None:
    with privatefiles.replacing(path) as file:
        file.write(b"x")


@pytest.mark.parametrize("way", MAKERS)
def test_a_file_is_ours_alone(way: str, tmp_path: Path, any_umask: None) -> None:
    MAKERS[way](tmp_path / "file")
    assert mode(tmp_path / "file") == 0o600


@pytest.mark.parametrize("way", MAKERS)
def test_a_planted_link_is_not_followed(way: str, tmp_path: Path) -> None:
    victim, planted = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"kept")
    planted.symlink_to(victim)
    try:
        MAKERS[way](planted)
    except OSError:
        assert planted.is_symlink()
    else:
        assert not planted.is_symlink() and mode(planted) == 0o600
    assert victim.read_bytes() == b"kept"


@pytest.mark.parametrize("way", [way for way in MAKERS if way not in (
    "xb", "ab", "touch", "handle", "empty", "second empty")])
def test_what_is_made_anew_is_not_written_into_a_file_that_is_there(way: str, tmp_path: Path) -> None:
    """Who had put it there, or has it open, reads nothing."""
    (tmp_path / "file").write_bytes(b"theirs")
    with (tmp_path / "file").open("rb") as held:
        MAKERS[way](tmp_path / "file")
        assert held.read() == b"theirs"


def test_what_others_can_read_is_narrowed_when_it_is_opened_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "lock").chmod(0o644)
    os.close(privatefiles.open_handle(tmp_path / "lock", os.O_RDWR | os.O_CREAT))
    assert mode(tmp_path / "lock") == 0o600


def test_folders(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        privatefiles.make_folder(tmp_path / "a" / "b", parents=True)
        privatefiles.make_folder(tmp_path / "a" / "b", exist_ok=True)
        with Folder.at(tmp_path / "c" / "d", make=True) as folder:
            folder.make("e/f").close()
    finally:
        os.umask(before)
    assert {mode(path) for path in tmp_path.rglob("*")} == {0o700}
    with pytest.raises(FileExistsError):
        privatefiles.make_folder(tmp_path / "a")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        privatefiles.make_folder(tmp_path / "file", exist_ok=True)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    privatefiles.write(tmp_path / "file", "old")
    with pytest.raises(ValueError, match="no"), privatefiles.replacing(tmp_path / "file") as file:
        file.write(b"half")
        raise ValueError("no")
    assert privatefiles.read_text(tmp_path / "file") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# Folders that others write to

@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "inside" / "below").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "inside" / "link").symlink_to("../secret")
    (tmp_path / "inside" / "around").symlink_to("..", target_is_directory=True)
    (tmp_path / "inside" / "file").write_bytes(b"text")
    os.mkfifo(tmp_path / "inside" / "pipe")
    with Folder.at(tmp_path / "inside") as found:
        yield found


@pytest.mark.parametrize("name", ["link", "around/secret", "../secret", "below/../../secret", "/etc/hostname", "pipe",
                                  "", ".", "below"])
def test_nothing_outside_is_read(name: str, folder: Folder) -> None:
    with pytest.raises(OSError):
        folder.read(name)


@pytest.mark.parametrize("name", ["around/new", "../new", "below/../../new", ""])
def test_nothing_outside_is_made(name: str, folder: Folder, tmp_path: Path) -> None:
    for work in (lambda: folder.open(name, "wb"), lambda: folder.replace(name, b"x"), lambda: folder.make(name),
                 lambda: folder.rename("file", name)):
        with pytest.raises(OSError):
            work()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "secret"]


def test_the_beginning_of_a_file_is_read(tmp_path: Path) -> None:
    """Of what stands in its place, be it a link, a folder or a pipe to which nobody writes, nothing is read or waited
    for."""
    file = tmp_path / "file"
    file.write_bytes(b"octets of a message")
    assert [privatefiles.read_beginning(file, count) for count in (0, 6, 100)] == [b"", b"octets", file.read_bytes()]
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "folder").mkdir()
    for name, wrong in (("link", errno.ELOOP), ("folder", errno.EISDIR), ("missing", errno.ENOENT)):
        with pytest.raises(OSError) as raised:
            privatefiles.read_beginning(tmp_path / name, 6)
        assert raised.value.errno == wrong
    os.mkfifo(tmp_path / "pipe")
    assert privatefiles.read_beginning(tmp_path / "pipe", 6) == b""


def test_a_link_says_that_it_is_one(folder: Folder) -> None:
    for name in ("link", "around/secret"):
        with pytest.raises(OSError, match="symbolic link, which is not followed"):
            folder.read(name)


def test_what_is_inside(folder: Folder, tmp_path: Path) -> None:
    folder.replace("below/new", b"x")
    folder.rename("below/new", "file")
    assert folder.read("file") == b"x" and folder.folders() == ["below"]
    assert folder.names() == ["around", "below", "file", "link", "pipe"]
    folder.remove("link")
    assert (tmp_path / "secret").exists()


def test_the_folder_stays_the_one_that_was_named(folder: Folder, tmp_path: Path) -> None:
    """Whoever puts a link into its place later changes nothing."""
    (tmp_path / "inside").rename(tmp_path / "moved")
    (tmp_path / "inside").symlink_to("/", target_is_directory=True)
    folder.replace("new", b"x")
    assert (tmp_path / "moved" / "new").exists()


def test_our_own_links_on_the_way_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "relative").symlink_to("./real/../real")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative")
    (tmp_path / "round").symlink_to("round")
    with Folder.at(tmp_path / "absolute" / "deep") as found:
        found.replace("here", b"")
    assert (tmp_path / "real" / "deep" / "here").exists()
    with pytest.raises(OSError, match="symbolic link"):
        Folder.at(tmp_path / "round")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes links of others; otheruser's tests run as root in CI")
def test_a_link_of_another_user_on_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(OSError, match="link is a symbolic link, which is not followed"):
        Folder.at(tmp_path / "link")


# Who may reach what is there

def test_make_private_follows_no_link_and_takes_no_second_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(0o644)            # whatever the umask is
    (tmp_path / "link").symlink_to("file")
    os.link(tmp_path / "file", tmp_path / "second")
    with pytest.raises(OSError, match="symbolic link"):
        privatefiles.make_private(tmp_path / "link")
    with pytest.raises(OSError, match="another name"):
        privatefiles.make_private(tmp_path / "file", (12345, 12345))
    assert mode(tmp_path / "file") == 0o644
    privatefiles.make_private(tmp_path / "file")
    assert mode(tmp_path / "file") == 0o600


def test_what_is_named_may_be_a_link_or_standard_input(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"key")
    (tmp_path / "link").symlink_to("key")
    assert privatefiles.read_named(tmp_path / "link") == b"key"
    read, write = os.pipe()
    os.write(write, b"typed")
    os.close(write)
    kept = os.dup(0)
    os.dup2(read, 0)
    try:
        assert privatefiles.read_named("/dev/stdin") == b"typed"
    finally:
        os.dup2(kept, 0)
        for handle in (kept, read):
            os.close(handle)


def test_what_was_made_before_one_could_not_be_is_told(tmp_path: Path) -> None:
    made = []
    (tmp_path / "taken").touch()
    with pytest.raises(FileExistsError):
        made.extend(privatefiles.make_empty([tmp_path / "new", tmp_path / "taken"]))
    assert [path.name for path in made] == ["new"]
