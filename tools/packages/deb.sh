#!/bin/bash
# deb.sh COPY MADE: build the Debian package of the working copy COPY into the folder MADE, for the Debian that this machine
# runs and for its Python.
#
# Twisted and others are older in Debian than onecopy needs, and berkeleydb is not in it at all; so what tools/packages/
# runtime.lock names comes along, in a virtual environment in /usr/lib/onecopy, on Debian's own interpreter. A virtual
# environment, files beside it and three short scripts need no debhelper: dpkg-deb, which every Debian has, packs them.
set -euo pipefail

copy=$1 made=$2
here=$copy/tools/packages/debian
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
# pip compiles nothing (it wants that said so), since it would note the folder of the build. What a debugger reads is not made: it
# would be stripped.
export LC_ALL=C.UTF-8 PIP_NO_COMPILE=0 PYTHONDONTWRITEBYTECODE=1 CFLAGS=-g0
tree=$work/tree
home=$tree/usr/lib/onecopy
python=$(readlink -f /usr/bin/python3)
. /etc/os-release
number=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' "$copy/store/__init__.py")
version=$number-1+deb$VERSION_ID
maintainer="${DEBFULLNAME:-onecopy} <${DEBEMAIL:-onecopy@localhost}>"     # who builds it

# The program. What installed it stays behind, and the tests of what it needs.
"$python" -m venv "$home"
bash "$copy/tools/packages/python.sh" "$home"
packages=$(echo "$home"/lib/python3.*/site-packages)
rm -rf "$packages"/{pip,pip-*,setuptools,setuptools-*,wheel,wheel-*,_distutils_hack,distutils-precedence.pth} \
    "$home"/{include,share,lib64}
find "$packages" -type d \( -name test -o -name tests \) -prune -exec rm -r {} +
find "$home/bin" -type f ! -name onecopy -delete
find "$home/bin" -type l -delete
ln -s "$python" "$home/bin/python3"
sed -i '1c#!/usr/lib/onecopy/bin/python3' "$home/bin/onecopy"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' \
    "$("$python" -c 'import platform; print(platform.python_version())')" >"$home/pyvenv.cfg"
find "$home" -name '*.so*' -type f -exec chmod 644 {} +
strip --strip-unneeded "$packages"/berkeleydb/*.so
"$python" -m compileall -q -j 0 -s "$tree" "$packages"
mkdir -p "$tree/usr/bin"
ln -s ../lib/onecopy/bin/onecopy "$tree/usr/bin/onecopy"
"$home/bin/python3" -P "$copy/tools/packages/manualfiles.py" "$tree/usr/share" zsh/vendor-completions
ln -sfn "../../../bin/${python##*/}" "$home/bin/python3"        # as Debian has links: not to a file of where it was built

# What a system wants to have beside it.
install -D -m 644 "$here/onecopy.toml" "$tree/etc/onecopy/onecopy.toml"
install -D -m 644 "$here/onecopy.logrotate" "$tree/etc/logrotate.d/onecopy"
install -D -m 644 "$here/onecopy.apparmor" "$tree/etc/apparmor.d/onecopy"
install -D -m 644 "$here/onecopy.overrides" "$tree/usr/share/lintian/overrides/onecopy"
unit=$tree/usr/lib/systemd/system/onecopy.service
[ "$VERSION_ID" -gt 12 ] || unit=$tree/lib/systemd/system/onecopy.service       # Debian 12 has its units there
mkdir -p "${unit%/*}"
sed 's#^ExecStart=/opt/onecopy/bin/#ExecStart=/usr/bin/#; 1s#/etc/systemd/system/##' "$copy/docs/deploy/onecopy.service" >"$unit"
for beside in onecopy-standby onecopy-reading; do
    sed 's#^ExecStart=/opt/onecopy/bin/#ExecStart=/usr/bin/#; 1s#/etc/systemd/system/##' \
        "$copy/docs/deploy/$beside.service" >"${unit%/*}/$beside.service"
done
install -D -m 755 "$here/../ocf/onecopy" "$tree/usr/lib/ocf/resource.d/onecopy/onecopy"
doc=$tree/usr/share/doc/onecopy
mkdir -p "$doc"
cp -a "$copy/docs" "$doc/docs"
find "$doc" -type f -exec chmod 644 {} +
cp "$here/copyright" "$doc/"
gzip -9nc "$copy/CHANGELOG.md" >"$doc/changelog.gz"
gzip -9nc >"$doc/changelog.Debian.gz" <<TEXT
onecopy ($version) stable; urgency=medium

  * Version $number; changelog.gz says what is new in it.

 -- $maintainer  $(date -R -u -r "$copy/CHANGELOG.md")
TEXT
find "$tree/usr/share/man" -type f -exec gzip -9n {} +

# The libraries that programs in it are linked with, by the packages which bring them.
libraries=$(find "$home" -name '*.so*' -type f -exec ldd {} + | awk '$2 == "=>" && $3 ~ "^/(usr/)?lib" { print $3 }' | sort -u)
depends=$(for library in $libraries; do
    dpkg -S "$(readlink -f "$library")" "/${library#/usr/}" "$library" 2>/dev/null || true
done | cut -d: -f1 | sort -u | paste -sd, | sed 's/,/, /g')
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')

mkdir "$tree/DEBIAN"
install -m 755 "$here"/{postinst,prerm,postrm} "$tree/DEBIAN/"
(cd "$tree" && find etc -type f -printf '/%p\n' | sort >DEBIAN/conffiles
 find . \( -path ./DEBIAN -o -path ./etc \) -prune -o -type f -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
cat >"$tree/DEBIAN/control" <<TEXT
Package: onecopy
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$tree" | cut -f1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))), adduser, init-system-helpers (>= 1.52), $depends
Recommends: ca-certificates, logrotate
Suggests: postfix, nginx, apparmor
Section: mail
Priority: optional
Description: single-copy mail message store with IMAP4, POP3 and LMTP servers
 A relay such as Postfix hands a message to onecopy once, by LMTP. onecopy
 writes the message to disk once, however many people it is for, and keeps
 flags, mailboxes and quotas of all of them in Berkeley DB. Mail programs read
 it by IMAP and POP3.
TEXT
dpkg-deb --root-owner-group -Zzstd --build "$tree" "$made" >&2
