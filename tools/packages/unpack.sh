#!/bin/bash
# unpack.sh FOLDER PACKAGE...: unpack Debian packages into FOLDER, installed or not, with all they need that is not
# installed. Nothing is installed, so they may exclude what is. Root is not needed: the lists of packages are fetched into
# a folder, too.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

folder=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work" "$folder.part"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"

# The user _apt could not write there.
apt=(apt-get -qq -o Acquire::Retries=5 -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache"
     -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)
"${apt[@]}" update
"${apt[@]}" -y --download-only --reinstall --no-install-recommends install "$@"

rm -rf "$folder.part"
mkdir -p "$folder.part"
for file in "$work"/cache/archives/*.deb; do
    dpkg-deb -x "$file" "$folder.part"
done
# Where the system has /lib as /usr/lib, a package may still say /lib.
if [ -d "$folder.part/lib" ]; then
    cp -a "$folder.part/lib/." "$folder.part/usr/lib/"
fi
# Nobody but the tests starts these programs, and they do it as root.
chmod -R u-s,g-s "$folder.part"
rm -rf "$folder"
mv "$folder.part" "$folder"
