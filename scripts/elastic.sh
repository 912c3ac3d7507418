#!/usr/bin/env bash
# What do clients cost an elastic cluster of PostgreSQL, and what does a pooler before each node give and take?
# usage: elastic.sh [PORT]
# Starts targets/elastic-cluster.sh (its settings are taken from the environment), sweeps over both of its ways in turns
# with a transaction that needs one node and with one that needs all, prints a table, and stops it again. Leaves
# elastic-single.html and elastic-multi.html. Under ten minutes with what is set here.
set -euo pipefail
cd "$(dirname "$0")/.."
port=${1:-7400}
plimsoll=${CARGO_TARGET_DIR:-target}/release/plimsoll
results=${CARGO_TARGET_DIR:-target}/elastic
export NODES=${NODES:-4} SCALE=${SCALE:-10}

trap 'targets/elastic-cluster.sh stop "$port"' EXIT
targets/elastic-cluster.sh start "$port"
mkdir -p "$results"
views=()
for node in $(seq 1 "$NODES"); do
    # as the superuser, who sees all and has places of its own where clients have taken all others
    views+=(--views "postgres://postgres@127.0.0.1:$((port + 10 + node))/postgres")
    views+=(--views "postgres://bench@127.0.0.1:$((port + 20 + node))/bench")
done

# sweep NAME FLAGS...: 3 says that at some count not all clients were served, which is what is looked for; 4 that the
# generator, which shares the machine, was busy too
sweep() {
    local name=$1 code=0
    shift
    "$plimsoll" sweep "postgres://bench@127.0.0.1:$port/bench" "postgres://bench@127.0.0.1:$((port + 1))/bench" \
        --label direct --label pooled --script "targets/elastic-cluster/$name.sql" --scale "$SCALE" "$@" "${views[@]}" \
        --process postgres,pgbouncer,haproxy --objective 10s --quiet \
        --json "$results/$name.json" --html "elastic-$name.html" || code=$?
    case $code in 0 | 3 | 4) ;; *) exit "$code" ;; esac
}

sweep single -c 8,64,256,512 --warm-up 3s --measure 8s
# one of these reads a tenth of all rows: they are few, and take long
sweep multi -c 8,64,256 --warm-up 10s --measure 20s
scripts/elastic.py "$results/single.json" "$results/multi.json"
