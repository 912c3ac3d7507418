#!/usr/bin/env bash
# Installs Debian packages that are missing. Nothing is done, or said, where all are there.
# usage: need.sh COMMAND PACKAGE [COMMAND PACKAGE]...    (a COMMAND of - : install the package in any case)
set -euo pipefail
PATH=$PATH:/usr/sbin
# services that packages bring are not started: `make test` starts what it needs, when it needs it
guard=/usr/sbin/policy-rc.d

missing=()
commands=()
while [ $# -ge 2 ]; do
    if ! command -v "$1" >/dev/null; then
        missing+=("$2")
        [ "$1" = - ] || commands+=("$1")
    fi
    shift 2
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "need: missing: ${missing[*]}; install them with your package manager" >&2
    exit 1
fi
if [ "$(id -u)" != 0 ]; then
    echo "need: missing; install with: sudo apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "need: installing ${missing[*]}" >&2
log=$(mktemp)
made=''
if [ ! -e $guard ]; then
    printf '#!/bin/sh\nexit 101\n' >$guard
    chmod +x $guard
    made=yes
fi
trap '[ -z "$made" ] || rm -f $guard; rm -f "$log"' EXIT
apt=(apt-get -qq -o DPkg::Lock::Timeout=300)
if ! { "${apt[@]}" update &&
    DEBIAN_FRONTEND=noninteractive "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1 </dev/null; then
    tail -20 "$log" >&2
    echo "need: failed to install ${missing[*]}" >&2
    exit 1
fi
for command in "${commands[@]}"; do
    command -v "$command" >/dev/null || {
        echo "need: ${missing[*]} installed, but there is still no $command" >&2
        exit 1
    }
done
