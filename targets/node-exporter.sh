#!/usr/bin/env bash
# Prometheus' node_exporter: a server of Go's net/http that tells its own heap, descriptors and CPU at /metrics.
# usage: node-exporter.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

install() { need prometheus-node-exporter prometheus-node-exporter; }

launch() {
    exec prometheus-node-exporter --web.listen-address="127.0.0.1:$1" --collector.disable-defaults
}

health() { [[ $(ask "$1" 'GET / HTTP/1.0\r\nHost: localhost\r\n\r\n') == "HTTP/1."*" 200 "* ]]; }

main "$@"
