#!/usr/bin/env python3
"""What do clients cost an elastic cluster, and what does a pooler give and take? A Markdown table of sweeps' results.

usage: elastic.py RESULT.json...

Each file holds a sweep over two ways to one cluster, `direct` and `pooled`, with the servers' own views.
"""

import json
import os
import statistics
import sys

UNKNOWN = "unknown"


def ways(path):
    """The result of each way by its label."""
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    return {way["spec"]["sweep"]["label"]: way for way in [result, *result.get("beside", [])]}


def by_clients(way):
    """The points of each client count, rising."""
    counts = {}
    for point in way["sweep"]["points"]:
        counts.setdefault(point["clients"], []).append(point)
    return dict(sorted(counts.items()))


def per_second(points):
    return statistics.median(p["operations"] / p["seconds"] for p in points)


def whole(points):
    """Whether all clients connected and stayed."""
    return all(p["served"] == p["clients"] and p["lost"] == 0 for p in points)


def peak(way):
    """The client count with the highest throughput among those where all were served; None: there is none."""
    served = {n: points for n, points in by_clients(way).items() if whole(points)}
    return max(served, key=lambda n: per_second(served[n]), default=None)


def cpu(way, points):
    cpus = way["host"]["cpus"]
    seconds = [(p["cpu"]["target_cpu_seconds"], p["cpu"]["seconds"]) for p in points]
    if any(used is None or not span for used, span in seconds):
        return UNKNOWN
    return f"{statistics.median(used / span for used, span in seconds):.2f} of {cpus}"


def latency(points):
    seen = [p["latency"] for p in points if p["latency"]]
    if not seen:
        return UNKNOWN
    middle, late = (statistics.median(s[key] for s in seen) for key in ("p50_ms", "p99_ms"))
    return f"{middle:,.1f} / {late:,.1f} ms"


def most(way):
    """The most clients that were all served, and what ended it."""
    last = 0
    for clients, points in by_clients(way).items():
        if not whole(points):
            # a refusal says what it was; what else failed may be no more than what followed
            said = [p["failed_example"]["server-refused"] for p in points if "server-refused" in p["failed_example"]]
            said += [words for p in points for words in p["failed_example"].values()]
            why = said[0].splitlines()[0] if said else "not all were served"
            return f"{last}; at {clients}: {why}"
        last = clients
    return f"{last}, all that were asked for"


def connections(points):
    """Of each node, the connections of clients or poolers and those of other nodes, at the count's last reading."""
    nodes = [v for v in points[-1]["servers"] if v["internal"] is not None and v["connections"] is not None]
    if not nodes:
        return UNKNOWN
    return ", ".join(f"{v['connections'] - v['internal']} + {v['internal']}" for v in nodes)


def ratio(direct, pooled, clients):
    """How many times as many operations a second go through the poolers."""
    both = [by_clients(way).get(clients) for way in (direct, pooled)]
    if not all(both) or not per_second(both[0]):
        return UNKNOWN
    return f"{per_second(both[1]) / per_second(both[0]):.2f} times"


def rows(path):
    name = os.path.splitext(os.path.basename(path))[0]
    for label, way in ways(path).items():
        top = peak(way)
        points = by_clients(way).get(top)
        if points is None:
            yield [name, label, *["none"] * 4, most(way), UNKNOWN]
            continue
        figures = [f"{per_second(points):,.0f}", str(top), cpu(way, points), latency(points)]
        yield [name, label, *figures, most(way), connections(points)]


def line(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(paths):
    if not paths:
        sys.exit(__doc__)
    head = ["transaction", "way", "TPS at peak", "clients at peak", "CPUs at peak", "latency p50 / p99 at peak"]
    head += ["most clients", "connections at peak, a node: external + internal"]
    print(line(head))
    print(line(["---"] * len(head)))
    for path in paths:
        for cells in rows(path):
            print(line(cells))
    for path in paths:
        seen = ways(path)
        if "direct" not in seen or "pooled" not in seen:
            continue
        served = [{n for n, points in by_clients(seen[way]).items() if whole(points)} for way in ("direct", "pooled")]
        common = sorted(served[0] & served[1])
        if not common:
            continue
        name = os.path.splitext(os.path.basename(path))[0]
        told = [f"{ratio(seen['direct'], seen['pooled'], n)} the TPS at {n} clients" for n in common]
        print(f"\n{name}: through the poolers, {', '.join(told)}.")


main(sys.argv[1:])
