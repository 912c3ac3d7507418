#!/usr/bin/env python3
"""How far above the floor is Plimsoll? Both in the same run, on this machine; the table is Markdown.

The floor is the least that a program can do (crates/testkit, plimsoll-floor). Every figure is the best of several
interleaved runs, as whatever else the machine does can only make a run slower.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile

TIMEOUT_SECONDS = 600
TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
PORT = 7190

# scheme: path
URLS = {"tcp": "", "tls": "", "ws": "/ws", "sse": "/events"}


# a ramp at full speed, with both ends on one machine: 4 says, rightly, that the generator was busy too
FULL_SPEED = (0, 4)
AS_FAST_AS_IT_GOES = ("--stages", "1", "--hold", "0s", "--heartbeat", "30s", "--objective", "60s")


class Failed(Exception):
    """A run that gave no figures."""


def floor(connections, mode="tcp"):
    command = [f"{TARGET}/release/plimsoll-floor", "--connections", str(connections), "--mode", mode]
    done = subprocess.run(
        [*command, "--verify", "--json"], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


# each run has a port of its own: none meets the TIME-WAITs of the one before
ports = itertools.count(PORT)


def hold(scheme, connections, *flags, codes=(0,)):
    url = f"{scheme}://127.0.0.1:{next(ports)}{URLS[scheme]}"
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "result.json")
        command = [f"{TARGET}/release/plimsoll", "hold", url, "--serve", "-c", str(connections), *flags]
        done = subprocess.run(
            [*command, "--quiet", "--json", path], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode not in codes:
            said = (done.stderr.strip() or done.stdout.strip())[-300:]
            raise Failed(f"{' '.join(command)}: exit {done.returncode}: {said}")
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    held = result["connections"]
    if held["verified"] != connections:
        raise Failed(f"{' '.join(command)}: verified {held['verified']} of {connections}")
    return result


class Table:
    """Rows as they come, so that a bench that is stopped has not run in vain."""

    def __init__(self, *head):
        print("\n| " + " | ".join(head) + " |")
        print("|" + " --- |" * len(head), flush=True)

    def row(self, *cells):
        print("| " + " | ".join(cells) + " |", flush=True)


missed = []


def judged(name, value, bar, at_least):
    """A cell with the bar and whether it is met."""
    met = value >= bar if at_least else value <= bar
    if not met:
        missed.append(name)
    return f"{'at least' if at_least else 'at most'} {bar:g}: {'met' if met else '**missed**'}"


def best(runs, part):
    return max((run[part]["rate_per_second"] for run in runs), default=0)


def attempt(runs, make):
    """Adds a run; one that failed is said and left out."""
    try:
        runs.append(make())
    except (Failed, subprocess.TimeoutExpired) as why:
        missed.append(str(why))
        print(f"bench: {why}", file=sys.stderr, flush=True)


def rates(connections, repeats):
    floors, ours = [], {"tcp": [], "ws": [], "sse": []}
    for _ in range(repeats):
        attempt(floors, lambda: floor(connections))
        for scheme, runs in ours.items():
            attempt(runs, lambda scheme=scheme: hold(scheme, connections, *AS_FAST_AS_IT_GOES, codes=FULL_SPEED))
    print(f"\nRates, {connections:,} connections, best of {repeats}:")
    table = Table("what", "floor", "Plimsoll, both ends", "ratio", "bar")
    base = best(floors, "establish")
    for scheme, bar in (("tcp", 0.6), ("ws", 0.4), ("sse", 0.4)):
        rate = best(ours[scheme], "establish")
        ratio = rate / base if base else 0
        name = f"establish {scheme}"
        table.row(name, f"{base:,.0f}/s (tcp)", f"{rate:,.0f}/s", f"{ratio:.2f}", judged(name, ratio, bar, True))
    base, rate = best(floors, "verify"), best(ours["tcp"], "verify")
    ratio = rate / base if base else 0
    table.row("verify tcp", f"{base:,.0f}/s", f"{rate:,.0f}/s", f"{ratio:.2f}", judged("verify", ratio, 0.6, True))


def per_pair(connections, repeats):
    """Past half of the port range of an address pair, connect() can become slow; ours must not."""
    runs = {10_000: [], 25_000: []}
    for _ in range(repeats):
        for per_source, into in runs.items():
            last = -(-connections // per_source)
            flags = (*AS_FAST_AS_IT_GOES, "--source", f"127.0.1.1-127.0.1.{last}")
            attempt(into, lambda flags=flags: hold("tcp", connections, *flags, codes=FULL_SPEED))
    few, many = (best(into, "establish") for into in runs.values())
    ratio = many / few if few else 0
    print(f"\nConnections per address pair, tcp, {connections:,} connections, best of {repeats}:")
    table = Table("what", "at 10,000", "at 25,000", "ratio", "bar")
    cell = judged("25,000 per address pair", ratio, 0.8, True)
    table.row("establish tcp", f"{few:,.0f}/s", f"{many:,.0f}/s", f"{ratio:.2f}", cell)


def memory(connections):
    print(f"\nUser memory per idle connection, slope over ten stages up to {connections:,}:")
    table = Table("scheme", "generator", "node", "bar")
    for scheme, bar in (("tcp", 300), ("ws", 300), ("sse", 300), ("tls", 6144)):
        runs = []
        attempt(runs, lambda scheme=scheme: hold(scheme, connections, "--stages", "10", "--hold", "1s"))
        if not runs:
            table.row(scheme, "failed", "failed", "**missed**")
            continue
        cells, worst = [], 0
        for side in ("generator", "target"):
            slope = runs[0]["cost"][side]["user_bytes_per_connection"]
            if slope is None:
                cells.append("unknown")
                worst = float("inf")
            else:
                cells.append(f"{slope['value']:,.0f} B ({slope['low']:,.0f} to {slope['high']:,.0f})")
                worst = max(worst, slope["value"])
        table.row(scheme, *cells, judged(f"memory {scheme}", worst, bar, False))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--short", action="store_true", help="fewer connections, once each: does it still work?")
    arguments.add_argument("--strict", action="store_true", help="exit 1 if a bar was missed")
    asked = arguments.parse_args()
    connections, repeats, slope = (20_000, 1, 10_000) if asked.short else (100_000, 3, 50_000)

    with open("/proc/meminfo", encoding="ascii") as file:
        kib = int(file.readline().split()[1])
    cpus = len(os.sched_getaffinity(0))
    print(f"{cpus} CPUs, {kib / 1048576:.0f} GiB of memory, Linux {platform.release()}; both ends on this machine.")
    rates(connections, repeats)
    per_pair(50_000 if asked.short else connections, repeats)
    memory(slope)
    print(f"\n{len(missed)} missed" + (": " + "; ".join(missed) if missed else ""))
    # in a short run figures are too noisy to judge by, but every run must have given some
    broken = [name for name in missed if "exit" in name or "verified" in name or "timed out" in name]
    return 1 if broken or (asked.strict and missed) else 0


if __name__ == "__main__":
    sys.exit(main())
