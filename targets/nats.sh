#!/usr/bin/env bash
# nats-server without clustering or persistence. MAX_CONNECTIONS, USER_NAME and PASSWORD are its own settings.
# usage: nats.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

install() { need nats-server nats-server; }

launch() {
    local port=$1 dir=$2 login=
    [ -z "${PASSWORD:-}" ] || login="authorization { user: \"${USER_NAME:-plimsoll}\", password: \"$PASSWORD\" }"
    cat >"$dir/nats.conf" <<CONF
listen: 127.0.0.1:$port
max_connections: ${MAX_CONNECTIONS:-100000}
$login
CONF
    exec nats-server -c "$dir/nats.conf"
}

health() { [[ $(ask "$1" '') == "INFO {"* ]]; }

main "$@"
