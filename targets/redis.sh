#!/usr/bin/env bash
# redis-server without persistence, as many clients as the descriptor limit allows, or MAXCLIENTS; they log in with
# PASSWORD, if it is set.
# usage: redis.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

install() { need redis-server redis-server; }

launch() {
    local port=$1 dir=$2 clients
    clients=$(ulimit -n)
    # it keeps 32 descriptors for itself
    if [ "$clients" = unlimited ] || [ "$clients" -gt 100032 ]; then clients=100032; fi
    exec redis-server --bind 127.0.0.1 --port "$port" --dir "$dir" --daemonize no --save '' --appendonly no \
        --maxclients "${MAXCLIENTS:-$((clients - 32))}" --tcp-backlog 4096 --timeout 0 --requirepass "${PASSWORD:-}"
}

health() { [[ $(ask "$1" 'PING\r\n') =~ ^(\+PONG|-NOAUTH) ]]; }

main "$@"
