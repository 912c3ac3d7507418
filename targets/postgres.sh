#!/usr/bin/env bash
# PostgreSQL with one user, plimsoll, and one database of that name. A process for each connection: 1.2 MB and more.
# usage: postgres.sh start PORT | restart PORT | stop PORT | health PORT | install
# AUTH is trust, password, md5 or scram-sha-256; MAX_CONNECTIONS its own limit, 3 of which only the superuser may
# have (postgres, with the same password); SSL=on has it speak TLS too; PASSWORD is the password.
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
for directory in /usr/lib/postgresql/*/bin; do PATH=$PATH:$directory; done

AUTH=${AUTH:-scram-sha-256}
export PGPASSWORD=${PASSWORD:-plimsoll} PGCONNECT_TIMEOUT=5

install() { need postgres postgresql psql postgresql-client setpriv util-linux openssl openssl; }

# It refuses to run as root.
as_postgres() {
    if [ "$(id -u)" = 0 ]; then
        exec setpriv --reuid postgres --regid postgres --init-groups "$@"
    fi
    exec "$@"
}

prepare() {
    local dir=$2
    mkdir "$dir/data"
    echo "$PGPASSWORD" >"$dir/password"
    if [ "$(id -u)" = 0 ]; then chown -R postgres: "$dir"; fi
    cd "$dir"
    (as_postgres initdb --pgdata data --username postgres --pwfile password --auth "$AUTH" --encoding UTF8 \
        --locale C --no-sync)
    echo "CREATE ROLE plimsoll LOGIN PASSWORD '$PGPASSWORD'; CREATE DATABASE plimsoll OWNER plimsoll;" >setup.sql
    # one statement to a line: CREATE DATABASE must stand alone
    sed -i 's/; CREATE/;\nCREATE/' setup.sql
    (as_postgres postgres --single -D data postgres) <setup.sql
    # not the usual self-signed one, which is an authority and therefore nobody's certificate
    printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.conf
    openssl req -x509 -config openssl.conf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout data/server.key -out server.crt
    cp server.crt data/
    if [ "$(id -u)" = 0 ]; then chown postgres: data/server.*; fi
    chmod 600 data/server.key
}

launch() {
    local port=$1 dir=$2
    cd "$dir"
    # on the command line stands what ALTER SYSTEM must not change
    cat >data/postgresql.conf <<CONF
max_connections = ${MAX_CONNECTIONS:-200}
shared_buffers = 16MB
fsync = off
autovacuum = off
jit = off
log_min_messages = fatal
ssl = ${SSL:-off}
CONF
    as_postgres postgres -D data -c listen_addresses=127.0.0.1 -c "port=$port" -c unix_socket_directories=
}

health() { [ "$(psql -XAtq -h 127.0.0.1 -p "$1" -U plimsoll -c 'SELECT 1' plimsoll)" = 1 ]; }

main "$@"
