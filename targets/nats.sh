#!/usr/bin/env bash
# nats-server without clustering or persistence. MAX_CONNECTIONS, USER_NAME and PASSWORD are its own settings; TLS=required
# has it ask for TLS after its INFO, with a certificate of its own (server.crt), and TLS=allowed offers that.
# usage: nats.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

install() { need nats-server nats-server openssl openssl; }

prepare() {
    cd "$2"
    # not the usual self-signed one, which is an authority and therefore nobody's certificate
    printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.conf
    openssl req -x509 -config openssl.conf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.crt
}

launch() {
    local port=$1 dir=$2 login= tls=
    [ -z "${PASSWORD:-}" ] || login="authorization { user: \"${USER_NAME:-plimsoll}\", password: \"$PASSWORD\" }"
    [ -z "${TLS:-}" ] || tls="tls { cert_file: \"$dir/server.crt\", key_file: \"$dir/server.key\" }"
    [ "${TLS:-}" != allowed ] || tls="$tls
allow_non_tls: true"
    cat >"$dir/nats.conf" <<CONF
listen: 127.0.0.1:$port
max_connections: ${MAX_CONNECTIONS:-100000}
$login
$tls
CONF
    exec nats-server -c "$dir/nats.conf"
}

health() { [[ $(ask "$1" '') == "INFO {"* ]]; }

main "$@"
