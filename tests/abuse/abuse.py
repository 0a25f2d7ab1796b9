#!/usr/bin/env python3
"""Abuses a hub, and measures whether it survives and still serves an innocent reader.

    python3 tests/abuse/abuse.py                        all cases, about twenty minutes
    python3 tests/abuse/abuse.py --quick                a short form of each, in less than 90 seconds
    python3 tests/abuse/abuse.py --only http-malformed  one case
    python3 tests/abuse/abuse.py --list                 what the cases are
    python3 tests/abuse/abuse.py --quick --lenient      for a debug build: no goals of time and memory
    python3 tests/abuse/abuse.py --skopos PATH --json FILE --page docs/results/abuse.md

It needs Linux, Python 3.11 and a built `skopos`. Only the case flight-compressed also needs `pyarrow`. It starts a hub
of its own on free ports of this machine, with 50 simulated nodes of 300 facts each, and gives it at most 12 GiB of
address space. A process of its own reads one topic by HTTP and by the UNIX socket all the time. The hub is started
anew after a case in which it missed a goal.

The goals of each case: the hub is the same process afterwards; it never takes more than 1.5 GiB; ten seconds later it
has at most 400 MB more than before; and the 99th percentile of the innocent reader stays below 50 ms, or below twenty
times what it was. Some cases have goals of their own. The exit status is 1 if a goal is missed.

Read in this order: this file, `clients`, `http_cases`, `sql_cases`, `h2`, `flight_cases`; `hub` and `innocent` measure.
"""

import argparse
import asyncio
import json
import math
import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import flight_cases
import http_cases
import page
import sql_cases
from clients import Attack
from hub import Hub, memory_mb
from innocent import Innocent

Case = Callable[[Attack], Awaitable[None]]
CASES: dict[str, Case] = {
    "http-malformed": http_cases.malformed,
    "http-huge-heads": http_cases.huge_heads,
    "http-huge-bodies": http_cases.huge_bodies,
    "http-slowloris": http_cases.slowloris,
    "http-half-closed": http_cases.half_closed,
    "http-silent": http_cases.silent("http", 2500),
    "http-never-read": http_cases.never_read_http,
    "http-never-read-latest": http_cases.never_read_latest,
    "http-new-reads": http_cases.new_reads,
    "http-get-everything": http_cases.get_everything,
    "http-get-unknown": http_cases.get_unknown,
    "watch-reading": http_cases.watch_everything(reads=True),
    "watch-never-read": http_cases.watch_everything(reads=False),
    "standing-questions": http_cases.standing_questions,
    "unix-silent": http_cases.silent("unix"),
    "unix-statements": http_cases.unix_statements,
    "unix-never-read": http_cases.never_read_unix,
    "flight-malformed": flight_cases.malformed,
    "flight-messages": flight_cases.malformed_messages,
    "flight-floods": flight_cases.floods,
    "flight-silent": http_cases.silent("flight"),
    "flight-256-silent": http_cases.silent("flight", 256),
    "flight-describe": flight_cases.describe,
    "flight-prepared": flight_cases.prepare_many,
    "flight-compressed": flight_cases.compressed_values,
    "flight-never-read": flight_cases.never_read,
    "flight-never-read-latest": flight_cases.never_read_latest,
    "flight-growing-values": flight_cases.growing_values,
    "told-before-close": http_cases.told_before_close,
    "sql-replace": sql_cases.growing("Nested `replace` that multiplies a text.", sql_cases.REPLACE),
    "sql-concat": sql_cases.growing("Texts that `||` and `concat` double again and again.", sql_cases.CONCAT),
    "sql-texts": sql_cases.growing("Other functions that make long texts.", sql_cases.OTHER_TEXTS),
    "sql-aggregates": sql_cases.growing("Aggregates that collect all they read.", sql_cases.AGGREGATES),
    "sql-arrays": sql_cases.growing("Arrays that grow.", sql_cases.ARRAYS),
    "sql-joins": sql_cases.growing("Joins, series and recursion that do not end.", sql_cases.JOINS),
    "sql-long-lists": sql_cases.long_lists,
    "sql-unknown-names": sql_cases.unknown_names,
    "sql-deep": sql_cases.deep,
    "sql-wide": sql_cases.many_columns,
}
# The cases that need pyarrow.
NEED_ARROW = {"flight-compressed"}

MOST_BYTES = 12 << 30
MOST_PEAK_MB = 1536.0
MOST_KEPT_MB = 400.0
FLOOR_MS, MOST_TIMES = 50.0, 20.0


class Pace:
    """Durations, in seconds, and the requests of the innocent reader in a second."""

    def __init__(self, *, is_quick: bool, is_lenient: bool) -> None:
        self.is_quick, self.is_lenient = is_quick, is_lenient
        self.before, self.attack, self.after = (0.3, 0.8, 1.5) if is_quick else (2.0, 20.0, 10.0)
        # An attacker that does not come to its end is given up this much later.
        self.margin = 60.0 if is_lenient else 20.0
        self.shortest = 0.3 if is_quick else 1.0
        self.rate = 100.0 if is_quick else 50.0


class Result:
    """What one case measured: rows for the JSON file, and a line for people."""

    def __init__(self, case: str, *, is_lenient: bool) -> None:
        self.case, self.answers = case, ""
        self.is_lenient = is_lenient
        self.rows: list[dict] = []

    def add(self, metric: str, unit: str, value: float, goal: float | None = None, met: bool = True) -> None:
        row = {"case": self.case, "metric": metric, "unit": unit, "value": round(value, 2)}
        self.rows.append(row | {"goal": goal, "met": met})

    def add_bound(self, metric: str, unit: str, value: float, most: float) -> None:
        """Adds a value of time or memory, which is a goal for a release build alone."""
        goal = None if self.is_lenient or math.isinf(most) else round(most, 2)
        self.add(metric, unit, value, goal, goal is None or value <= most)

    @property
    def missed(self) -> list[str]:
        return [row["metric"] for row in self.rows if not row["met"]]

    def value(self, metric: str) -> float:
        return next(row["value"] for row in self.rows if row["metric"] == metric)

    def line(self) -> str:
        memory = "/".join(f"{self.value(f'memory_{when}'):.0f}" for when in ("before", "peak", "after"))
        latency = "/".join(f"{self.value(f'reader_p99_{when}'):.1f}" for when in ("before", "during"))
        p50 = "/".join(f"{self.value(f'reader_p50_{when}'):.1f}" for when in ("before", "during"))
        verdict = f"MISSED {', '.join(self.missed)}" if self.missed else "ok"
        measured = f"memory {memory:>15} MB  p50 {p50:>10}  p99 {latency:>14} ms"
        return f"{self.case:20} {measured}  {verdict}  [{self.answers}]"


def measure(case: str, hub: Hub, pace: Pace) -> Result:
    """Runs one case, and the reader beside it."""
    result = Result(case, is_lenient=pace.is_lenient)
    innocent = Innocent(hub, pace.rate)
    try:
        innocent.look()
        time.sleep(pace.before)
        before, pid, memory_before = innocent.look(), hub.pid, memory_mb(hub.pid)
        attack, broken = attacked(case, hub, pace)
        during = innocent.look()
        memory_after = settled(pid, memory_before + MOST_KEPT_MB, pace)
        peak = max(during.peak_mb, innocent.look().peak_mb)
    finally:
        innocent.stop()
    survived = hub.is_alive() and hub.pid == pid and memory_after > 0
    most_ms = max(FLOOR_MS, MOST_TIMES * before.quantile(0.99))
    result.add("survived", "count", survived, 1, survived)
    result.add("memory_before", "MB", memory_before)
    result.add_bound("memory_peak", "MB", peak, MOST_PEAK_MB)
    result.add_bound("memory_after", "MB", memory_after, memory_before + MOST_KEPT_MB)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        result.add(f"reader_{name}_before", "ms", before.quantile(share))
        result.add_bound(f"reader_{name}_during", "ms", during.quantile(share), most_ms if name == "p99" else math.inf)
    failures = sum(during.failures.values())
    result.add("reader_failures", "count", failures, 0, failures == 0)
    if broken:
        attack.goals["the attack came to its end"] = False
    for goal, met in attack.goals.items():
        result.add(goal, "count", met, 1, met)
    result.answers = ", ".join(f"{answer} {count}" for answer, count in attack.answers.most_common(8))
    result.answers += f"; {broken}" if broken else ""
    result.answers += "" if survived else f"; the hub ended, {hub.last_words()}"
    return result


def settled(pid: int, most: float, pace: Pace) -> float:
    """Returns the hub's memory when the time after an attack is over; a quick run waits no longer than it must."""
    until = time.monotonic() + pace.after
    time.sleep(0.2)
    while time.monotonic() < until and not (pace.is_quick and memory_mb(pid) <= most):
        time.sleep(0.1)
    return memory_mb(pid)


def attacked(case: str, hub: Hub, pace: Pace) -> tuple[Attack, str]:
    """Runs the attack itself, and returns it with what broke in the attacker, if anything did."""
    attack, broken, began = Attack(hub, pace.attack, is_quick=pace.is_quick), "", time.monotonic()

    async def bounded() -> None:
        await asyncio.wait_for(CASES[case](attack), pace.attack + pace.margin)

    def run() -> None:
        nonlocal broken
        # This thread alone leaves the processors to the hub and to the reader.
        os.nice(5)
        try:
            asyncio.run(bounded())
        except TimeoutError:
            broken = "cut off"
        except (OSError, KeyError) as e:
            broken = f"the attacker: {type(e).__name__} {e}"

    attacker = threading.Thread(target=run)
    attacker.start()
    attacker.join()
    time.sleep(max(0.0, pace.shortest - (time.monotonic() - began)))
    return attack, broken


def run_cases(names: list[str], hub: Hub, pace: Pace) -> list[Result]:
    results = []
    for name in names:
        if name in NEED_ARROW and not flight_cases.has_arrow():
            print(f"{name:20} skipped: pyarrow is not installed", flush=True)
            continue
        if not hub.is_alive():
            hub.start()
        result = measure(name, hub, pace)
        results.append(result)
        print(result.line(), flush=True)
        if result.missed:
            hub.stop(with_nodes=False)
    return results


def arguments() -> argparse.Namespace:
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    program = root / "target/release/skopos"
    parser.add_argument("--skopos", type=Path, default=program, metavar="PATH", help="the program")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values into this file")
    parser.add_argument("--only", action="append", metavar="NAME", choices=CASES, help="run this case; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a short form of each case")
    parser.add_argument("--lenient", action="store_true", help="judge neither time nor memory")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the results into this page")
    parser.add_argument("--list", action="store_true", help="list the cases")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    if args.list:
        for name, case in CASES.items():
            print(f"{name:20} {case.__doc__}")
        return 0
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    hub = Hub(args.skopos, MOST_BYTES)
    try:
        hub.start()
        results = run_cases(args.only or list(CASES), hub, Pace(is_quick=args.quick, is_lenient=args.lenient))
    finally:
        hub.stop()
    if args.json:
        rows = [row for result in results for row in result.rows]
        args.json.write_text(json.dumps({"bench": "abuse", "rows": rows}, indent=1) + "\n")
    if args.page:
        described = {name: (case.__doc__ or "").strip() for name, case in CASES.items()}
        page.write(args.page, [result.rows for result in results], described)
    missed = [result.case for result in results if result.missed]
    if missed:
        print(f"the logs of the hub and of its nodes are in {hub.folder}")
    else:
        shutil.rmtree(hub.folder, ignore_errors=True)
    print(f"{len(results)} cases, {len(missed)} missed a goal{': ' if missed else ''}{', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
