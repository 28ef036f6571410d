#!/bin/sh
# docs/deploy/secrets.sh: what the machines of compose.yaml need to trust each other, made anew in docs/deploy/secrets:
# an authority and one certificate for all, and the passwords of docs/ldap/sample.ldif.
set -eu
umask 077
cd "$(dirname "$(readlink -f "$0")")"
mkdir -p secrets/tls
cd secrets

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=onecopy example authority" \
    -keyout ca.key -out tls/ca.pem 2>openssl.log
names=DNS:mail.example.org
for name in ldap1 ldap2 mail1 mail2 proxy1 proxy2 relay1 relay2; do
    names=$names,DNS:$name.example.org
done
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=mail.example.org \
    -keyout tls/key.pem -out request.pem 2>>openssl.log
printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" >extensions
openssl x509 -req -in request.pem -CA tls/ca.pem -CAkey ca.key -CAcreateserial -days 825 -extfile extensions \
    -out tls/certificate.pem 2>>openssl.log
rm -f request.pem extensions openssl.log

printf 'secret\n' >directory
printf 'secret\n' >directory-write
# What nginx must say when it asks the front, and the line with which it does.
openssl rand -base64 32 >front
sed 's/.*/auth_http_header Auth-Key "&";/' front >onecopy-secret.conf
# Read by the users that the containers run as.
chmod 755 . tls
chmod 644 tls/* directory directory-write front onecopy-secret.conf
chmod 600 ca.key
