#!/bin/bash
# lock.sh [--upgrade]: write again which versions of Python packages are installed, with the digests of their files, from
# what setup.cfg asks for. Versions that were chosen before and still fit stay, unless --upgrade is given.
#
# build.lock has what builds packages, runtime.lock what onecopy needs, and test.lock, traces.lock, spark.lock and docs.lock
# what the extras of these names need besides. They hold for every Python from 3.11 on and for every machine.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
root=$here/../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip --disable-pip-version-check --quiet install uv
index=$("$work/venv/bin/python" -m pip config get global.index-url 2>/dev/null || true)

# The packages of a list, pinned, in the order of their names.
compile() {
    local list=$1
    shift
    cat "$here"/*.lock 2>/dev/null >"$work/$list" || true
    "$work/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --no-annotate --no-emit-index-url --no-emit-find-links ${index:+--index-url "$index"} "${upgrade[@]}" \
        --output-file "$work/$list" "$@"
}

# What of the second list the first one has not; a package begins a line, its digests follow indented.
besides() {
    awk -v known="$1" 'BEGIN { while ((getline line <known) > 0) if (line ~ /^[^ #]/) { split(line, part, "=="); had[part[1]] } }
        /^[^ #]/ { split($0, part, "=="); shown = !(part[1] in had) } shown' "$2"
}

upgrade=("$@")
printf 'setuptools >= 64\nwheel\n' >"$work/build.in"
compile build.lock "$work/build.in"
cd "$root"
compile runtime.lock setup.cfg
compile whole.lock --extra test --extra spark --constraint "$work/runtime.lock" setup.cfg
compile tested.lock --extra test --constraint "$work/whole.lock" setup.cfg
compile traced.lock --extra traces --constraint "$work/tested.lock" setup.cfg
compile documented.lock --extra docs --constraint "$work/whole.lock" setup.cfg
besides "$work/runtime.lock" "$work/tested.lock" >"$work/test.lock"
besides "$work/runtime.lock" "$work/traced.lock" >"$work/traces.lock"
besides "$work/tested.lock" "$work/whole.lock" >"$work/spark.lock"
besides "$work/tested.lock" "$work/documented.lock" >"$work/docs.lock"
for list in build runtime test traces spark docs; do
    { echo "# Written by tools/packages/lock.sh from setup.cfg: not to be changed by hand."; cat "$work/$list.lock"; } \
        >"$here/$list.lock"
done
