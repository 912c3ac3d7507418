#!/usr/bin/env bash
# An echo server on Python's socketserver that takes a thread for each connection.
# usage: threads.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

install() { need python3 python3; }

launch() { exec python3 "$targets_dir/threads.py" "$1"; }

health() { [[ $(ask "$1" 'ok\n') == ok ]]; }

main "$@"
