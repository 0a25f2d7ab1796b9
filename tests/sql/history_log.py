"""Writes samples as a log of history, which an agent seals into Parquet parts when it starts.

The layout is that of `crates/store/src/log` (frames and records) and of `crates/store/src/history/codec.rs`
(series and samples). All numbers are little-endian.
"""

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

LAYOUT = 2
KINDS = {"counter": 1, "gauge": 2, "state": 3}
TYPES = {"f64": 1, "i64": 2, "u64": 3, "structured": 4}
NUMBERS = {"f64": "<d", "i64": "<q", "u64": "<Q"}
MEASURED, PREDICTED, UNKNOWN = 0, 1, 2


@dataclass(frozen=True)
class Sample:
    """A value from a time on (in nanoseconds of UNIX time). `None` is an unknown value."""

    time: int
    value: float | int | None
    bound: float | None = None


@dataclass
class Series:
    """The samples of one topic, the oldest first."""

    topic: str
    value_type: str = "f64"
    unit: str = ""
    kind: str = "gauge"
    samples: list[Sample] = field(default_factory=list)


def write_log(folder: Path, generation: int, all_series: list[Series]) -> None:
    """Writes a log with these series into a folder of history."""
    records = b"".join(_series(index, series) for index, series in enumerate(all_series))
    path = folder / f"log-{generation:08}"
    path.write_bytes(_head(generation) + _frame(0, records))
    path.chmod(0o600)


def _head(generation: int) -> bytes:
    head = b"SKLG" + struct.pack("<IQ", LAYOUT, generation)
    return head + struct.pack("<I", zlib.crc32(head))


def _frame(number: int, records: bytes) -> bytes:
    numbers = struct.pack("<II", number, len(records))
    sums = struct.pack("<II", zlib.crc32(numbers), zlib.crc32(records))
    return b"SKFR" + numbers + sums + records


def _series(index: int, series: Series) -> bytes:
    unit = series.unit.encode()
    described = bytes([KINDS[series.kind], TYPES[series.value_type], len(unit)])
    described += unit + series.topic.encode()
    registered = series.samples[0].time
    producer = struct.pack("<BIqI", 0, index, registered, len(described)) + described
    return producer + b"".join(_entry(index, series.value_type, s) for s in series.samples)


def _entry(index: int, value_type: str, sample: Sample) -> bytes:
    number = struct.pack(NUMBERS[value_type], 0 if sample.value is None else sample.value)
    if sample.value is None:
        content = bytes([UNKNOWN]) + number
    elif sample.bound is not None:
        content = bytes([PREDICTED]) + struct.pack("<d", sample.bound) + number
    else:
        content = bytes([MEASURED]) + number
    return struct.pack("<BIqB", 1, index, sample.time, len(content)) + content
