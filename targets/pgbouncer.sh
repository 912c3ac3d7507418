#!/usr/bin/env bash
# PgBouncer, transaction pooling, before the PostgreSQL of postgres.sh at SERVER_PORT. One process.
# usage: pgbouncer.sh start PORT | restart PORT | stop PORT | health PORT | install
# AUTH is trust, plain, md5 or scram-sha-256 and must be what PostgreSQL has; MAX_CLIENT_CONN its own limit;
# POOL_SIZE how many connections to PostgreSQL it opens; STATS_USERS who may read its own views; PASSWORD is the
# password.
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

AUTH=${AUTH:-scram-sha-256}
export PGPASSWORD=${PASSWORD:-plimsoll} PGCONNECT_TIMEOUT=5

install() { need pgbouncer pgbouncer psql postgresql-client setpriv util-linux; }

launch() {
    local port=$1 dir=$2 secret=$PGPASSWORD
    if [ "$AUTH" = scram-sha-256 ]; then
        # what PostgreSQL itself keeps: it costs no more to check than there, and opens connections to it, too
        secret=$(psql -XAtq -h 127.0.0.1 -p "${SERVER_PORT:-5432}" -U postgres \
            -c "SELECT rolpassword FROM pg_authid WHERE rolname = 'plimsoll'" postgres)
    fi
    echo "\"plimsoll\" \"$secret\"" >"$dir/users"
    cat >"$dir/pgbouncer.ini" <<CONF
[databases]
plimsoll = host=127.0.0.1 port=${SERVER_PORT:-5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $port
unix_socket_dir =
auth_type = $AUTH
auth_file = $dir/users
stats_users = ${STATS_USERS:-}
pool_mode = transaction
default_pool_size = ${POOL_SIZE:-20}
max_client_conn = ${MAX_CLIENT_CONN:-5000}
listen_backlog = 4096
log_connections = 0
log_disconnections = 0
CONF
    if [ "$(id -u)" = 0 ]; then
        chown -R nobody "$dir"
        # it refuses to run as root
        exec setpriv --reuid nobody --clear-groups pgbouncer "$dir/pgbouncer.ini"
    fi
    exec pgbouncer "$dir/pgbouncer.ini"
}

health() { [ "$(psql -XAtq -h 127.0.0.1 -p "$1" -U plimsoll -c 'SELECT 1' plimsoll)" = 1 ]; }

main "$@"
