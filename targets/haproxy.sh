#!/usr/bin/env bash
# HAProxy that answers HTTP itself, with keep-alive. MAXCONN and TIMEOUT_CLIENT are its own settings.
# usage: haproxy.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

install() { need haproxy haproxy; }

launch() {
    local port=$1 dir=$2
    cat >"$dir/haproxy.cfg" <<CONF
global
    maxconn ${MAXCONN:-9000}
defaults
    mode http
    timeout client ${TIMEOUT_CLIENT:-1h}
    timeout http-keep-alive ${TIMEOUT_CLIENT:-1h}
    timeout http-request 1h
    timeout connect 5s
    timeout server 1h
frontend plimsoll
    bind 127.0.0.1:$port backlog 4096
    maxconn ${MAXCONN:-9000}
    http-request return status 200 content-type text/plain string "ok"
CONF
    exec haproxy -db -f "$dir/haproxy.cfg"
}

health() { [[ $(ask "$1" 'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n') == "HTTP/1."*" 200 "* ]]; }

main "$@"
