#!/bin/bash
# python.sh [--editable] VENV [LIST...]: install onecopy into a virtual environment, with the Python packages that it
# needs and those of the lists (test, traces, spark): the very versions and files that LIST.lock names, built by what
# build.lock names. With --editable the program runs from the repository.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
editable=()
if [ "$1" = --editable ]; then
    editable=(--editable)
    shift
fi
venv=$1
shift

install() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet "$@"
}

locks=(--requirement "$here/runtime.lock")
for list in "$@"; do
    locks+=(--requirement "$here/$list.lock")
done
install --require-hashes --requirement "$here/build.lock"
install --require-hashes --no-build-isolation "${locks[@]}"
install --no-deps --no-build-isolation "${editable[@]}" "$(readlink -f "$here/../..")"
