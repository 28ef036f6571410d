#!/bin/sh
# tls.sh FOLDER HOST...: make an authority of your own in FOLDER, if there is none, and for each host a key with a
# certificate for a year: ca.pem, which clients are given, ca-key.pem, which stays secret, HOST.pem and HOST-key.pem. In
# the place of all that take the certificates that you have.
set -eu
umask 077
folder=$1
shift
mkdir -p "$folder"
cd "$folder"
if [ ! -e ca-key.pem ]; then
    openssl req -x509 -newkey rsa:3072 -nodes -days 3650 -subj "/CN=directory authority" \
        -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign \
        -keyout ca-key.pem -out ca.pem
fi
for host; do
    openssl req -newkey rsa:3072 -nodes -subj "/CN=$host" -keyout "$host-key.pem" -out "$host.csr"
    printf 'subjectAltName=DNS:%s\nbasicConstraints=CA:false\nextendedKeyUsage=serverAuth\n' "$host" >"$host.ext"
    openssl x509 -req -in "$host.csr" -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 365 -extfile "$host.ext" \
        -out "$host.pem"
    rm "$host.csr" "$host.ext"
done
chmod 644 ./*.pem
chmod 600 ./*-key.pem
