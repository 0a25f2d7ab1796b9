#!/usr/bin/env python3
"""Draws the plots of docs/internals/intervals.md and docs/results/intervals.md from a raw run:
`bench/intervals_plots.py bench/runs/DAY-HOST/intervals.json docs/img`.
"""

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 330, 250, 48, 28, 40, 12
INK, GREY, OURS, PEER = "#333", "#bbb", "#0072b2", "#d55e00"


class Plot:
    """One set of axes; x and y run over the given ranges."""

    def __init__(self, title, x, y, labels, at=(0, 0)):
        self.x, self.y, self.at, self.parts = x, y, at, []
        self.text(WIDTH / 2, 16, title, "middle", 13, "bold", raw=True)
        self.text(WIDTH / 2, HEIGHT - 6, labels[0], "middle", raw=True)
        self.text(4, TOP - 1, labels[1], raw=True, size=10)
        for part in range(5):
            value = x[0] + (x[1] - x[0]) * part / 4
            self.text(self.px(value), HEIGHT - 22, f"{value:g}", "middle", raw=True)
            value = y[0] + (y[1] - y[0]) * part / 4
            self.text(LEFT - 6, self.py(value) + 4, f"{value:g}", "end", raw=True)
            self.line([(x[0], value), (x[1], value)], GREY, 0.5)

    def px(self, x):
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def py(self, y):
        return HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, text, anchor="start", size=11, weight="normal", raw=False):
        if not raw:
            x, y = self.px(x), self.py(y)
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'font-weight="{weight}" fill="{INK}">{text}</text>'
        )

    def line(self, points, colour, width=1.5, dash=""):
        path = " ".join(f"{self.px(x):.1f},{self.py(y):.1f}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-dasharray="{dash}"/>'
        )

    def dot(self, x, y, colour, name="", square=False):
        x, y = self.px(x), self.py(y)
        shape = (
            f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>'
            if square
            else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        )
        self.parts.append(shape)
        if name:
            self.text(x + 6, y + 12, name, size=10, raw=True)

    def svg(self):
        return f'<g transform="translate({self.at[0]},{self.at[1]})">{"".join(self.parts)}</g>'


def page(plots, columns):
    rows = -(-len(plots) // columns)
    width, height = WIDTH * columns, HEIGHT * rows
    for index, plot in enumerate(plots):
        plot.at = (index % columns * WIDTH, index // columns * HEIGHT)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif"><rect width="{width}" height="{height}" fill="white"/>'
        + "".join(plot.svg() for plot in plots)
        + "</svg>\n"
    )


def front(case, rows):
    """Cost against accuracy: the peers, our policy, and our policy at other accuracies."""
    cost, accuracy = rows["cost"], rows["accuracy"]
    plot = Plot(case, (0, 1), (0, 1), ("cost: polls ÷ polls at the base rate", "accuracy"))
    curve = sorted(zip(cost["rounds"]["front"], accuracy["rounds"]["front"]))
    plot.line(curve, OURS, dash="4 3")
    same = {}
    for name in cost["peers"]:
        at = (cost["peers"][name], accuracy["peers"][name])
        same.setdefault(at, []).append(name)
    for (x, y), names in same.items():
        plot.dot(x, y, PEER, ", ".join(names), square=True)
    plot.dot(cost["value"], accuracy["value"], OURS, "ours")
    return plot


def threshold(chance=0.2):
    """The chance of a change since the last poll, if all gaps from 5 to 20 s are equally likely."""
    plot = Plot("quiet for 5 s, then due until 20 s", (0, 20), (0, 0.4),
                ("seconds since the change", "chance of a change"))
    survived = lambda age: min(1.0, max(0.0, (20 - age) / 15))
    points, polled, age = [], 0.0, 0.0
    while age < 19.6 and survived(polled) > 0:
        wrong = 1 - survived(age) / survived(polled)
        points.append((age, wrong))
        if wrong >= chance:
            plot.dot(age, 0, OURS)
            points.append((age, 0.0))
            polled = age
        age = round(age + 0.1, 1)
    plot.line([(0, chance), (20, chance)], PEER, 1, "4 3")
    plot.text(0.4, chance + 0.01, "threshold")
    plot.line(points, OURS)
    plot.text(0.4, 0.36, "dots: polls that find nothing")
    return plot


def main(result, folder):
    cases = {}
    for row in json.loads(Path(result).read_text())["rows"]:
        cases.setdefault(row["case"], {})[row["metric"]] = row
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fronts = {case: front(case, rows) for case, rows in cases.items() if "cost" in rows}
    hacc = [fronts.pop(case) for case in ("HACC regular", "HACC irregular")]
    (folder / "intervals-hacc.svg").write_text(page(hacc, 2))
    (folder / "intervals-traces.svg").write_text(page(list(fronts.values()), 3))
    (folder / "intervals-threshold.svg").write_text(page([threshold()], 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
