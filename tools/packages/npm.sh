#!/bin/bash
# npm.sh FOLDER PACKAGE VERSION DIGEST: unpack a package of the npm registry into FOLDER, if its archive has that SHA-512
# digest. Nothing else that it needs is fetched, and nothing of it is run.
set -euo pipefail

folder=$1 package=$2 version=$3 digest=$4
work=$(mktemp -d)
trap 'rm -rf "$work" "$folder.part"' EXIT
cd "$work"
npm pack --silent --ignore-scripts "$package@$version" >/dev/null
echo "$digest  $package-$version.tgz" | sha512sum --check --quiet
rm -rf "$folder.part"
mkdir -p "$folder.part"
tar -xzf "$package-$version.tgz" -C "$folder.part" --strip-components 1 --no-same-owner
rm -rf "$folder"
mv "$folder.part" "$folder"
