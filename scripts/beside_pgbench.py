#!/usr/bin/env python3
"""Is `plimsoll sweep` as quick as pgbench, and does it say the same? Both on one server, count by count, in turns.

usage: beside_pgbench.py [--clients 1,8,64,500] [--rounds 3] [--seconds 5] [--mode simple] [--builtin select-only]

Starts PostgreSQL by targets/postgres.sh, makes pgbench's tables, and lets each of the two work for --seconds, the one
first that came second in the round before. CPU is that of the whole generator, for each transaction. Latencies of pgbench
are read from its log (--log), in rounds of their own, as writing a line for each transaction costs it time: each from the
end of a client's last transaction to the end of its next, since in a closed loop a client means to begin at once. What
pgbench itself calls latency leaves out how long its own loop lets a client wait before it begins; "told" is the share of
that time that it tells. The table is Markdown.
"""

import argparse
import glob
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
PORT = 15434
TIMEOUT_SECONDS = 600
LOGIN = {"host": "127.0.0.1", "user": "plimsoll", "database": "plimsoll"}
URL = f"postgres://plimsoll:plimsoll@127.0.0.1:{PORT}/plimsoll"
PERCENTILES = (50, 95, 99)


def run(command, environment=None):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu


def pgbench(args, clients, logged):
    with tempfile.TemporaryDirectory() as directory:
        command = ["pgbench", "-h", LOGIN["host"], "-p", str(PORT), "-U", LOGIN["user"], "-n", "-b", args.builtin]
        command += ["-M", args.mode, "-c", str(clients), "-j", str(min(clients, args.threads)), "-T", str(args.seconds)]
        if logged:
            command += ["--log", f"--log-prefix={directory}/log"]
        said, cpu = run([*command, LOGIN["database"]], {"PGPASSWORD": "plimsoll"})
        if "tps = " not in said:
            sys.exit(f"pgbench ended before all of its {clients} clients were connected: give it more --seconds")
        tps = float(said.split("tps = ")[1].split()[0])
        count = int(said.split("transactions actually processed: ")[1].split()[0].split("/")[0])
        latencies, told = intervals(glob.glob(f"{directory}/log*"))
    seen = {"tps": tps, "cpu_us": cpu / count * 1e6}
    if latencies:
        cuts = statistics.quantiles(latencies, n=100, method="inclusive")
        seen.update({f"p{p}": cuts[p - 1] for p in PERCENTILES})
        seen["told"] = sum(told) / sum(latencies)
    return seen


def intervals(paths):
    """Milliseconds from the end of one transaction of a client to the end of its next, and those that pgbench tells."""
    latencies, told, ends = [], [], {}
    for path in paths:
        with open(path, encoding="ascii") as file:
            for line in file:
                client, _, micros, _, second, fraction = (int(word) for word in line.split()[:6])
                end = second * 1e3 + fraction / 1e3
                if client in ends:
                    latencies.append(end - ends[client])
                    told.append(micros / 1e3)
                ends[client] = end
    return latencies, told


def sweep(args, clients):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "result.json")
        command = [f"{TARGET}/release/plimsoll", "sweep", URL, "--builtin", args.builtin, "--mode", args.mode]
        command += ["-c", str(clients), "--warm-up", "500ms", "--measure", f"{args.seconds}s", "--objective", "60s"]
        run([*command, "--quiet", "--json", path])
        with open(path, encoding="utf-8") as file:
            point = json.load(file)["sweep"]["points"][0]
    seen = {f"p{p}": point["latency"][f"p{p}_ms"] for p in PERCENTILES}
    seen["tps"] = point["operations"] / point["seconds"]
    seen["cpu_us"] = point["cpu"]["generator_cpu_seconds"] / point["operations"] * 1e6
    return seen


def median(rounds, name):
    return statistics.median(seen[name] for seen in rounds if name in seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="1,8,64,500")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="pgbench's -j; never more than clients")
    parser.add_argument("--mode", default="simple")
    parser.add_argument("--builtin", default="select-only")
    args = parser.parse_args()
    counts = [int(n) for n in args.clients.split(",")]
    postgres = {"MAX_CONNECTIONS": str(max(counts) + 20)}
    run(["targets/postgres.sh", "start", str(PORT)], postgres)
    try:
        run([f"{TARGET}/release/plimsoll", "sweep", URL, "--init", "--scale", "10"])
        print("| clients | TPS, pgbench | TPS, Plimsoll | ratio | CPU each, pgbench | CPU each, Plimsoll | p50 / p95 / p99 of Plimsoll over pgbench's | told |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | :--- | ---: |")
        for clients in counts:
            theirs, ours, logged = [], [], []
            for turn in range(args.rounds):
                both = [lambda: theirs.append(pgbench(args, clients, False)), lambda: ours.append(sweep(args, clients))]
                for one in both if turn % 2 == 0 else reversed(both):
                    one()
                logged.append(pgbench(args, clients, True))
            tps = median(theirs, "tps"), median(ours, "tps")
            cpu = median(theirs, "cpu_us"), median(ours, "cpu_us")
            ratios = " / ".join(f"{median(ours, f'p{p}') / median(logged, f'p{p}'):.2f}" for p in PERCENTILES)
            print(
                f"| {clients} | {tps[0]:,.0f} | {tps[1]:,.0f} | {tps[1] / tps[0]:.2f} | {cpu[0]:.1f} µs | {cpu[1]:.1f} µs | {ratios} "
                f"| {median(logged, 'told'):.0%} |",
                flush=True,
            )
    finally:
        run(["targets/postgres.sh", "stop", str(PORT)])


if __name__ == "__main__":
    main()
