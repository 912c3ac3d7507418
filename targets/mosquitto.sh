#!/usr/bin/env bash
# mosquitto without persistence. MAX_CONNECTIONS, USER_NAME and PASSWORD are its own settings.
# usage: mosquitto.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/sbin

install() { need mosquitto mosquitto; }

launch() {
    local port=$1 dir=$2 login="allow_anonymous true"
    if [ -n "${PASSWORD:-}" ]; then
        (umask 077 && : >"$dir/passwords")
        mosquitto_passwd -b "$dir/passwords" "${USER_NAME:-plimsoll}" "$PASSWORD"
        login="password_file $dir/passwords"
    fi
    cat >"$dir/mosquitto.conf" <<CONF
listener $port 127.0.0.1
max_connections ${MAX_CONNECTIONS:--1}
persistence false
log_type error
user $(id -un)
$login
CONF
    exec mosquitto -c "$dir/mosquitto.conf"
}

# an MQTT 3.1.1 CONNECT as nobody in particular; whatever it answers, a CONNACK starts so
health() {
    local first
    first=$({
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf '\x10\x0c\0\4MQTT\4\2\0\0\0\0' >&3
        timeout 2 head -c 1 <&3
    } 2>/dev/null) || return 1
    [ "$first" = ' ' ]
}

main "$@"
