#!/usr/bin/env bash
# An echo server on a JVM that keeps an object of 16 KiB for each connection. HEAP is the most its heap may grow to.
# usage: jvm.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

install() { need javac default-jdk-headless; }

launch() {
    local port=$1 dir=$2
    javac -d "$dir" "$targets_dir/HeapEcho.java"
    exec java -Xmx"${HEAP:-512m}" -XX:+UseSerialGC -cp "$dir" HeapEcho "$port"
}

health() { [[ $(ask "$1" 'ok\n') == ok ]]; }

main "$@"
