#!/usr/bin/env bash
# Opens a report in a headless browser: it must load nothing, log nothing, and show what a report shows.
# usage: check-report.sh FILE [ELEMENT-ID]...    (without ids: those that every report has)
#        check-report.sh --self-test             (a sound page must pass, and each kind of fault must be found)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# what every report has, by the ids of crates/report/templates
every_report=(verdict cost limits stages time latency where)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check FILE ID...: prints every fault; fails if there was one
check() {
    local file=$1 faults=0 status=0 id
    shift
    [ -s "$file" ] || { echo "check-report: $file is missing or empty" >&2; return 1; }
    file=$(realpath "$file")
    rm -rf "${work:?}"/*
    # no name is resolved and no proxy is there, so whatever the page or the browser asks for stays on this machine,
    # and is logged all the same
    timeout 90 chromium --headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --disable-extensions \
        --host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir="$work/profile" \
        --enable-logging=stderr --log-net-log="$work/net.json" --virtual-time-budget=5000 --window-size=1280,900 \
        --dump-dom "file://$file" >"$work/dom" 2>"$work/log" </dev/null || status=$?
    if [ "$status" != 0 ] || [ ! -s "$work/net.json" ]; then
        tail -5 "$work/log" >&2
        echo "check-report: the browser failed ($status)" >&2
        return 1
    fi
    if grep -o 'CONSOLE.*' "$work/log" >"$work/console"; then
        sed 's/^/check-report: logged: /' "$work/console" >&2
        faults=1
    fi
    python3 "$here/requests_of_page.py" "$work/net.json" "$work/dom" >"$work/requests"
    if [ -s "$work/requests" ]; then
        sed 's/^/check-report: requested: /' "$work/requests" >&2
        faults=1
    fi
    for id in "$@"; do
        if ! grep -qE "<[a-z0-9]+ [^>]*\bid=\"$id\"" "$work/dom"; then
            echo "check-report: no element has the id $id" >&2
            faults=1
        fi
    done
    return $faults
}

self_test() {
    local pages
    pages=$(mktemp -d)
    local sound='<!doctype html><title>t</title><link rel="icon" href="data:,"><p id="verdict">x</p>'
    echo "$sound<script>document.body.append('drawn')</script>" >"$pages/sound.html"
    echo "$sound<script>nosuch()</script>" >"$pages/error.html"
    echo "$sound<img src='http://127.0.0.1:9/pixel.png'>" >"$pages/image.html"
    echo "$sound<script>fetch('https://example.invalid/').catch(() => {})</script>" >"$pages/fetch.html"
    echo "$sound<script src='other.js'></script>" >"$pages/file.html"
    echo "<!doctype html><title>t</title>" >"$pages/bare.html"
    check "$pages/sound.html" verdict || { echo "check-report: a sound page was found faulty" >&2; return 1; }
    local page
    for page in error image fetch file bare; do
        if check "$pages/$page.html" verdict 2>/dev/null; then
            echo "check-report: the fault in $page.html was not found" >&2
            return 1
        fi
    done
    rm -rf "$pages"
    echo "check-report: finds what it should find"
}

[ $# -ge 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
"$here/need.sh" chromium chromium python3 python3
if [ "$1" = --self-test ]; then
    self_test
else
    file=$1
    shift
    [ $# -gt 0 ] || set -- "${every_report[@]}"
    check "$file" "$@"
    echo "check-report: $file loads nothing, logs nothing, and has $*"
fi
