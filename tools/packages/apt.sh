#!/bin/bash
# apt.sh PACKAGE...: install Debian packages without questions and without starting a daemon. Runs as root.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 LC_ALL=C

exec 8>/run/lock/onecopy-apt.lock
flock 8

policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

# Without this the package would make a configuration with which Postfix starts at the next boot.
for package in "$@"; do
    if [ "$package" = postfix ]; then
        echo 'postfix postfix/main_mailer_type select No configuration' | debconf-set-selections
    fi
done

apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 update 8>&-
apt-get -qq -y -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold \
    install --no-install-recommends "$@" 8>&-
