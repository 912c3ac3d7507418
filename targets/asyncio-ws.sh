#!/usr/bin/env bash
# A WebSocket echo server on Python's asyncio, with the `websockets` package and its own defaults.
# usage: asyncio-ws.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

version=17.4
venv=$state_root/websockets-$version

install() {
    [ -x "$venv/done/python" ] && return
    need python3 python3
    rm -rf "$venv"
    mkdir -p "$state_root"
    if ! python3 -m venv "$venv" >"$state_root/venv.log" 2>&1; then
        # Debian keeps the venv module in a package of its own
        rm -rf "$venv"
        need - python3-venv
        python3 -m venv "$venv" >>"$state_root/venv.log" 2>&1 || die "failed to make a venv (see $state_root/venv.log)"
    fi
    echo "$name: installing websockets $version" >&2
    "$venv/bin/pip" install -q --disable-pip-version-check "websockets==$version" >>"$state_root/venv.log" 2>&1 ||
        die "failed to install websockets (see $state_root/venv.log)"
    # the last step: a half-made venv is made again
    ln -s bin "$venv/done"
}

launch() {
    exec "$venv/bin/python" "$targets_dir/asyncio_ws.py" "$1"
}

health() { [[ $(ask "$1" 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n') == "HTTP/1.1 200 "* ]]; }

main "$@"
