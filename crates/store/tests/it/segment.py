"""Reads a segment of jobs with DuckDB and pyarrow, as docs/reference/job-segment.md describes it."""

import json
import math
import sys
import zlib

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

path = sys.argv[1]
file = pq.ParquetFile(path)
schema = file.schema_arrow
assert [(f.name, f.type, f.nullable) for f in schema] == [
    ("job", pa.string(), False),
    ("generation", pa.uint32(), False),
    ("part", pa.uint32(), False),
    ("position", pa.uint32(), False),
    ("kind", pa.string(), False),
    ("schema", pa.string(), True),
    ("node", pa.string(), False),
    ("time", pa.timestamp("ns", tz="UTC"), False),
    ("values", pa.list_(pa.field("element", pa.float64(), nullable=False)), True),
    ("document", pa.string(), True),
    ("raw", pa.binary(), True),
], schema
described = duckdb.sql(f"DESCRIBE SELECT * FROM '{path}'").fetchall()
types = [row[1] for row in described]
# Earlier versions of DuckDB have no nanoseconds in times with a zone.
assert types.pop(7) in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS"), described
assert types == [
    "VARCHAR", "UINTEGER", "UINTEGER", "UINTEGER", "VARCHAR", "VARCHAR", "VARCHAR", "DOUBLE[]", "VARCHAR", "BLOB",
], described
print("columns")

stored = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
assert json.loads(stored["skopos.segment"]) == {"layout": 1, "sealed": 99}
parts = [json.loads(line) for line in stored["skopos.parts"].splitlines()]
start = 1_700_000_000_000_000_001
first, second = parts
crc = first.pop("crc")
assert first == {
    "job": "a/../b", "generation": 2**32 - 1, "part": 2, "first_row": 0, "rows": 20_004,
    "from": -1, "to": start + 19_999,
    "kinds": {"start": 1, "sample": 20_001, "spans": 1, "end": 1},
    "marks": [["slurm\n\"1\"", 5, -7]],
}, first
assert (second["job"], second["first_row"], second["rows"]) == ('it\'s "7"', 20_004, 8)
print("metadata")

# The checksums: of each block of 16 KiB before the tail, and of the tail with the rest of the name.
name = path.rsplit("/", 1)[1]
words = name.removeprefix("segment-").removesuffix(".parquet").split("-")
number, begin, end = (int(word) for word in words[:3])
tail, tail_sum = (int(word, 16) for word in words[3:])
content = open(path, "rb").read()
rows, rest = content[:-tail], content[-tail:]
blocks = [zlib.crc32(rows[at : at + 16384]) for at in range(0, len(rows), 16384)]
assert stored["skopos.blocks"] == "".join(f"{block:08x}" for block in blocks)
covered = b"".join(word.to_bytes(8, "little") for word in (number, begin, end, tail))
assert zlib.crc32(rest + covered) == tail_sum
assert (number, begin, end) == (3, 0, start + 19_999)
print("checksums")

table = file.read()
table = table.set_column(7, "time", table["time"].cast(pa.int64())).to_pylist()
order = ["start", "metrics", "sample", "report", "spans", "end", "loss", "tags"]
keys = [
    (row["job"].encode(), row["generation"], row["part"], order.index(row["kind"]), row["schema"] or "",
     row["node"], row["time"], row["position"])
    for row in table
]
assert keys == sorted(keys)
assert sorted(row["position"] for row in table[:20_004]) == list(range(20_004))
raw = [row["raw"] for row in table if row["raw"] is not None]
assert raw == [b"\xff\x00", b"\xff\x00"]
assert all(sum(row[c] is not None for c in ("values", "document", "raw")) == 1 for row in table)
print("rows")

samples = [row["values"] for row in table if row["schema"] == "node"][:3]
assert samples == [[0.0, 0.25, 0.5], [1.0, 1.25, 1.5], [2.0, 2.25, 2.5]]
answer = duckdb.execute(
    f"""SELECT count(*), sum(len("values")), sum("values"[3]),
    epoch_us(min(time)::TIMESTAMP WITH TIME ZONE) FROM '{path}'
    WHERE job = ? AND schema = 'node'""",
    ["a/../b"],
).fetchall()[0]
expected = sum(range(20_000)) + 20_000 * 0.5
assert answer[:2] == (20_000, 60_000) and math.isclose(answer[2], expected), answer
assert answer[3] == start // 1000, answer
documents = duckdb.sql(
    f"""SELECT document->>'$.name', document->>'$.state' FROM '{path}' WHERE part = 2 AND document IS NOT NULL
    AND generation = 0 ORDER BY position"""
).fetchall()
assert documents == [("ü", None), (None, "failed")], documents
assert duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE schema = 'empty' AND len(\"values\") = 0").fetchall() == [(2,)]
print("values")
