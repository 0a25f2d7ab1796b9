"""Asks a hub and DuckDB the same statements over the same sealed samples, and reports each difference.

usage: differential.py URL FOLDER --seed N --count N

URL is the hub's HTTP listener, FOLDER the history that it reads; the nodes `x1`, `x2` and `x3` of it are asked about.
A statement that both refuse counts as agreement. Exit status 1: an answer differs.
"""

import argparse
import collections
import glob
import http.client
import math
import random
import sys
import urllib.parse

import duckdb
import pyarrow

#: The relation of all statements: the samples of the test's own nodes.
BASE = "SELECT topic, node, metric, time, value, origin FROM samples WHERE node IN ('x1', 'x2', 'x3')"

#: DuckDB's view of the parts, with the columns that statements use.
VIEW = """
CREATE VIEW samples AS
SELECT topic, node, regexp_extract(topic, '[^/]*$') AS metric,
       epoch_ns(time)::BIGINT AS nanos, make_timestamp_ns(epoch_ns(time)) AS time, value,
       CASE origin WHEN 0 THEN 'measured' WHEN 1 THEN 'predicted' ELSE 'unknown' END AS origin
FROM read_parquet({files})
"""

#: Relative error by which two sums of the same numbers may differ: DuckDB and Skopos add in other orders.
TOLERANCE = 1e-9

#: With exponents, so that they are doubles in both dialects.
NUMBERS = ["0e0", "1e0", "-1e0", "5e-1", "3e0", "7e0", "1e308", "-1e308", "1e-300", "9007199254740993e0", "100e0"]
INTEGERS = ["0", "1", "2", "3", "7", "10"]
TEXTS = ["'x1'", "'x2'", "'x3'", "'a'", "'b'", "'c'", "'none'"]


class Generator:
    """Makes random statements that mean the same in both dialects."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def number(self, depth: int, value: str = "value") -> str:
        """An expression of type double."""
        if depth <= 0:
            return self.pick(value, value, value, self.random.choice(NUMBERS))
        inner = lambda: self.number(depth - 1, value)
        return self.pick(
            f"({inner()} + {inner()})",
            f"({inner()} - {inner()})",
            f"({inner()} * {self.random.choice(NUMBERS[:6])})",
            f"(- {inner()})",
            f"abs({inner()})",
            f"coalesce({inner()}, {inner()})",
            f"nullif({inner()}, {self.random.choice(NUMBERS)})",
            f"CASE WHEN {self.condition(depth - 1, value)} THEN {inner()} ELSE {inner()} END",
            f"CASE WHEN {self.condition(depth - 1, value)} THEN {inner()} END",
            value,
        )

    def text(self) -> str:
        return self.pick("node", "metric", "topic", "origin", "upper(node)", "concat(node, metric)", "node || metric")

    def condition(self, depth: int, value: str = "value", texts: bool = True) -> str:
        """An expression of type boolean, which may be NULL."""
        if depth > 0 and self.random.random() < 0.5:
            one, two = (self.condition(depth - 1, value, texts) for _ in range(2))
            return self.pick(f"({one} AND {two})", f"({one} OR {two})", f"(NOT {one})", f"(NOT ({one} OR {two}))")
        number = self.random.choice(NUMBERS)
        some = ", ".join(self.random.sample(NUMBERS, self.random.randint(1, 4)))
        compared = self.pick("=", "<>", "<", "<=", ">", ">=")
        choices = [
            f"{value} {compared} {number}",
            f"{value} IS NULL",
            f"{value} IS NOT NULL",
            f"{value} IN ({some})",
            f"{value} NOT IN ({some})",
            f"{value} NOT IN ({some}, NULL)",
            f"{value} IN ({some}, NULL)",
            f"{value} BETWEEN {number} AND {self.random.choice(NUMBERS)}",
            f"{value} IS DISTINCT FROM {number}",
            f"{value} IS NOT DISTINCT FROM {number}",
            f"({value} > {number}) IS NOT TRUE",
            f"({value} > {number}) IS NULL",
        ]
        if texts:
            some = ", ".join(self.random.sample(TEXTS, self.random.randint(1, 4)))
            choices += [
                f"node {compared} {self.random.choice(TEXTS)}",
                f"metric IN ({some})",
                f"node NOT IN ({some})",
                f"metric NOT IN ({some}, NULL)",
                f"node IS DISTINCT FROM {self.random.choice(TEXTS)}",
                "metric LIKE 'a%'",
                "origin = 'measured'",
                f"{self.text()} IS NOT NULL",
            ]
        return self.random.choice(choices)

    def where(self) -> str:
        return f" WHERE {self.condition(2)}" if self.random.random() < 0.7 else ""

    def aggregate(self) -> str:
        """An aggregate whose value does not depend on the order of rows, except for rounding."""
        number = self.number(self.random.randint(0, 1))
        some = self.pick(
            "count(*)",
            f"count({number})",
            f"count(DISTINCT {number})",
            f"count(DISTINCT {self.text()})",
            f"sum({self.small()})",
            f"avg({self.small()})",
            f"min({number})",
            f"max({number})",
            f"min({self.text()})",
            f"max({self.text()})",
            f"stddev_pop({self.small()})",
            f"var_samp({self.small()})",
            f"bool_and({self.condition(0)})",
            f"bool_or({self.condition(0)})",
        )
        if self.random.random() < 0.25:
            some += f" FILTER (WHERE {self.condition(0)})"
        return some

    def small(self) -> str:
        """A double that is finite and of moderate size, so that sums of it are near each other in any order."""
        return self.pick(
            "CASE WHEN abs(value) < 1e3 THEN value END",
            "CASE WHEN value IN (0e0, 1e0, 5e-1, 3e0) THEN value ELSE 25e-2 END",
            "CASE WHEN abs(value) < 1e3 THEN value * value END",
        )

    def simple(self) -> str:
        columns = ", ".join(f"{self.number(2)} AS c{at}" for at in range(self.random.randint(1, 2)))
        distinct = self.pick("", "", "DISTINCT ")
        return f"SELECT {distinct}{columns}, {self.text()} AS t FROM s{self.where()}"

    def grouped(self) -> str:
        keys = self.random.sample(["node", "metric", "origin", "value", "value > 1e0", "coalesce(value, 0e0)"], self.random.randint(0, 2))
        some = [f"{self.aggregate()} AS a{at}" for at in range(self.random.randint(1, 3))]
        columns = ", ".join([f"{key} AS k{at}" for at, key in enumerate(keys)] + some)
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = f" HAVING count(*) > {self.random.choice(INTEGERS)}" if keys and self.random.random() < 0.3 else ""
        return f"SELECT {columns} FROM s{self.where()}{group}{having}"

    def bucketed(self) -> str:
        unit = self.pick("second", "minute", "hour")
        return f"SELECT date_trunc('{unit}', time) AS at, node, {self.aggregate()} AS a FROM s{self.where()} GROUP BY 1, 2"

    def joined(self) -> str:
        kind = self.pick("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN")
        on = self.pick("a.time = b.time", "a.time = b.time AND a.metric = b.metric", "a.value = b.value AND a.time < b.time", "a.value IS NOT DISTINCT FROM b.value AND a.time = b.time")
        left = f"(SELECT * FROM s WHERE node = 'x1' AND {self.condition(0)})"
        right = f"(SELECT * FROM s WHERE node = 'x2' AND {self.condition(0)})"
        if self.random.random() < 0.5:
            return f"SELECT count(*) AS n, count(a.value) AS l, count(b.value) AS r, min(a.value) AS m FROM {left} a {kind} {right} b ON {on}"
        return f"SELECT a.metric, a.value AS l, b.value AS r, b.metric AS o FROM {left} a {kind} {right} b ON {on}"

    def windowed(self) -> str:
        order = "time, topic"
        part = self.pick("", "PARTITION BY node ", "PARTITION BY topic ")
        back, ahead = self.random.randint(0, 3), self.random.randint(0, 3)
        frame = self.pick("", f" ROWS BETWEEN {back} PRECEDING AND {ahead} FOLLOWING", " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW")
        function = self.pick(
            "row_number()", "rank()", "dense_rank()", "lag(value)", "lead(value)", "lag(value, 2)",
            f"sum({self.small()})", "count(value)", "min(value)", "max(value)", f"avg({self.small()})",
            "first_value(value)", "last_value(value)",
        )
        if function.startswith(("row_number", "rank", "dense", "lag", "lead")):
            frame = ""
        return f"SELECT topic, time, {function} OVER ({part}ORDER BY {order}{frame}) AS w FROM s{self.where()}"

    def nearest(self) -> tuple[str, str]:
        left = f"(SELECT time, metric, value FROM s WHERE node = 'x1' AND {self.condition(0)})"
        right = "(SELECT time, metric, value FROM s WHERE node = 'x2' AND metric = 'a')"
        compared = self.pick(">=", ">", "<=", "<")
        columns = "SELECT a.time, a.metric, a.value AS l, b.time AS at, b.value AS r"
        return (
            f"{columns} FROM {left} a ASOF JOIN {right} b MATCH_CONDITION (a.time {compared} b.time)",
            f"{columns} FROM {left} a ASOF LEFT JOIN {right} b ON a.time {compared} b.time",
        )

    def combined(self) -> str:
        one, two = (f"SELECT {self.pick('value', 'coalesce(value, 1e0)', 'value + 0e0')} AS v, {self.pick('node', 'metric')} AS t FROM s{self.where()}" for _ in range(2))
        return f"{one} {self.pick('UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT')} {two}"

    def nested(self) -> str:
        return self.pick(
            f"SELECT t, count(*) AS n, min(c) AS m FROM (SELECT {self.text()} AS t, {self.number(1)} AS c FROM s{self.where()}) AS q WHERE {self.condition(1, 'c', False)} GROUP BY t",
            f"SELECT node, value FROM s WHERE value > (SELECT avg({self.small()}) FROM s{self.where()})",
            f"SELECT count(*) AS n FROM s WHERE value IN (SELECT value FROM s{self.where()})",
            f"SELECT count(*) AS n FROM s a WHERE EXISTS (SELECT 1 FROM s b WHERE b.value = a.value AND b.node <> a.node)",
            f"SELECT node, value FROM s WHERE topic IN (SELECT topic FROM s GROUP BY topic HAVING count(*) > {self.random.choice(INTEGERS)}) AND {self.condition(1)}",
        )

    def statement(self) -> tuple[str, str]:
        """A statement for Skopos, and the same for DuckDB."""
        if self.random.random() < 0.05:
            ours, theirs = self.nearest()
        else:
            kinds = [self.simple, self.grouped, self.grouped, self.bucketed, self.joined, self.windowed, self.combined, self.nested]
            ours = theirs = self.random.choice(kinds)()
        return f"WITH s AS ({BASE}) {ours}", f"WITH s AS ({BASE}) {theirs}"


class Hub:
    """A hub, asked over one connection."""

    def __init__(self, url: str) -> None:
        self.at = urllib.parse.urlparse(url).netloc
        self.connection = http.client.HTTPConnection(self.at, timeout=60)

    def ask(self, sql: str) -> pyarrow.Table | str:
        headers = {"content-type": "application/sql", "accept": "application/vnd.apache.arrow.stream"}
        self.connection.request("POST", "/api/v1/sql", sql, headers)
        response = self.connection.getresponse()
        body = response.read()
        if response.status != 200:
            return body.decode()
        return pyarrow.ipc.open_stream(body).read_all()


def cell(value: object) -> object:
    """A value in the form in which both answers are compared."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0
    return value


def rows_of(table: pyarrow.Table) -> list[tuple]:
    columns = []
    for column in table.columns:
        if pyarrow.types.is_timestamp(column.type):
            column = column.cast(pyarrow.timestamp("ns", column.type.tz)).cast(pyarrow.int64())
        columns.append([cell(value) for value in column.to_pylist()])
    return list(zip(*columns))


def key(row: tuple) -> tuple:
    """Sorts rows; numbers by their leading digits, so that rounding does not change the order."""
    def of(value: object) -> tuple:
        if isinstance(value, float) and math.isfinite(value):
            return ("number", f"{value:.6e}" if value else "0")
        return (type(value).__name__, str(value))
    return tuple(of(value) for value in row)


def is_infinite(value: object) -> bool:
    """True for an infinity, and for the largest double: DataFusion's `min` of positive infinities alone is the largest
    double, and not infinite. No sample is infinite; only a product or a sum that overflows is."""
    return isinstance(value, float) and abs(value) >= sys.float_info.max


def is_near(one: object, two: object) -> bool:
    if is_infinite(one) and is_infinite(two):
        return (one > 0) == (two > 0)
    if isinstance(one, (int, float)) and isinstance(two, (int, float)) and not isinstance(one, bool):
        return one == two or math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=1e-12)
    return one == two


def differ(ours: list[tuple], theirs: list[tuple]) -> str | None:
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, and {len(theirs)} in DuckDB"
    for one, two in zip(sorted(ours, key=key), sorted(theirs, key=key)):
        if len(one) != len(two) or not all(map(is_near, one, two)):
            return f"{one}, and {two} in DuckDB"
    return None


def compare(hub: Hub, peer: duckdb.DuckDBPyConnection, ours: str, theirs: str) -> str | None:
    """The difference of the answers; None if there is none."""
    answer = hub.ask(ours)
    try:
        expected = peer.execute(theirs).to_arrow_table()
    except duckdb.Error as error:
        return None if isinstance(answer, str) else f"answered, and DuckDB refuses: {str(error)[:200]}"
    if isinstance(answer, str):
        return f"refused, and DuckDB answers: {answer[:300]}"
    return differ(rows_of(answer), rows_of(expected))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20_000)
    arguments = parser.parse_args()
    files = glob.glob(f"{arguments.folder}/*.parquet")
    peer = duckdb.connect()
    peer.execute("SET TimeZone = 'UTC'")
    peer.execute(VIEW.format(files=files))
    hub, generator = Hub(arguments.url), Generator(arguments.seed)
    rows, found = 0, collections.Counter()
    for at in range(arguments.count):
        ours, theirs = generator.statement()
        difference = compare(hub, peer, ours, theirs)
        if difference:
            found["different"] += 1
            print(f"statement {at}: {difference}\n  {ours.removeprefix(f'WITH s AS ({BASE}) ')}", flush=True)
            if found["different"] >= 30:
                break
    print(f"{arguments.count} statements from seed {arguments.seed}: {found['different']} different")
    return 1 if found["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
