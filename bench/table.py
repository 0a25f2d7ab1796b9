#!/usr/bin/env python3
"""The Markdown table of a result: `bench/table.py bench/runs/DAY-HOST/score.json`.

The tables in docs/results are made with it, so that no number is typed by hand.
"""

import json
import sys


def figure(number):
    """Three significant digits, or all of an integer's, as `skopos bench` prints them."""
    if not isinstance(number, (int, float)):
        return "unknown"
    size = abs(number)
    if size >= 100 or size == 0:
        return f"{number:,.0f}"
    for least, digits in ((10, 1), (1, 2), (0.01, 3)):
        if size >= least:
            return f"{number:.{digits}f}"
    return f"{number:.4f}"


def table(report):
    """Lines of the table, the peers in columns of their own."""
    peers = []
    for row in report["rows"]:
        peers += [name for name in row["peers"] if name not in peers]
    head = ["case", "metric", "Skopos", *peers, "unit", "ratio", "goal", "met"]
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|" + "---:|" * (1 + len(peers)) + "---|" + "---:|" * 2 + "---|"
    for row in report["rows"]:
        cells = [row["case"], row["metric"], f"**{figure(row['value'])}**"]
        cells += [figure(row["peers"][p]) if p in row["peers"] else "" for p in peers]
        ratio = "" if row["ratio"] is None else figure(row["ratio"]) + "x"
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        yield "| " + " | ".join(cells + [row["unit"], ratio, row["goal"] or "", met]) + " |"


def main():
    if len(sys.argv) != 2:
        sys.exit("error: which result?\nhint: bench/table.py bench/runs/DAY-HOST/score.json")
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(table(json.load(file))))


if __name__ == "__main__":
    main()
