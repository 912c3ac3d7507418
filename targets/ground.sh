# shellcheck shell=bash
# What every target's script stands on: where state lives, how packages come, how a server is started and stopped.
# NOFILE is the soft limit of descriptors that a server starts with, instead of the hard one.
# Sourced, not run. A target's script defines `install`, `launch PORT DIR` (which ends in exec) and `health PORT`, and
# may define `prepare PORT DIR`, which makes once what outlives a restart, and set `ready_seconds`.

targets_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state_root=$(dirname "$targets_dir")/target/targets
name=$(basename "$0" .sh)
# how long a server may take until it is well
ready_seconds=30

die() {
    echo "$name: $*" >&2
    exit 1
}

# need COMMAND PACKAGE: installs the package unless its command is there.
need() {
    "$targets_dir/../scripts/need.sh" "$@" || die "cannot do without $2"
}

# ask PORT TEXT: sends the text (as printf reads it) and prints the first line of the answer.
ask() {
    local line
    { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
    # shellcheck disable=SC2059  # the text is a format on purpose
    printf "$2" >&3
    IFS= read -r -t 2 line <&3 || return 1
    exec 3>&-
    echo "$line"
}

# Whether the server of this directory runs: the pid of its file is alive and still belongs to it. A pid may be
# used again by a stranger, so the moment at which the process started is kept beside it.
started_at() {
    [ -r "/proc/$1/stat" ] && sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}
running() {
    local pid since
    [ -r "$1/pid" ] && read -r pid since <"$1/pid" && [ -n "$since" ] && [ "$(started_at "$pid")" = "$since" ]
}

start() {
    local port=$1 dir=$state_root/$name-$1
    if running "$dir"; then
        echo "$name: already running on 127.0.0.1:$port" >&2
        return
    fi
    install
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        die "port $port is taken by another program"
    fi
    rm -rf "$dir"
    mkdir -p "$dir"
    if declare -F prepare >/dev/null; then
        # in the background, as nothing else than that keeps `set -e` where a failure is asked about
        prepare "$port" "$dir" >"$dir/log" 2>&1 </dev/null &
        wait $! || { tail -5 "$dir/log" >&2; die "cannot prepare $dir"; }
    fi
    begin "$port" "$dir"
}

# begin PORT DIR: starts the server on what stands in its directory, and waits until it is well.
begin() {
    local port=$1 dir=$2 pid until
    ulimit -S -n "${NOFILE:-$(ulimit -Hn)}" || true
    launch "$port" "$dir" >"$dir/log" 2>&1 </dev/null &
    pid=$!
    echo "$pid $(started_at $pid)" >"$dir/pid"
    until=$((SECONDS + ready_seconds))
    while [ "$SECONDS" -lt "$until" ]; do
        if health "$port" >/dev/null 2>&1; then
            echo "$name: running on 127.0.0.1:$port (pid $pid)" >&2
            return
        fi
        running "$dir" || break
        sleep 0.05
    done
    tail -5 "$dir/log" >&2
    stop "$port"
    die "did not come up on port $port (all it said: $dir/log)"
}

stop() {
    local dir=$state_root/$name-$1 pid
    if ! running "$dir"; then
        rm -f "$dir/pid"
        return
    fi
    read -r pid _ <"$dir/pid"
    kill -TERM "$pid"
    for _ in $(seq 100); do
        running "$dir" || break
        sleep 0.05
    done
    if running "$dir"; then
        kill -KILL "$pid"
    fi
    rm -f "$dir/pid"
}

# With what it was told meanwhile, and with the settings of the environment as they are now.
restart() {
    local dir=$state_root/$name-$1
    [ -d "$dir" ] || die "nothing was started on port $1"
    stop "$1"
    begin "$1" "$dir"
}

main() {
    local usage="usage: $0 start PORT | restart PORT | stop PORT | health PORT | install"
    if [ "$*" = install ]; then
        install
        return
    fi
    [ $# = 2 ] || { echo "$usage" >&2; exit 2; }
    [[ $2 =~ ^[0-9]+$ ]] && [ "$2" -ge 1 ] && [ "$2" -le 65535 ] || { echo "$name: $2 is not a port" >&2; exit 2; }
    case $1 in
    start) start "$2" ;;
    restart) restart "$2" ;;
    stop) stop "$2" ;;
    health) health "$2" || die "no healthy answer from 127.0.0.1:$2" ;;
    *) echo "$usage" >&2; exit 2 ;;
    esac
}
