#!/usr/bin/env bash
# One Apache Ignite 3 node on a JVM. Its clients come to 127.0.0.1:PORT; other nodes and REST would, at the same port, to
# 127.0.0.2 and 127.0.0.3. HEAP is the most its heap may grow to; with PASSWORD, clients must log in as USER_NAME.
# usage: ignite.sh start PORT | restart PORT | stop PORT | health PORT | install
set -euo pipefail
# shellcheck source=targets/ground.sh
source "$(dirname "$0")/ground.sh"

version=3.1.0
jars=$state_root/ignite-$version
# some ten seconds on an idle machine
ready_seconds=180

install() {
    [ -d "$jars" ] && return
    need javac default-jdk-headless mvn maven
    mkdir -p "$state_root"
    echo "$name: fetching Apache Ignite $version" >&2
    mvn --batch-mode --quiet --no-transfer-progress --file "$targets_dir/ignite/pom.xml" -Dignite.version="$version" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$jars.part" \
        >"$state_root/maven.log" 2>&1 || die "failed to fetch Ignite (see $state_root/maven.log)"
    # the last step: what is half there is fetched again
    mv "$jars.part" "$jars"
}

launch() {
    local port=$1 dir=$2 cluster='' opens=() package
    javac -cp "$jars/*" -d "$dir" "$targets_dir/ignite/Node.java"
    cat >"$dir/node.conf" <<CONF
ignite {
  clientConnector { port: $port, listenAddresses: ["127.0.0.1"] }
  network { port: $port, listenAddresses: ["127.0.0.2"], nodeFinder.netClusterNodes: ["127.0.0.2:$port"] }
  rest.port: $port
  storage.profiles.default { engine: aipersist, sizeBytes: 268435456 }
}
CONF
    echo 'handlers=java.util.logging.ConsoleHandler
# it has a line for each client at INFO
.level=WARNING' >"$dir/logging.properties"
    [ -z "${PASSWORD:-}" ] || cluster="ignite.security { enabled: true, authentication.providers.default {
        type: basic, users: [{ username: \"${USER_NAME:-plimsoll}\", password: \"$PASSWORD\" }] } }"
    # Java hides these since version 17, and Ignite does not start without them
    for package in java.{io,lang,lang.invoke,lang.reflect,math,net,nio,time,util} \
        jdk.internal.{access,misc} sun.nio.ch sun.security.x509; do
        opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
    done
    # a JVM raises its soft limit of descriptors to the hard one unless it is told not to
    exec java -XX:-MaxFDLimit "${opens[@]}" -Dio.netty.tryReflectionSetAccessible=true -Dmicronaut.server.host=127.0.0.3 \
        -Djava.util.logging.config.file="$dir/logging.properties" -XX:+ExitOnOutOfMemoryError \
        -Xms64m -Xmx"${HEAP:-1g}" -cp "$dir:$jars/*" Node "$dir/node.conf" "$dir/work" "$cluster"
}

# a handshake of its thin clients; it answers with the same magic, also those whom it does not let in
health() {
    local first
    first=$({
        exec 3<>"/dev/tcp/127.0.0.1/$1"
        printf 'IGNI\0\0\0\x07\3\0\0\2\xc4\0\0' >&3
        timeout 2 head -c 4 <&3
    } 2>/dev/null) || return 1
    [ "$first" = IGNI ]
}

main "$@"
