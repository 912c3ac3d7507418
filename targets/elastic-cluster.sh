#!/usr/bin/env bash
# An elastic cluster of PostgreSQL, as clouds offer it: any node takes clients, and finds rows on the others by itself.
# usage: elastic-cluster.sh start PORT | restart PORT | stop PORT | health PORT | status PORT | install
# PORT is HAProxy before the nodes, PORT+1 HAProxy before one PgBouncer per node; node N is at PORT+10+N, its
# PgBouncer at PORT+20+N. User and database are bench, without a password; the superuser is postgres.
# NODES (2 or 4) share pgbench's accounts by the hash of aid; SCALE is pgbench's; MAXCONN the nodes' max_connections;
# POOL and MAXCLIENT the poolers' default_pool_size and max_client_conn, where POOL times NODES must fit MAXCONN; BID_INDEX=0 leaves out the index on bid, as
# pgbench does. Give the same ones to each call.
#
# Where PostgreSQL has the extension citus, that spreads the rows. No package index that the tests can reach has it, so
# that way is written after its documentation and was never run. Else postgres_fdw does: each node has one partition
# and reaches the others as foreign tables, for which each session keeps a connection to each other node.
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
for directory in /usr/lib/postgresql/*/bin /usr/sbin; do PATH=$PATH:$directory; done
# shellcheck source=targets/elastic-cluster/tables.sh
source "$targets_dir/elastic-cluster/tables.sh"

NODES=${NODES:-4} SCALE=${SCALE:-10} MAXCONN=${MAXCONN:-400} POOL=${POOL:-50} MAXCLIENT=${MAXCLIENT:-2000}
BID_INDEX=${BID_INDEX:-1}
export PGCONNECT_TIMEOUT=5
# a cluster of ten million rows is not loaded in the half minute that others need
ready_seconds=120

node_port() { echo $(($1 + 10 + $2)); }
pooler_port() { echo $(($1 + 20 + $2)); }
nodes() { seq 1 "$NODES"; }
query() { psql -XAtq -v ON_ERROR_STOP=1 -h 127.0.0.1 -p "$1" -U "$2" "$3"; }
has_citus() { compgen -G '/usr/share/postgresql/*/extension/citus.control' >/dev/null; }

install() {
    need postgres postgresql psql postgresql-client pgbouncer pgbouncer haproxy haproxy setpriv util-linux
}

# Neither PostgreSQL nor PgBouncer runs as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then
        exec setpriv --reuid postgres --regid postgres --init-groups "$@"
    fi
    exec "$@"
}

node_settings() {
    cat <<CONF
max_connections = $MAXCONN
shared_buffers = 256MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
jit = off
max_parallel_workers_per_gather = 0
enable_partitionwise_aggregate = on
log_min_messages = fatal
CONF
    if has_citus; then echo "shared_preload_libraries = 'citus'"; fi
}

node() {
    local port=$1 number=$2
    cd "node$number"
    as_postgres postgres -D . -c listen_addresses=127.0.0.1 -c "port=$(node_port "$port" "$number")" \
        -c unix_socket_directories=
}

wait_for() {
    local until=$((SECONDS + 30))
    until echo 'SELECT 1' | query "$1" postgres postgres >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.1
    done
}

prepare() {
    local port=$1 dir=$2 number pids=() loads=() pid
    [ "$NODES" = 2 ] || [ "$NODES" = 4 ] || { echo "NODES=$NODES: 2 or 4"; return 1; }
    if [ "$(id -u)" = 0 ]; then chown postgres: "$dir"; fi
    cd "$dir"
    (as_postgres initdb --pgdata node1 --username postgres --auth trust --encoding UTF8 --locale C --no-sync)
    for number in $(nodes); do
        [ "$number" = 1 ] || cp -a node1 "node$number"
    done
    for number in $(nodes); do
        node_settings >"node$number/postgresql.conf"
        node "$port" "$number" &
        pids+=($!)
    done
    for number in $(nodes); do
        wait_for "$(node_port "$port" "$number")"
        printf 'CREATE ROLE bench LOGIN;\nCREATE DATABASE bench OWNER bench;\n' |
            query "$(node_port "$port" "$number")" postgres postgres
    done
    if has_citus; then
        for number in $(nodes); do
            echo 'CREATE EXTENSION citus' | query "$(node_port "$port" "$number")" postgres bench
        done
        citus_tables "$port" | query "$(node_port "$port" 1)" postgres bench
    else
        for number in $(nodes); do
            node_tables "$port" "$number" | query "$(node_port "$port" "$number")" postgres bench &
            loads+=($!)
        done
        for pid in "${loads[@]}"; do wait "$pid"; done
    fi
    kill -INT "${pids[@]}"
    wait "${pids[@]}"
}

# stats_users may read PgBouncer's own views. A connection to the node that nobody uses is closed after a second, and
# one that was refused is tried again after one, so that a measurement leaves nothing to the next.
pooler_settings() {
    local port=$1 number=$2
    cat <<CONF
[databases]
bench = host=127.0.0.1 port=$(node_port "$port" "$number") dbname=bench
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $(pooler_port "$port" "$number")
unix_socket_dir =
listen_backlog = 4096
auth_type = trust
auth_file = users
stats_users = bench
pool_mode = transaction
default_pool_size = $POOL
max_client_conn = $MAXCLIENT
server_idle_timeout = 1
server_login_retry = 1
log_connections = 0
log_disconnections = 0
CONF
}

# The check before a pooler asks the node behind it: PgBouncer takes clients of a node that is dead, and lets them
# wait. It logs in as the superuser, who has places of its own where clients have taken all others.
proxy_settings() {
    local port=$1 number way front
    cat <<CONF
global
    maxconn $(($(ulimit -n) / 2 - 200))
defaults
    mode tcp
    balance leastconn
    retries 3
    option redispatch
    option pgsql-check user postgres
    timeout connect 5s
    timeout client 1h
    timeout server 1h
CONF
    for way in direct pooled; do
        front=$port
        [ $way = direct ] || front=$((port + 1))
        printf 'listen %s\n    bind 127.0.0.1:%s backlog 4096\n' $way "$front"
        for number in $(nodes); do
            front=$(node_port "$port" "$number")
            [ $way = direct ] || front=$(pooler_port "$port" "$number")
            printf '    server node%s 127.0.0.1:%s check port %s inter 2s fall 2 rise 1\n' \
                "$number" "$front" "$(node_port "$port" "$number")"
        done
    done
}

# Stays, with all of them as its children; ends them when it is told to end.
launch() {
    local port=$1 dir=$2 number nodes=() others=()
    cd "$dir"
    printf '"postgres" ""\n"bench" ""\n' >users
    for number in $(nodes); do
        node_settings >"node$number/postgresql.conf"
        node "$port" "$number" &
        nodes+=($!)
        pooler_settings "$port" "$number" >"pooler$number.ini"
        (as_postgres pgbouncer "pooler$number.ini") &
        others+=($!)
    done
    proxy_settings "$port" >haproxy.cfg
    (as_postgres haproxy -db -f haproxy.cfg) &
    others+=($!)
    # at once: nothing of a laboratory is kept, and a thousand sessions are not asked for their consent
    trap 'kill -TERM "${others[@]}" 2>/dev/null; kill -QUIT "${nodes[@]}" 2>/dev/null; wait; exit 0' TERM
    # one that ends by itself ends all
    wait -n || true
    kill -TERM $BASHPID
    wait
}

health() {
    local rows=$((SCALE * 100000)) way
    for way in "$1" $(($1 + 1)); do
        [ "$(echo 'SELECT count(*) FROM pgbench_accounts' | query "$way" bench bench)" = $rows ] || return 1
    done
}

# Who is connected to each node.
status() {
    local number
    for number in $(nodes); do
        echo "node$number:" "$(echo "SELECT count(*) || ' sessions, '
            || count(*) FILTER (WHERE application_name = 'postgres_fdw' OR application_name LIKE 'citus\\_internal%')
            || ' of them from other nodes, ' || count(*) FILTER (WHERE state = 'active') || ' at work'
            FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()" |
            query "$(node_port "$1" "$number")" postgres postgres)"
    done
}

if [ "${1:-}" = status ] && [ $# = 2 ]; then
    status "$2"
else
    main "$@"
fi
