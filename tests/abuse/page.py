"""Writes the results as a table into a page, between two marks."""

import platform
from datetime import UTC, datetime
from pathlib import Path

BEGIN, END = "<!-- abuse -->", "<!-- /abuse -->"


def write(path: Path, results: list[list[dict]], described: dict[str, str]) -> None:
    """Replaces the table between the marks. Each result has the rows of one case."""
    text = path.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{table(results, described)}\n{END}{after}")


def table(results: list[list[dict]], described: dict[str, str]) -> str:
    lines = [
        "| case | attack | memory before, peak, after (MB) | reader p99 before, during (ms) | goals missed |",
        "|---|---|---:|---:|---|",
    ]
    for rows in results:
        case, values = rows[0]["case"], {row["metric"]: row["value"] for row in rows}
        missed = ", ".join(row["metric"] for row in rows if not row["met"]) or "none"
        memory = ", ".join(f"{values[f'memory_{when}']:.0f}" for when in ("before", "peak", "after"))
        p99 = ", ".join(f"{values[f'reader_p99_{when}']:.1f}" for when in ("before", "during"))
        lines.append(f"| {case} | {described[case]} | {memory} | {p99} | {missed} |")
    met = sum(all(row["met"] for row in rows) for rows in results)
    day = datetime.now(UTC).date().isoformat()
    lines += ["", f"Run of {day}: {platform.system()} {platform.release()}. Cases that met all goals: {met} of {len(results)}."]
    return "\n".join(lines)
