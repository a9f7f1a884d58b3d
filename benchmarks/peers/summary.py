"""The table of a run: medians and ranges per engine and workload, and Octavo's ratio to the best peer.

    python benchmarks/peers/summary.py results.jsonl

reads the newest run in the file; records are one JSON object per line, see `run.py`.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from octavo.bench.spread import Spread, significant

OURS = "octavo"


class Figure(NamedTuple):
    """What a workload is judged by."""

    key: str
    title: str
    is_rate: bool
    """Higher is better."""


class Ratio(NamedTuple):
    """Octavo against the best peer; above 1 Octavo is faster."""

    times: float
    peer: str
    is_clean: bool
    """Whether Octavo's figure and every peer's is: a disturbed peer might have been the best."""


FIGURES = {
    "W1": Figure("tokens_per_second", "W1 tok/s", True),
    "W2": Figure("wall", "W2 s", False),
    "W3": Figure("tokens_per_second", "W3 tok/s", True),
    "W4": Figure("first", "W4 TTFT s", False),
    "W4_512": Figure("first", "W4_512 TTFT s", False),
    "BD8": Figure("tokens_per_second", "BD8 tok/s", True),
}

Records = Sequence[dict[str, Any]]


def newest_run(records: Records) -> Records:
    """The records of the run that was started last."""
    newest = max(record["started"] for record in records)
    return [record for record in records if record["started"] == newest]


def counted(records: Records, engine: str, work: str) -> tuple[list[dict[str, Any]], bool]:
    """An engine's measurements that count, and whether they are clean: only clean ones if there are any."""
    runs = [r for r in records if r["record"] == "run" and r["engine"] == engine and r["work"] == work]
    clean = [run for run in runs if run["clean"]]
    return (clean, True) if clean else (runs, False)


def spread(records: Records, engine: str, work: str) -> tuple[Spread | None, bool]:
    """An engine's figure for a workload, and whether it is clean."""
    runs, clean = counted(records, engine, work)
    values = [run[FIGURES[work].key] for run in runs]
    return (Spread.of(values), clean) if values else (None, False)


def ratio_to_best_peer(records: Records, ours: str, work: str) -> Ratio | None:
    """How many times as fast as the fastest peer Octavo is; ``None`` while one of the two is missing."""
    figure = FIGURES[work]
    mine, is_clean = spread(records, ours, work)
    peers = {}
    for engine in engines(records):
        theirs, theirs_clean = spread(records, engine, work)
        if not engine.startswith(OURS) and theirs is not None:
            peers[engine] = theirs.median
            is_clean &= theirs_clean
    if mine is None or not peers:
        return None
    best = (max if figure.is_rate else min)(peers, key=peers.__getitem__)
    times = mine.median / peers[best] if figure.is_rate else peers[best] / mine.median
    return Ratio(times, best, is_clean)


def paired_ratios(records: Records, ours: str, work: str, peer: str) -> Spread | None:
    """Octavo against a peer within each repetition: the machine of the next one may be faster."""
    key, is_rate = FIGURES[work].key, FIGURES[work].is_rate
    mine, theirs = (
        {run["repetition"]: run[key] for run in counted(records, engine, work)[0]} for engine in (ours, peer)
    )
    ratios = [mine[i] / theirs[i] if is_rate else theirs[i] / mine[i] for i in mine if i in theirs]
    return Spread.of(ratios) if ratios else None


def engines(records: Records) -> list[str]:
    """Names in the order in which they were started."""
    return [record["engine"] for record in records if record["record"] == "engine"]


def markdown(records: Records) -> str:
    """The whole table, engines by workloads, and what belongs beside it."""
    works = [work for work in FIGURES if any(r["record"] == "run" and r["work"] == work for r in records)]
    lines = [
        "| engine | " + " | ".join(FIGURES[work].title for work in works) + " | RSS MB | version |",
        "|---|" + "---|" * (len(works) + 2),
    ]
    versions = {record["engine"]: record["version"] for record in records if record["record"] == "engine"}
    for engine in engines(records):
        cells = [_cell(*spread(records, engine, work)) for work in works]
        memory = [r["rss_bytes"] for r in records if r["record"] == "run" and r["engine"] == engine]
        peak = f"{max(memory) / 1e6:,.0f}" if memory else "–"
        lines.append(f"| {engine} | " + " | ".join([*cells, peak, versions[engine]]) + " |")
    for ours in [engine for engine in engines(records) if engine.startswith(OURS)]:
        ratios = [ratio_to_best_peer(records, ours, work) for work in works]
        pairs = [
            r and paired_ratios(records, ours, work, r.peer) for r, work in zip(ratios, works, strict=True)
        ]
        lines.append("| **times the best peer** | " + " | ".join([*map(_ratio_cell, ratios), "", ""]) + " |")
        lines.append("| the same, in pairs | " + " | ".join([*map(_pairs_cell, pairs), "", ""]) + " |")
    return "\n".join([*lines, "", *_notes(records)]) + "\n"


def _cell(value: Spread | None, clean: bool) -> str:
    if value is None:
        return "–"
    return f"{value.format()}, n = {value.num_runs}" + ("" if clean else " *not clean*")


def _ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "–"
    return f"**{ratio.times:.2f}** ({ratio.peer})" + ("" if ratio.is_clean else " *not clean*")


def _pairs_cell(value: Spread | None) -> str:
    return "–" if value is None else value.format()


def _notes(records: Records) -> list[str]:
    others = [record["others"] for record in records if record["record"] == "run"]
    notes = [
        "Median (lowest … highest) of the clean runs, n of them; in pairs: of the ratios within a repetition."
    ]
    if others:
        notes.append(
            f"Others took at most {max(others):.0%} of the machine during any run, refused ones included."
        )
    limits = [record["limits"]["read"] for record in records if record["record"] == "limits"]
    if limits:
        bandwidth = Spread.of(limits)
        notes.append(f"Read bandwidth in the same run: {bandwidth.scaled(1e-9).format()} GB/s.")
        notes += _bandwidth_notes(records)
    return notes + _distance_notes(records)


def _bandwidth_notes(records: Records) -> list[str]:
    """What share of the read bandwidth, measured just before, Octavo's single stream reaches."""
    notes = []
    bandwidths = {
        (r.get("engine"), r.get("repetition")): r["limits"]["read"]
        for r in records
        if r["record"] == "limits"
    }
    for record in records:
        weights = record.get("settings", {}).get("step_weight_bytes")
        runs, _ = counted(records, record.get("engine", ""), "W3")
        if record["record"] == "engine" and weights and runs:
            rates = {run["repetition"]: run["decode_tokens_per_second"] for run in runs}
            before = {i: bandwidths.get((record["engine"], i)) for i in rates}
            shares = [100 * rates[i] * weights / read for i, read in before.items() if read]
            notes.append(
                f"W3 of {record['engine']}: {significant(statistics.median(rates.values()))} decoded tok/s × "
                f"{weights / 1e6:.1f} MB of weights"
                + (f"; in pairs {Spread.of(shares).format(2)} % of it." if shares else ".")
            )
    return notes


def _distance_notes(records: Records) -> list[str]:
    """Octavo's figures by how long its cores took to answer each other just before, if that changed."""
    notes = []
    for engine in engines(records):
        for work, figure in FIGURES.items():
            runs = [run for run in counted(records, engine, work)[0] if run.get("round_trip")]
            trips = sorted(run["round_trip"] for run in runs)
            if not trips or trips[-1] < 2 * trips[0]:
                continue
            between = (trips[0] * trips[-1]) ** 0.5
            near = [run for run in runs if run["round_trip"] < between]
            far = [run for run in runs if run["round_trip"] >= between]
            parts = [_figure_at_distance(group, figure) for group in (near, far)]
            notes.append(
                f"{figure.title} of {engine} where its cores answer each other within {'; '.join(parts)}."
            )
    return notes


def _figure_at_distance(runs: Records, figure: Figure) -> str:
    nanoseconds = statistics.median(run["round_trip"] for run in runs) * 1e9
    return f"{nanoseconds:.0f} ns: {Spread.of([run[figure.key] for run in runs]).format()}, n = {len(runs)}"


def main() -> None:
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    print(markdown(newest_run([json.loads(line) for line in lines])), end="")


if __name__ == "__main__":
    main()
