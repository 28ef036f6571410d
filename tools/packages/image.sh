#!/bin/bash
# image.sh DEB MADE [BASE]: a container image of that Debian package in the folder MADE, as `podman load` and `docker load`
# take it, built by buildah, podman or docker, whichever is there. BASE: the image to begin with, if not Debian's own.
set -euo pipefail

deb=$1 made=$2
here=$(dirname "$(readlink -f "$0")")/debian
number=$(dpkg-deb -f "$deb" Version)
base=${3:-docker.io/library/debian:${number##*+deb}}
number=${number%-*}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$deb" "$work/onecopy.deb"
cp "$here/Containerfile" "$work/"

name=localhost/onecopy:$number file=$made/onecopy-$number-image.tar
if command -v buildah >/dev/null; then
    buildah build --format docker --build-arg "BASE=$base" --tag "$name" "$work"
    buildah push "$name" "docker-archive:$file:$name"
elif command -v podman >/dev/null; then
    podman build --format docker --build-arg "BASE=$base" --tag "$name" "$work"
    podman save --format docker-archive --output "$file" "$name"
else
    docker build --build-arg "BASE=$base" --tag "$name" "$work"
    docker save --output "$file" "$name"
fi
