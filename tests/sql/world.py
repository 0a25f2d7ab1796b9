"""The samples that both engines are asked about: few topics, with awkward values at known times."""

import math
import random

from history_log import Sample, Series

# Times are whole microseconds, which is what DuckDB keeps of a time with a zone.
MICRO = 1_000
SECOND = 1_000_000_000
BEGIN = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z
MINUTES = 10
# The part after this time is in a second file.
CUT = BEGIN + 6 * 60 * SECOND

FAMILIES = ("mem", "load")

HUGE = [1e308, -1e308, 1.7e308, 1e300, -1e300, 1e17, -1e17, 2.0**53 + 2, -(2.0**53)]
TINY = [1e-300, -1e-300, 5e-324, 2.2250738585072014e-308, 1e-17]
ZEROS = [0.0, -0.0]
SMALL = [1.0, -1.0, 2.0, 3.0, 0.5, -0.5, 0.1, 7.25]


def series() -> list[Series]:
    """Returns all series; the same in every run."""
    made = [
        _series("n01/mem/available_bytes", "u64", "bytes", _of([2**53 + 1, 2**63 + 5, 0, 1, 4096], 0.1)),
        _series("n02/mem/available_bytes", "u64", "bytes", _of([2**53 + 1, 4096, 8192], 0.1)),
        _series("n01/load/load_1m", "f64", "", _walk(2.0, 0.25)),
        _series("n02/load/load_1m", "f64", "", _walk(5.0, 1.0)),
        _series("n01/app/depth", "i64", "", _of([-3, -1, 0, 0, 1, 2, 5, 5, 40], 0.2)),
        _series("n02/app/depth", "i64", "", _of([-3, 0, 1, 2, 7], 0.2)),
        _series("n01/app/wild", "f64", "", _of(HUGE + TINY + ZEROS + SMALL, 0.15)),
        _series("n02/app/wild", "f64", "seconds", _of(HUGE + TINY + ZEROS + SMALL, 0.15)),
        _series("n01/app/zero", "f64", "", _of(ZEROS, 0.2)),
        _series("n03/app/forecast", "f64", "ratio", _of([0.25, 0.5, 0.75], 0.0), predicted=0.3),
        _series("n03/app/unknown", "f64", "", _of([1.0], 1.0)),
        _series("n01/app/total", "u64", "", _counter(), kind="counter"),
    ]
    once = Series("n03/app/once", "f64", "", "gauge", [Sample(BEGIN + 60 * SECOND, 42.0)])
    return made + [once]


def split(all_series: list[Series]) -> tuple[list[Series], list[Series]]:
    """Returns the samples before the cut and those after it."""

    def part(one: Series, keep) -> Series:
        return Series(one.topic, one.value_type, one.unit, one.kind, [s for s in one.samples if keep(s)])

    before = [part(one, lambda s: s.time < CUT) for one in all_series]
    after = [part(one, lambda s: s.time >= CUT) for one in all_series]
    return [s for s in before if s.samples], [s for s in after if s.samples]


def _of(values: list, unknown: float):
    """Returns a maker of values of a list, some of them unknown."""

    def make(random_: random.Random, _: int):
        return None if random_.random() < unknown else random_.choice(values)

    return make


def _walk(start: float, step: float):
    def make(random_: random.Random, at: int):
        return round(start + step * math.sin(at / 3) + random_.choice([0.0, 0.01, 0.37]), 2)

    return make


def _counter():
    def make(random_: random.Random, at: int):
        if random_.random() < 0.1:
            return None
        return at % 17 * 100 + random_.randrange(5)

    return make


def _times(random_: random.Random) -> list[int]:
    """Returns ascending times: many on whole ten seconds, where topics meet, and a gap of two minutes."""
    times = set()
    for at in range(MINUTES * 6):
        if 180 <= at * 10 < 300:
            continue
        if random_.random() < 0.7:
            times.add(BEGIN + at * 10 * SECOND)
        if random_.random() < 0.3:
            times.add(BEGIN + at * 10 * SECOND + random_.randrange(10_000_000) * MICRO)
    return sorted(times)


def _series(topic: str, value_type: str, unit: str, make, kind: str = "gauge", predicted: float = 0.0) -> Series:
    random_ = random.Random(topic)
    made = Series(topic, value_type, unit, kind)
    for at, time in enumerate(_times(random_)):
        bound = 0.125 if random_.random() < predicted else None
        made.samples.append(Sample(time, make(random_, at), bound))
    return made
