#!/bin/bash
# root.sh FOLDER SUITE PACKAGE...: a root folder of Debian of that suite, with these packages, in FOLDER. Nothing on this
# machine is changed. Root must run it, since the files belong to root and to users of that system.
set -euo pipefail
export LC_ALL=C

folder=$1 suite=$2
shift 2
trap 'rm -rf "$folder.part"' EXIT
rm -rf "$folder.part"
wanted=$*
nice mmdebstrap --quiet --mode=root --variant=apt --include="${wanted// /,}" \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    "$suite" "$folder.part"
# The tests choose what is left out: what they install has its manual and its documentation.
rm -rf "$folder.part"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$folder.part"/dev/*
# Nobody but the tests enters it, and they are root there.
chmod -R u-s,g-s "$folder.part"
rm -rf "$folder"
mv "$folder.part" "$folder"
