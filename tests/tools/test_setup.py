"""tools/setup.sh: what it says about missing packages, and that it has nothing to do the second time."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import find_packages

from tests.support import ROOT

SCRIPT = ROOT / "tools" / "setup.sh"
LISTS = SCRIPT.parent / "packages"


def bash(commands: str, root: Path) -> "subprocess.CompletedProcess[str]":
    """Run commands after setup.sh has been read, with `root` for the repository and none of our rights."""
    return subprocess.run(
        ["bash", "-c", f'set -euo pipefail; . {SCRIPT} --yes; root={root}; venv=$root/.venv; {commands}', "tools/try"],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=180, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A list of three packages, of which two are missing; a repository whose .venv is as it should be."""
    (tmp_path / "tools" / "packages").mkdir(parents=True)
    (tmp_path / "tools" / "packages" / "try.list").write_text(
        "# a comment\nhere      true\nmissing   command -v no-such-command\nlost      test -e /no/such/file\n")
    for path in (LISTS / "python.sh", *LISTS.glob("*.lock")):
        shutil.copy(path, tmp_path / "tools" / "packages")
    return tmp_path


def test_what_is_missing_is_named_in_one_line(repository: Path) -> None:
    done = bash("id() { echo 1000; }; sudo() { return 1; }; system_packages try", repository)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "try: missing: missing lost; as root: apt-get install missing lost\n"


def test_what_is_missing_is_installed(repository: Path) -> None:
    (repository / "tools" / "packages" / "apt.sh").write_text('echo "$@" >>"${0%/*}/asked"; exit 0\n')
    done = bash("id() { echo 1000; }; sudo() { shift; [ $1 = true ] || \"$@\"; }; system_packages try", repository)
    assert (repository / "tools" / "packages" / "asked").read_text() == "missing lost\n"
    assert done.returncode == 2             # they are still missing, and that is said
    assert done.stderr.splitlines()[-1] == "try: still missing after its installation: missing lost"


def asked(repository: Path, answer: str, *words: str, terminal: bool = True) -> "subprocess.CompletedProcess[str]":
    """Root sets up without the rights of CI, at a terminal where somebody answers, or without one."""
    (repository / "tools" / "packages" / "apt.sh").write_text('echo "$@" >>"${0%/*}/asked"; exit 0\n')
    commands = f"""set -euo pipefail; . {SCRIPT} {' '.join(words)}; root={repository}; id() {{ echo 0; }}
        asks() {{ {str(terminal).lower()}; }}; consent try; system_packages try"""
    return subprocess.run(["bash", "-c", commands, "tools/try"], input=answer, capture_output=True, text=True,
                          check=False, env={name: value for name, value in os.environ.items() if name != "CI"})


@pytest.mark.parametrize(("answer", "installed"), [
    ("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_root_installs_only_what_somebody_has_agreed_to(repository: Path, answer: str, installed: bool) -> None:
    done = asked(repository, answer)
    assert "try: these packages of Debian are missing: missing lost\n" in done.stderr
    assert (repository / "tools" / "packages" / "asked").exists() == installed and done.returncode == 2
    assert installed or done.stderr.endswith("try: nothing was installed; as root: apt-get install missing lost\n")


def test_without_a_terminal_it_says_what_to_type(repository: Path) -> None:
    done = asked(repository, "y\n", terminal=False)
    assert done.returncode == 2 and not (repository / "tools" / "packages" / "asked").exists()
    assert done.stderr == (
        "try: these packages of Debian are missing: missing lost\n"
        "try: there is nobody to ask: tools/try --yes installs them as root, or do it: apt-get install missing lost\n")
    assert asked(repository, "", "--yes", terminal=False).stderr.startswith("try: apt-get install missing lost\n")
    assert (repository / "tools" / "packages" / "asked").read_text() == "missing lost\n"


def test_the_word_yes_is_for_the_set_up_alone() -> None:
    words = ["-k", "a b", "--yes", "c"]
    done = subprocess.run(["bash", "-c", f'. {SCRIPT}; printf "%s|" "$yes" "$@"', "tools/try", *words],
                          capture_output=True, text=True, check=True)
    assert done.stdout == "yes|-k|a b|c|"


def test_a_question_needs_a_terminal() -> None:
    """With a pipe for either side nobody is asked."""
    assert bash("asks || echo nobody", ROOT).stdout == "nobody\n"


def test_all_that_is_missing_is_asked_for_at_once(repository: Path) -> None:
    for name in ("setup.cfg", "pyproject.toml"):
        (repository / name).touch()
    (repository / "tools" / "packages" / "build.list").write_text("gcc  false\n")
    done = bash("yes=; id() { echo 0; }; asks() { true; }; setup try", repository)
    assert done.returncode == 2
    assert done.stderr == ("try: these packages of Debian are missing: gcc missing lost\n"
                           "try: nothing was installed; as root: apt-get install gcc missing lost\n")


def test_an_installation_that_fails(repository: Path) -> None:
    (repository / "tools" / "packages" / "apt.sh").write_text("exit 100\n")
    done = bash("id() { echo 0; }; system_packages try", repository)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "try: failed: apt-get install missing lost"


def test_nothing_is_done_when_nothing_is_missing(repository: Path) -> None:
    (repository / "tools" / "packages" / "try.list").write_text("here  true\n")
    (repository / "setup.cfg").write_text("")
    (repository / "pyproject.toml").write_text("")
    done = bash("""
        mkdir -p "$venv/bin"; ln -s "$(command -v python3)" "$venv/bin/python"
        ingredients >"$venv/onecopy.stamp"
        setup try
        """, repository)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in (repository / ".venv").iterdir()) == ["bin", "onecopy.stamp"]


@pytest.mark.parametrize(("made", "why"), [
    ('echo "/elsewhere of a setup.cfg" >there/onecopy.stamp', "was not made for"),      # of another working copy
    ("mkdir there/lib", "was not made for"),                                            # of somebody's own
    ("rmdir there", "is no folder"),
    ("rmdir there; touch there", "is no folder"),
])
def test_what_a_link_leads_to_is_not_replaced(repository: Path, made: str, why: str) -> None:
    """`python -m venv --clear` follows the link, and empties what another working copy has."""
    done = bash(f"""cd {repository}; mkdir there; {made}; ln -s there .venv
        python=echo; system_packages() {{ :; }}; virtual_environment""", repository)
    assert (done.returncode, done.stdout) == (2, "") and why in done.stderr and str(repository / ".venv") in done.stderr
    assert (repository / ".venv").is_symlink()


def test_a_link_to_a_folder_of_its_own_is_followed(repository: Path) -> None:
    """As where the environment lies on another volume: made there, also when the first try was cut off, and used."""
    for name in ("setup.cfg", "pyproject.toml", "asked"):
        (repository / name).write_text("")
    done = bash(f"""cd {repository}; mkdir there; ln -s there .venv; system_packages() {{ :; }}
        made() {{ mkdir -p there/bin; printf '#!/bin/sh\n' >there/bin/python; chmod +x there/bin/python; echo made; }}
        python=made; virtual_environment; rm there/bin/python; virtual_environment
        ingredients >there/onecopy.stamp; virtual_environment""", repository)
    assert (done.returncode, done.stderr.count("making ")) == (0, 2), done.stderr
    assert (repository / ".venv").is_symlink()


@pytest.mark.parametrize(("stamp", "anew"), [
    ("echo /elsewhere $(ingredients | cut -d' ' -f2-)", True),      # moved: its scripts name the old place
    ("echo $root of another setup.cfg", False),
    ("echo", True),                                                 # it says not whose it is
])
def test_an_environment_that_is_not_up_to_date(repository: Path, stamp: str, anew: bool) -> None:
    (repository / "setup.cfg").write_text("")
    (repository / "pyproject.toml").write_text("")
    (repository / "tools" / "packages" / "build.list").write_text("here  choose_python\n")
    done = bash(f"""
        mkdir -p "$venv/bin"
        printf '#!/bin/sh\\necho "$@" >>{repository}/asked\\n' >"$venv/bin/python"
        chmod +x "$venv/bin/python"
        choose_python() {{ python=$venv/bin/python; }}
        {stamp} >"$venv/onecopy.stamp"
        setup
        ingredients | cmp - "$venv/onecopy.stamp"
        """, repository)
    assert done.returncode == 0, done.stderr
    asked = [line for line in (repository / "asked").read_text().splitlines() if line.startswith("-m")]
    assert (f"-m venv --clear {repository}/.venv" in asked) == anew
    assert [words.split(" --quiet ")[1] for words in asked[-3:]] == installing(repository, "test")


def installing(repository: Path, *lists: str) -> list[str]:
    """What pip is asked for: only files of which the digest is known, but for onecopy itself."""
    folder = repository / "tools" / "packages"
    locks = " ".join(f"--requirement {folder}/{name}.lock" for name in ("runtime", *lists))
    return [f"--require-hashes --requirement {folder}/build.lock",
            f"--require-hashes --no-build-isolation {locks}",
            f"--no-deps --no-build-isolation --editable {repository}"]


def test_spark_is_there_for_the_tests_alone(repository: Path) -> None:
    (repository / "setup.cfg").write_text("")
    (repository / "pyproject.toml").write_text("")
    for name in ("test", "unpacked", "npm", "roots"):
        (repository / "tools" / "packages" / f"{name}.list").write_text("# none\n")
    done = bash(f"""
        mkdir -p "$venv/bin"
        printf '#!/bin/sh\\necho "$@" >>{repository}/asked\\n' >"$venv/bin/python"
        chmod +x "$venv/bin/python"
        ingredients >"$venv/onecopy.stamp"
        setup; ! grep -s pip {repository}/asked
        setup test; setup test
        """, repository)
    assert done.returncode == 0, done.stderr
    every = (repository / "asked").read_text().splitlines()
    asked = [line for line in every if line.startswith("-m pip ")]
    assert [words.split(" --quiet ")[1] for words in asked] == installing(repository, "test", "spark", "docs")
    assert every.count("-m tests.support.servers.classarchive") == 1


def test_all_python_packages_are_installed_in_one_go(repository: Path) -> None:
    """Where none of them is there yet; and what fails beside them is said."""
    (repository / "setup.cfg").write_text("")
    (repository / "pyproject.toml").write_text("")
    lists = {"build": "here  choose_python", "test": "lost  test -e /no/such/file"}
    for name, line in {**lists, **dict.fromkeys(("unpacked", "npm", "roots"), "# none")}.items():
        (repository / "tools" / "packages" / f"{name}.list").write_text(f"{line}\n")
    done = bash(f"""
        mkdir -p "$venv/bin"
        printf '#!/bin/sh\necho "$@" >>{repository}/asked\n' >"$venv/bin/python"
        chmod +x "$venv/bin/python"
        choose_python() {{ python=$venv/bin/python; }}
        id() {{ echo 1000; }}; sudo() {{ return 1; }}
        setup test
        """, repository)
    assert done.returncode == 2
    assert "try: missing: lost; as root: apt-get install lost" in done.stderr.splitlines()
    asked = [line for line in (repository / "asked").read_text().splitlines() if line.startswith("-m pip --")]
    assert [words.split(" --quiet ")[1] for words in asked if " --quiet " in words] == installing(
        repository, "test", "spark", "docs")


def test_another_python_has_an_environment_of_its_own(repository: Path) -> None:
    """PYTHON chooses it; what Debian's packages bring is shared."""
    for name in ("setup.cfg", "pyproject.toml"):
        (repository / name).write_text("")
    (repository / "tools" / "packages" / "build.list").write_text("here  choose_python\n")
    (repository / "tools" / "packages" / "python.sh").write_text("exit 0\n")
    (repository / "python").symlink_to(sys.executable)
    (repository / "tools" / "setup.sh").write_text(SCRIPT.read_text())
    done = subprocess.run(["bash", "-c", ". tools/setup.sh --yes; setup; echo $venv"], cwd=repository, text=True,
                          capture_output=True, check=False, env={**os.environ, "PYTHON": f"{repository}/python"})
    assert (done.returncode, done.stdout) == (0, f"{repository}/.venv-python\n"), done.stderr
    assert (repository / ".venv-python/bin/python").resolve() == Path(sys.executable).resolve()
    assert (repository / ".venv-python/unpacked").resolve() == repository / ".venv/unpacked"


def test_a_python_that_is_too_old_or_not_there_is_refused() -> None:
    done = subprocess.run(["bash", "-c", f". {SCRIPT}", "tools/try"], text=True, capture_output=True, check=False,
                          env={**os.environ, "PYTHON": "/bin/false"})
    assert (done.returncode, done.stderr) == (2, "try: PYTHON=/bin/false is no Python of 3.11 or later\n")


def test_a_package_of_npm_is_unpacked_only_with_its_digest(tmp_path: Path) -> None:
    """What the registry sends another day under that name and version is not taken."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "axe.min.js").write_text("this")
    subprocess.run(["tar", "-C", tmp_path, "-czf", tmp_path / "sent.tgz", "package"], check=True)
    (tmp_path / "npm").write_text(f'#!/bin/sh\ncp {tmp_path}/sent.tgz ./try-1.0.tgz\n')
    (tmp_path / "npm").chmod(0o700)
    digest = hashlib.sha512((tmp_path / "sent.tgz").read_bytes()).hexdigest()

    def unpack(digest: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["bash", LISTS / "npm.sh", tmp_path / "there", "try", "1.0", digest], text=True,
                              env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True,
                              check=False)

    done = unpack("0" * 128)
    assert done.returncode != 0 and "FAILED" in done.stdout + done.stderr and not (tmp_path / "there").exists()
    assert unpack(digest).returncode == 0 and (tmp_path / "there" / "axe.min.js").read_text() == "this"


def test_what_of_npm_cannot_be_had_is_named(repository: Path) -> None:
    (repository / "tools" / "packages" / "npm.list").write_text("try  1.0  try.js  00\n")
    (repository / "tools" / "packages" / "npm.sh").write_text("exit 1\n")
    done = bash("npm_packages", repository)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "try: could not unpack try 1.0 of the npm registry"


@pytest.mark.parametrize("name", ["build", "test"])
def test_the_lists_name_packages_and_commands(name: str) -> None:
    lines = [line for line in (LISTS / f"{name}.list").read_text().splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        package, command = line.split(maxsplit=1)
        assert package.replace("-", "").replace(".", "").isalnum() and command
    done = bash(f"python=python3; look_for_missing {name}; echo ${{#missing[@]}}", SCRIPT.parents[1])
    assert done.stdout == "0\n"


def test_what_pip_installs_has_no_benchmarks() -> None:
    root = SCRIPT.parents[1]
    found = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = {package for where in found["where"] for package in find_packages(
        str(root / where), include=found["include"], exclude=found["exclude"])}
    assert packages >= {"tools.cli", "tools.commands", "store", "imap.wire", "onecopy"}
    assert not [package for package in packages if "benchmarks" in package or package.startswith("tests")]
    assert "tools.benchmarks" in find_packages(str(root))


def test_nothing_that_is_installed_needs_the_benchmarks() -> None:
    root = SCRIPT.parents[1]
    assert not [path for folder in ("mboxlist", "store", "imap", "pop3", "lmtp", "tools") for path in
                (root / folder).rglob("*.py") if "benchmarks" not in path.parts and "tools.benchmarks" in
                path.read_text()]


# Pinned Python packages

DIGEST = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def pinned(name: str) -> dict[str, str]:
    """The packages of a list and their versions."""
    found, digests = dict[str, str](), 0
    lines = (LISTS / f"{name}.lock").read_text().splitlines()
    for line in [*lines[1:], "end==0"]:
        if DIGEST.fullmatch(line):
            digests += 1
            continue
        assert digests or not found, f"{name}.lock: {list(found)[-1]} has no digest"
        match = re.fullmatch(r"([a-z0-9-]+)==([0-9][\w.+!]*)( ; [^:]+)?(?: \\)?", line)
        assert match, f"{name}.lock: {line}"
        found[match[1]], digests = match[2], 0
    found.pop("end")
    return found


@pytest.mark.parametrize(("section", "key", "lists"), [
    ("options", "install_requires", ["runtime"]), ("options.extras_require", "test", ["runtime", "test"]),
    ("options.extras_require", "spark", ["runtime", "test", "spark"]),
    ("options.extras_require", "docs", ["runtime", "test", "docs"])])
def test_the_lists_have_what_the_package_asks_for(section: str, key: str, lists: list[str]) -> None:
    """tools/packages/lock.sh writes them again."""
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg")
    versions = {name: version for each in lists for name, version in pinned(each).items()}
    for requirement in map(Requirement, parser[section][key].split("\n")[1:]):
        name = canonicalize_name(requirement.name)
        assert name in versions, f"{requirement}: tools/packages/lock.sh"
        assert requirement.specifier.contains(versions[name]), f"{requirement}: tools/packages/lock.sh"


def test_no_package_is_in_two_lists_and_no_list_names_a_host() -> None:
    names = [name for each in ("runtime", "test", "spark", "docs") for name in pinned(each)]
    assert len(names) == len(set(names)) > 40
    assert set(pinned("build")) >= {"setuptools", "wheel"}
    assert all("//" not in path.read_text() for path in LISTS.glob("*.lock"))


def test_an_installation_from_other_files_is_refused(tmp_path: Path) -> None:
    """By pip itself: a file with another digest than the list names is not installed."""
    folder, lists = tmp_path / "files", tmp_path / "lists"
    folder.mkdir()
    lists.mkdir()
    (folder / "wheel-0.48.0-py3-none-any.whl").write_bytes(b"not the file that was looked at")
    shutil.copy(LISTS / "python.sh", lists)
    (lists / "build.lock").write_text(f"wheel==0.48.0 --hash=sha256:{'0' * 64}\n")
    (lists / "runtime.lock").write_text("")
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(sys.executable)
    done = subprocess.run(["bash", lists / "python.sh", tmp_path / "venv"], capture_output=True, text=True, check=False,
                          env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_TARGET":
                               str(tmp_path / "target"), "PIP_CONFIG_FILE": os.devnull})
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "target").exists()


def test_nothing_that_was_planted_is_opened_for_the_lock(repository: Path, tmp_path: Path) -> None:
    (repository / "victim").write_text("kept")
    (repository / ".setup.lock").symlink_to(repository / "victim")
    done = bash("virtual_environment() { :; }; python_packages() { :; }; system_packages() { :; }; setup", repository)
    assert done.returncode == 0 and (repository / "victim").read_text() == "kept"


def test_where_all_may_write_nothing_is_set_up(repository: Path) -> None:
    repository.chmod(0o777)
    done = bash("virtual_environment() { echo never; }; setup", repository)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (f"try: every user can write to {repository}, and so decide what runs here: "
                           f"chmod o-w {repository}\n")


@pytest.mark.long
def test_a_package_is_unpacked_though_it_is_installed(tmp_path: Path) -> None:
    """Who has Dovecot's servers installed runs the tests with those of the folder. The archive is one of our own: no
    other host is asked."""
    name, made, archive = "hostname", tmp_path / "made", tmp_path / "archive"
    known = subprocess.run(["dpkg", "-s", name], check=True, capture_output=True, text=True).stdout
    control = re.sub("^Status: .*\n", "", known, flags=re.MULTILINE)        # alike, or apt takes it for another one
    for path, text in (("DEBIAN/control", control), ("bin/hostname", "ours")):
        (made / path).parent.mkdir(parents=True)
        (made / path).write_text(text)
    archive.mkdir()
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", made, archive / "made.deb"], check=True,
                   capture_output=True)
    octets = (archive / "made.deb").read_bytes()
    (archive / "Packages").write_text(f"{control}Filename: ./made.deb\nSize: {len(octets)}\n"
                                      f"SHA256: {hashlib.sha256(octets).hexdigest()}\n")
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] copy:{archive} ./\n")
    (tmp_path / "apt.conf").write_text(f'Dir::Etc::sourcelist "{tmp_path}/sources.list"; Dir::Etc::sourceparts "-";\n')
    done = subprocess.run(["bash", LISTS / "unpack.sh", tmp_path / "folder", name], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=180, check=False,
                          env={**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "folder" / "bin" / "hostname").read_text() == "ours"
