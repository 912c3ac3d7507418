#!/usr/bin/env bash
# FerretDB, which speaks like MongoDB, with SQLite behind it; built once, from the Go modules that its authors name.
# usage: ferretdb.sh start PORT | restart PORT | stop PORT | health PORT | install
# With PASSWORD it has one user, USER_NAME, who logs in by SCRAM-SHA-256; without, it asks nobody who they are. TLS_PORT
# is a second port, on which it speaks TLS.
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"
PATH=$PATH:/usr/local/go/bin

version=1.24.0
cache=$state_root/ferretdb-$version
# what its go.mod asks for; Debian's may be older
go_version=1.22.6

install() {
    [ -x "$cache/ferretdb" ] && return
    need go golang-go openssl openssl
    echo "$name: building FerretDB $version, which takes a minute or two" >&2
    rm -rf "$cache"
    mkdir -p "$cache"
    # in the background, as nothing else than that keeps `set -e` where a failure is asked about
    build >"$cache/log" 2>&1 </dev/null &
    wait $! || { tail -5 "$cache/log" >&2; die "failed to build FerretDB (all it said: $cache/log)"; }
}

# copy MODULE DIR: downloads a Go module and makes a copy of it that can be written to and run.
copy() {
    local from
    from=$(go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",\?$/\1/p')
    cp -r "$from" "$2"
    chmod -R u+wx "$2"
}

build() {
    cd "$cache"
    if [ "$(printf '%s\n' "go$go_version" "$(go env GOVERSION)" | sort -V | head -1)" != "go$go_version" ]; then
        # Go itself comes as a module, too
        copy "golang.org/toolchain@v0.0.1-go$go_version.$(go env GOOS)-$(go env GOARCH)" go
        export GOROOT=$cache/go PATH=$cache/go/bin:$PATH
    fi
    copy "github.com/FerretDB/FerretDB@v$version" source
    # its releases are built with this file, which the module lacks
    echo "v$version" >source/build/version/version.txt
    (cd source && CGO_ENABLED=0 go build -tags ferretdb_no_postgresql -o ../built ./cmd/ferretdb)
    rm -rf source go
    # the last step: a half-made build is made again
    mv built ferretdb
}

prepare() {
    local dir=$2
    mkdir "$dir/data"
    [ -z "${TLS_PORT:-}" ] || certify "$dir"
}

# Not the usual self-signed certificate, which is an authority and therefore nobody's.
certify() {
    cd "$1"
    printf '[req]\ndistinguished_name = name\n[name]\n' >openssl.conf
    openssl req -x509 -config openssl.conf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
        -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.crt
}

launch() {
    local port=$1 dir=$2 more=()
    cd "$dir"
    if [ -n "${PASSWORD:-}" ]; then
        more+=(--test-enable-new-auth --setup-database=admin --setup-username="${USER_NAME:-plimsoll}"
            --setup-password="$PASSWORD")
    fi
    if [ -n "${TLS_PORT:-}" ]; then
        more+=(--listen-tls="127.0.0.1:$TLS_PORT" --listen-tls-cert-file=server.crt --listen-tls-key-file=server.key)
    fi
    exec "$cache/ferretdb" --telemetry=disable --debug-addr=- --log-level=WARN --handler=sqlite \
        --sqlite-url=file:data/ --state-dir=. --listen-addr="127.0.0.1:$port" "${more[@]}"
}

# The answer to message 7, {ping: 1, $db: "admin"}, begins with its length, its own number, 7, and 2013 for OP_MSG.
health() {
    local ping='\x33\0\0\0\x07\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x1e\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0'
    { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || return 1
    # shellcheck disable=SC2059  # the text is a format on purpose
    printf "$ping" >&3
    [[ $(timeout 2 head -c 16 <&3 | od -An -v -td4 -w16) =~ ^\ +[0-9]+\ +[0-9]+\ +7\ +2013$ ]]
}

main "$@"
