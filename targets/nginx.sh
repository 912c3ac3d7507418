#!/usr/bin/env bash
# nginx with HTTP keep-alive. WORKERS, WORKER_CONNECTIONS and KEEPALIVE_TIMEOUT are its own settings.
# usage: nginx.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

install() { need nginx nginx-light; }

launch() {
    local port=$1 dir=$2 user=
    # the master is root only where root started it; its workers need a user that exists
    [ "$(id -u)" != 0 ] || user="user $(id -un);"
    cat >"$dir/nginx.conf" <<CONF
$user
daemon off;
pid $dir/nginx.pid;
error_log $dir/error.log;
worker_processes ${WORKERS:-2};
worker_rlimit_nofile 16384;
events {
    worker_connections ${WORKER_CONNECTIONS:-8192};
    multi_accept on;
}
http {
    access_log off;
    # an idle connection is held for an hour, and as many requests as anyone likes
    keepalive_timeout ${KEEPALIVE_TIMEOUT:-3600s};
    keepalive_requests 1000000000;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
    server {
        listen 127.0.0.1:$port backlog=4096 reuseport;
        location / { default_type text/plain; return 200 "ok\n"; }
    }
}
CONF
    exec nginx -e "$dir/error.log" -p "$dir" -c "$dir/nginx.conf"
}

health() { [[ $(ask "$1" 'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n') == "HTTP/1.1 200 "* ]]; }

main "$@"
