#!/usr/bin/env python3
"""The table of docs/results/delphi.md: `bench/delphi_table.py bench/runs/DAY-HOST/delphi.json`.

A line for each trace. Mean absolute errors are divided by that of the better of last value and
linear extrapolation, so that 1 is what costs nothing; `R²` and coverage are those of what is shown.
"""

import json
import sys

COLUMNS = ["delphi", "as trained", "last value", "linear", "lstm"]


def cell(error, best):
    if not isinstance(error, (int, float)):
        return ""
    if best == 0:
        return "0" if error == 0 else "∞"
    return f"{error / best:.2f}"


def table(report):
    cases = {}
    for row in report["rows"]:
        cases.setdefault(row["case"], {})[row["metric"]] = row
    yield "| trace | with fallback | " + " | ".join(COLUMNS) + " | R² | coverage |"
    yield "|---|" + "---:|" * (len(COLUMNS) + 3)
    for name, rows in cases.items():
        if "MAE" not in rows:
            continue
        mae = rows["MAE"]
        best = min(mae["peers"]["last value"], mae["peers"]["linear"])
        r2 = f"{rows['R²']['value']:.3f}" if "R²" in rows else ""
        coverage = next(r["value"] for m, r in rows.items() if m.startswith("coverage"))
        cells = [cell(mae["peers"].get(c), best) for c in COLUMNS]
        yield (f"| {name} | **{cell(mae['value'], best)}** | " + " | ".join(cells)
               + f" | {r2} | {coverage:.3f} |")


def main():
    if len(sys.argv) != 2:
        sys.exit("error: which result?\nhint: bench/delphi_table.py bench/runs/DAY-HOST/delphi.json")
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(table(json.load(file))))


if __name__ == "__main__":
    main()
