#!/usr/bin/env bash
# A gRPC server in Go, built from targets/grpc-go: grpc.testing.TestService with health and reflection. MIN_TIME is how
# often clients may ping (off: as grpc-go has it by default, every five minutes); MAX_STREAMS and TOKEN are its own.
# usage: grpc-go.sh start PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/local/go/bin

built=$state_root/grpc-go-built

install() {
    need go golang-go
    # the build is kept, and costs little where it is there already; one at a time, as several tests start it
    mkdir -p "$built"
    (cd "$targets_dir/grpc-go" && flock "$built" go build -mod=readonly -o "$built/grpc-go" .) ||
        die "cannot build targets/grpc-go"
}

launch() {
    export MIN_TIME=${MIN_TIME:-1ms}
    exec "$built/grpc-go" "127.0.0.1:$1"
}

# the preface of HTTP/2 and empty settings; whatever it answers, a frame of settings starts so
health() {
    local kind
    kind=$({
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0' >&3
        timeout 2 head -c 4 <&3 | tail -c 1 | od -An -tu1
    } 2>/dev/null) || return 1
    [ "${kind// /}" = 4 ]
}

main "$@"
