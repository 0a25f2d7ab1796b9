"""Makes statements from a seed: each has a kind, which names what it tests."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from translate import to_duckdb

FROM, TO = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
RANGE = f"time >= '{FROM}' AND time < '{TO}'"

TAME = ["n01/load/load_1m", "n02/load/load_1m", "n01/app/depth", "n02/app/depth", "n03/app/forecast"]
TAME += ["n01/app/total", "n03/app/unknown", "n03/app/once", "n01/app/zero"]
WILD = ["n01/app/wild", "n02/app/wild", "n01/mem/available_bytes", "n02/mem/available_bytes"]
NAN = "CAST('NaN' AS DOUBLE)"
INFINITY = "CAST('Infinity' AS DOUBLE)"
COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


@dataclass(frozen=True)
class Statement:
    """A statement in both dialects. Sums of tame values do not depend on the order of the rows."""

    kind: str
    ours: str
    theirs: str
    is_tame: bool = True
    is_ordered: bool = False


@dataclass
class Relation:
    """A source of samples with the columns topic, node, unit, kind, origin, bound, value and time."""

    text: str
    where: str
    is_tame: bool


class Maker:
    """Makes statements from a source of randomness."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def statement(self) -> Statement:
        """Returns the next statement."""
        names = list(KINDS)
        kind = self.random.choices(names, [KINDS[name][1] for name in names])[0]
        made = KINDS[kind][0](self)
        if isinstance(made, Statement):
            return made
        ours, is_tame, is_ordered = made
        return Statement(kind, ours, to_duckdb(ours), is_tame, is_ordered)

    # Pieces.

    def one(self, *choices: str) -> str:
        return self.random.choice(choices)

    def some(self, make: Callable[[], str], most: int) -> list[str]:
        return [make() for _ in range(self.random.randint(1, most))]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def topics(self, is_tame: bool) -> str:
        """Returns a condition on topics whose values are all tame, or of any topics."""
        if is_tame:
            return self.one(
                f"topic IN ({quoted(self.random.sample(TAME, self.random.randint(1, 6)))})",
                f"topic = '{self.random.choice(TAME)}'",
                "family = 'load'",
                "metric = 'depth'",
                "topic LIKE '%/depth'",
                "topic LIKE 'n0_/load/%'",
                "metric IN ('depth', 'total', 'nothing')",
                "node = 'n03'",
                "topic LIKE 'nobody/%'",
            )
        return self.one(
            f"topic IN ({quoted(self.random.sample(TAME + WILD, self.random.randint(1, 8)))})",
            f"topic = '{self.random.choice(WILD)}'",
            "topic LIKE '%/wild'",
            "metric = 'wild'",
            "node <> 'n02'",
            "family IS NULL",
            "family = 'mem'",
            "unit = 'bytes'",
            "kind = 'counter'",
            "topic NOT LIKE 'n01/%'",
            "true",
        )

    def range(self) -> str:
        """Returns a closed range of times: all, a part, or an empty one."""
        if self.chance(0.6):
            return RANGE
        first, last = sorted(self.random.sample(range(0, 600, 10), 2))
        return self.one(
            f"time >= '{at(first)}' AND time < '{at(last)}'",
            f"time BETWEEN '{at(first)}' AND '{at(last)}'",
            f"time > '{at(first)}' AND time <= '{at(last)}'",
            f"time = '{at(first)}'",
            f"time >= '{at(last)}' AND time < '{at(first)}'",
        )

    def relation(self, is_tame: bool | None = None, alias: str = "s") -> Relation:
        is_tame = self.chance(0.6) if is_tame is None else is_tame
        if self.chance(0.25):
            topic = self.random.choice(TAME if is_tame else TAME + WILD)
            return Relation(f"{of_topic(topic)} {alias}", "true", is_tame)
        condition = f"{self.range()} AND {self.topics(is_tame)}"
        if self.chance(0.5):
            return Relation(f"samples {alias}", condition, is_tame)
        return Relation(f"(SELECT * FROM samples WHERE {condition}) {alias}", "true", is_tame)

    def number(self) -> str:
        return self.one("0", "1", "2", "-3", "5", "0.5e0", "40", "1e308", "1e-300", "0e0", "100")

    def value(self, is_tame: bool = True, depth: int = 1) -> str:
        """Returns an expression that is a double."""
        simple = ["value", "value", "coalesce(value, 0e0)", "nullif(value, 0e0)", "-value", "abs(value)", "bound"]
        if depth == 0 or self.chance(0.4):
            return self.one(*simple)
        x, y = self.value(is_tame, depth - 1), self.value(is_tame, depth - 1)
        tame = [
            f"({x} + {y})",
            f"({x} - {y})",
            f"{x} * 2e0",
            f"CASE WHEN {self.condition(0)} THEN {x} ELSE {y} END",
            f"CASE WHEN {self.condition(0)} THEN {x} END",
            f"CASE {self.one('node', 'origin')} WHEN 'n01' THEN {x} WHEN 'unknown' THEN 1e0 ELSE {y} END",
            f"greatest({x}, {y})",
            f"least({x}, {y}, 3e0)",
            f"floor({x})",
            f"ceil({x} / 2e0)",
            f"round({x})",
            f"coalesce({x}, {y}, 1e0)",
            f"nullif({x}, {self.number()})",
            "CAST(length(topic) AS DOUBLE)",
        ]
        wild = [
            f"{x} / {y}",
            f"{x} * {y}",
            f"{x} / 0e0",
            f"{x} % 3e0",
            f"sqrt(abs({x}))",
            f"{x} * 1e308",
            f"CASE WHEN {self.condition(0)} THEN {NAN} ELSE {x} END",
            f"coalesce({x}, {self.one(NAN, INFINITY)})",
            f"round({x}, 1)",
        ]
        return self.one(*(tame if is_tame else tame + wild))

    def condition(self, depth: int = 1) -> str:
        if depth > 0 and self.chance(0.4):
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.one(
                f"({a} AND {b})",
                f"({a} OR {b})",
                f"NOT ({a})",
                f"({a}) IS NOT TRUE",
                f"({a}) IS UNKNOWN",
                f"({a}) IS DISTINCT FROM ({b})",
                f"({a} AND {b} OR {a})",
            )
        compare = self.random.choice(COMPARISONS)
        return self.one(
            f"value {compare} {self.number()}",
            f"value {compare} {self.number()}",
            f"value {compare} {self.one(NAN, INFINITY, '-' + INFINITY, '-0e0')}",
            f"{self.number()} {compare} value",
            f"node {compare} 'n02'",
            "value IS NULL",
            "value IS NOT NULL",
            f"value IS DISTINCT FROM {self.number()}",
            f"value IS NOT DISTINCT FROM {self.one('NULL', self.number())}",
            f"value IN ({self.number()}, {self.number()}{self.one('', ', NULL')})",
            f"value NOT IN ({self.number()}, {self.number()}{self.one('', ', NULL')})",
            f"value BETWEEN {self.number()} AND {self.number()}",
            f"value NOT BETWEEN {self.number()} AND 10",
            f"origin = {self.one(quoted(['measured']), quoted(['unknown']))}",
            f"unit {self.one('IN', 'NOT IN')} ('', 'bytes', NULL)",
            "bound > 0.1e0",
            f"coalesce(value, {self.number()}) > 0",
            f"value + bound {compare} 1",
            "topic LIKE '%/depth'",
            "topic LIKE 'n0_/app%'",
            "kind LIKE 'g%'",
        )

    def text(self) -> str:
        return self.one(
            "topic",
            "node",
            "unit",
            "kind",
            "origin",
            "upper(node)",
            "node || '-' || kind",
            "substr(topic, 1, 6)",
            "split_part(topic, '/', 2)",
            "replace(topic, '/', '.')",
            "nullif(unit, '')",
            "CASE WHEN value IS NULL THEN 'none' WHEN value > 1 THEN 'many' ELSE 'few' END",
        )

    def key(self) -> str:
        return self.one(
            "topic",
            "node",
            "origin",
            "kind",
            "unit",
            self.text(),
            f"time_bucket('{self.one('10s', '1m', '7s', '3m')}', time)",
            f"date_bin(INTERVAL '{self.one('30 seconds', '1 minutes', '13 seconds')}', time)",
            "date_trunc('minute', time)",
            "value",
            "value > 0",
            "value IS NULL",
            "floor(value)",
            "time",
        )

    def aggregate(self, is_tame: bool) -> str:
        x = self.value(is_tame)
        any_order = [
            "count(*)",
            f"count({x})",
            f"count(DISTINCT {self.one('value', 'node', x)})",
            f"min({x})",
            f"max({x})",
            f"max({self.text()})",
            "min(time)",
            "max(time)",
            f"bool_or({self.condition(0)})",
            f"bool_and({self.condition(0)})",
            f"sum(CASE WHEN {self.condition(0)} THEN 1 ELSE 0 END)",
            "string_agg(DISTINCT node, ',' ORDER BY node)",
        ]
        sums = [
            f"sum({x})",
            f"avg({x})",
            "sum(value)",
            "avg(value)",
            f"sum(DISTINCT {x})",
            "avg(DISTINCT value)",
            f"stddev({x})",
            "stddev_pop(value)",
            f"var_pop({x})",
            "var_samp(value)",
            f"median({x})",
            "covar_pop(value, bound)",
        ]
        made = self.one(*(any_order + sums if is_tame else any_order))
        is_plain = "ORDER BY" not in made
        return f"{made} FILTER (WHERE {self.condition()})" if is_plain and self.chance(0.25) else made

    # Statements: text, whether it is tame, and whether its order counts.

    def aggregates(self):
        r = self.relation()
        items = self.some(lambda: self.aggregate(r.is_tame), 4)
        wanted = f" AND {self.condition()}" if self.chance(0.4) else ""
        having = self.one("", "", "", " HAVING count(*) > 5", " HAVING max(value) IS NULL")
        return f"SELECT {named(items)} FROM {r.text} WHERE {r.where}{wanted}{having}", r.is_tame, False

    def groups(self):
        r = self.relation()
        keys = list(dict.fromkeys(self.some(self.key, 3)))
        items = self.some(lambda: self.aggregate(r.is_tame), 3)
        having = self.one("", "", f" HAVING {self.aggregate(r.is_tame)} IS NOT NULL", " HAVING count(value) > 2")
        by = ", ".join(keys)
        if len(keys) > 1:
            by = self.one(by, by, by, f"ROLLUP ({by})", f"CUBE ({by})", f"GROUPING SETS (({keys[0]}), ({keys[1]}), ())")
            keys = keys[:2] if by.startswith("GROUPING") else keys
        text = f"SELECT {named(keys + items)} FROM {r.text} WHERE {r.where} GROUP BY {by}{having}"
        return text, r.is_tame, False

    def rows(self):
        r = self.relation()
        items = ["topic", "time"] + self.some(
            lambda: self.one(self.value(r.is_tame, 2), self.condition(), self.text()), 3
        )
        order = ""
        if self.chance(0.5):
            first = self.one(
                *(
                    f"{c}{d}"
                    for c in ("value", "node", "bound", "unit")
                    for d in ("", " DESC", " DESC NULLS LAST", " NULLS FIRST")
                )
            )
            order = f" ORDER BY {first}, topic, time" + self.one(
                "", " LIMIT 7", " LIMIT 5 OFFSET 3", " LIMIT 0", " OFFSET 10"
            )
        text = f"SELECT {named(items)} FROM {r.text} WHERE {r.where} AND {self.condition(2)}{order}"
        return text, r.is_tame, bool(order)

    def distinct(self):
        r = self.relation()
        items = self.some(lambda: self.one(self.key(), self.value(r.is_tame)), 3)
        return f"SELECT DISTINCT {named(items)} FROM {r.text} WHERE {r.where}", r.is_tame, False

    def join(self):
        is_tame = self.chance(0.6)
        a, b = self.side(is_tame, "a"), self.side(is_tame, "b")
        how = self.one("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN", "LEFT JOIN")
        on = self.one(
            "a.time = b.time",
            "a.time = b.time AND a.topic = b.topic",
            "a.time = b.time AND a.node <> b.node",
            "a.value = b.value AND a.time = b.time",
            "a.topic = b.topic AND a.time = b.time AND a.value > 1",
            "a.node = b.node AND time_bucket('1m', a.time) = time_bucket('1m', b.time)",
            "a.value IS NOT DISTINCT FROM b.value AND a.time = b.time",
        )
        if self.chance(0.5):
            shown = "count(*) AS c1, count(a.value) AS c2, count(b.value) AS c3, min(b.time) AS c4, max(a.value) AS c5"
            return f"SELECT {shown} FROM {a} {how} {b} ON {on}", is_tame, False
        shown = "a.topic AS t1, a.time AS t2, a.value AS v1, b.topic AS t3, b.time AS t4, b.value AS v2"
        wanted = self.one("", " WHERE b.value IS NULL", " WHERE a.value > b.value OR b.topic IS NULL")
        return f"SELECT {shown} FROM {a} {how} {b} ON {on}{wanted}", is_tame, False

    def side(self, is_tame: bool, alias: str) -> str:
        r = self.relation(is_tame, alias)
        return r.text if r.where == "true" else f"(SELECT * FROM samples WHERE {r.where}) {alias}"

    def window(self):
        r = self.relation()
        by = self.one(
            "PARTITION BY topic ORDER BY time",
            "PARTITION BY topic ORDER BY time",
            "ORDER BY time, topic",
            "PARTITION BY topic ORDER BY time DESC",
            "PARTITION BY node ORDER BY time, topic",
        )
        ties = self.one(
            "ORDER BY value", "PARTITION BY topic ORDER BY value DESC", "PARTITION BY node ORDER BY value NULLS FIRST"
        )

        def item():
            return self.one(
                f"row_number() OVER ({by})",
                f"lag(value) OVER ({by})",
                f"lag(value, 2, 0e0) OVER ({by})",
                f"lead(node, 1) OVER ({by})",
                f"rank() OVER ({ties})",
                f"dense_rank() OVER ({ties})",
                f"percent_rank() OVER ({ties})",
                f"cume_dist() OVER ({ties})",
                f"ntile(4) OVER ({by})",
                f"first_value(value) OVER ({by})",
                f"last_value(value) OVER ({by})",
                f"nth_value(value, 3) OVER ({by})",
                f"value - lag(value) OVER ({by})",
                f"count(value) OVER ({by})",
                f"max(value) OVER ({by})",
                "count(*) OVER ()",
                "max(time) OVER (PARTITION BY node)",
            )

        return f"SELECT topic, time, {named(self.some(item, 3))} FROM {r.text} WHERE {r.where}", r.is_tame, False

    def frame(self):
        is_tame = self.chance(0.7)
        r = self.relation(is_tame)
        rows = self.one(
            "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN 3 PRECEDING AND 1 FOLLOWING",
            "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            "RANGE BETWEEN INTERVAL '10 seconds' PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN INTERVAL '25 seconds' PRECEDING AND INTERVAL '25 seconds' FOLLOWING",
            "RANGE BETWEEN INTERVAL '1 minute' PRECEDING AND INTERVAL '10 seconds' PRECEDING",
        )
        functions = ["count(value)", "count(*)", "min(value)", "max(value)", "first_value(value)", "last_value(value)"]
        functions += ["sum(value)", "avg(value)"] if is_tame or self.chance(0.2) else []
        functions += ["stddev(value)"] if is_tame else []
        items = [f"{self.one(*functions)} OVER (PARTITION BY topic ORDER BY time {rows})" for _ in range(2)]
        return f"SELECT topic, time, value, {named(items)} FROM {r.text} WHERE {r.where}", is_tame, False

    def range_of_values(self):
        """RANGE frames over numbers, in which NULL and peers matter."""
        r = self.relation(True)
        rows = self.one(
            "RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            "RANGE BETWEEN 2 PRECEDING AND CURRENT ROW",
            "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
        )
        order = self.one("value", "value DESC", "value NULLS FIRST", "value DESC NULLS LAST")
        function = self.one("count(*)", "count(value)", "sum(value)", "min(value)", "max(topic)")
        item = f"{function} OVER (PARTITION BY topic ORDER BY {order} {rows})"
        return f"SELECT topic, time, {item} AS c0 FROM {r.text} WHERE {r.where}", True, False

    def as_of(self):
        is_tame = self.chance(0.6)
        a = self.side(is_tame, "a")
        # One topic, so that no two rows have the same time.
        b = f"{of_topic(self.random.choice(TAME if is_tame else WILD))} b"
        compare = self.one(">=", ">", "<=", "<")
        keys = self.one("", " ON a.node = b.node", " ON a.topic = b.topic", " ON a.value = b.value")
        shown = "a.topic AS t1, a.time AS t2, b.topic AS t3, b.time AS t4, b.value AS v"
        if self.chance(0.3):
            shown = "count(*) AS c1, count(b.time) AS c2, max(b.time) AS c3"
        return f"SELECT {shown} FROM {a} ASOF JOIN {b} MATCH_CONDITION (a.time {compare} b.time){keys}", is_tame, False

    def sets(self):
        columns = self.one("value", "node, value", "topic", "time", "node, value > 1", "origin, unit")
        is_tame = self.chance(0.5)
        parts = []
        for _ in range(self.random.randint(2, 3)):
            r = self.relation(is_tame)
            parts.append(f"SELECT {columns} FROM {r.text} WHERE {r.where}")
        text = parts[0]
        for part in parts[1:]:
            text += f" {self.one('UNION', 'UNION ALL', 'INTERSECT', 'INTERSECT ALL', 'EXCEPT', 'EXCEPT ALL')} {part}"
        return text, is_tame, False

    def subquery(self):
        r, q = self.relation(), self.relation(alias="q")
        inner = f"FROM {q.text} WHERE {q.where}"
        also = f" AND {self.condition()}" if self.chance(0.5) else ""
        condition = self.one(
            f"value IN (SELECT value {inner}{also})",
            f"value NOT IN (SELECT value {inner}{also})",
            f"value NOT IN (SELECT value {inner} AND value IS NOT NULL)",
            f"time IN (SELECT time {inner}{also})",
            f"EXISTS (SELECT 1 {inner} AND q.time = s.time AND q.topic <> s.topic)",
            f"EXISTS (SELECT 1 {inner} AND q.value IS NULL)",
            f"NOT EXISTS (SELECT 1 {inner} AND q.topic = s.topic AND q.value > s.value)",
            f"value > (SELECT min(value) {inner}{also})",
            f"value = (SELECT max(q.value) {inner} AND q.topic = s.topic)",
            f"value < (SELECT count(*) {inner} AND q.node = s.node)",
            f"NOT (value IN (SELECT value {inner}))",
            f"(value IN (SELECT value {inner})) IS NULL",
            f"(value IN (SELECT value {inner}) OR value IS NULL)",
        )
        text = f"SELECT topic, time, value FROM {r.text} WHERE {r.where} AND {condition}"
        return text, r.is_tame and q.is_tame, False

    def common_table(self):
        r = self.relation(True)
        slot = "time_bucket('1m', time)"
        made = (
            f"WITH g AS (SELECT topic, {slot} AS slot, avg(value) AS mean, count(*) AS n, max(value) AS top "
            f"FROM {r.text} WHERE {r.where} GROUP BY topic, {slot})"
        )
        rest = self.one(
            "SELECT topic, max(mean) AS c1, sum(n) AS c2 FROM g GROUP BY topic",
            "SELECT a.slot, a.mean AS m1, b.mean AS m2 FROM g a JOIN g b ON a.slot = b.slot AND a.topic < b.topic",
            "SELECT topic, slot, mean - lag(mean) OVER (PARTITION BY topic ORDER BY slot) AS d FROM g",
            "SELECT count(*) AS c1 FROM g WHERE mean > (SELECT avg(mean) + 0.001e0 FROM g)",
            "SELECT slot, count(*) AS c1 FROM g GROUP BY slot ORDER BY c1 DESC, slot LIMIT 3",
            "SELECT topic, slot FROM g WHERE top = (SELECT max(top) FROM g h WHERE h.topic = g.topic)",
            "SELECT topic, slot, n FROM g EXCEPT SELECT topic, slot, n FROM g WHERE n > 5",
        )
        return f"{made} {rest}", True, "LIMIT" in rest

    def times(self):
        r = self.relation()

        def item():
            return self.one(
                "time + INTERVAL '90 seconds'",
                "time - INTERVAL '1 day'",
                f"date_trunc('{self.one('second', 'minute', 'hour', 'day', 'week', 'month', 'year')}', time)",
                f"extract({self.one('minute', 'hour', 'day', 'month', 'year', 'dow', 'doy', 'week')} FROM time)",
                f"time > TIMESTAMP '2026-01-01 00:0{self.random.randint(0, 9)}:00'",
                f"time_bucket('{self.random.randint(1, 100)}s', time)",
                f"date_bin(INTERVAL '{self.random.randint(1, 20)} minutes', time)",
                f"time BETWEEN '{at(30)}' AND '{at(300)}'",
                f"coalesce(nullif(time, '{at(60)}'), time - INTERVAL '1 hour')",
            )

        return f"SELECT topic, time, {named(self.some(item, 3))} FROM {r.text} WHERE {r.where}", r.is_tame, False

    def constants(self):
        """Rows of constants with NULL, NaN and infinities: logic, sorting, groups."""
        # The first row gives the columns their types.
        rows = ["(-1, 3e0, 4e0)"] + [
            f"({i}, {self.special()}, {self.special()})" for i in range(self.random.randint(2, 6))
        ]
        source = f"(VALUES {', '.join(rows)}) t(i, x, y)"
        others = f"(VALUES (1, {self.special()}), (2, {self.special()}), (3, 1e0)) b(i, x)"
        c = self.random.choice(COMPARISONS)
        order = self.one("", " DESC", " NULLS FIRST", " DESC NULLS LAST")
        sets = self.one("INTERSECT", "EXCEPT", "UNION", "INTERSECT ALL", "EXCEPT ALL")
        is_in = self.one("IN", "NOT IN")
        last_two = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
        text = self.one(
            f"SELECT i, x {c} y AS c1, x IS DISTINCT FROM y AS c2 FROM {source}",
            f"SELECT i, greatest(x, y) AS c1, least(x, y) AS c2 FROM {source}",
            f"SELECT i, count(*) OVER (PARTITION BY x) AS c1 FROM {source}",
            f"SELECT i FROM {source} WHERE i {is_in} (0, 1, NULL) {self.one('AND', 'OR')} i NOT IN (2, NULL)",
            f"SELECT i FROM {source} WHERE i IN (0, 1) AND i {is_in} (1, 2{self.one('', ', NULL')})",
            f"SELECT x, count(*) AS c1, min(y) AS c2, max(y) AS c3 FROM {source} GROUP BY x",
            f"SELECT min(x) AS c1, max(x) AS c2, count(DISTINCT x) AS c3 FROM {source}",
            f"SELECT count(DISTINCT y) FILTER (WHERE x {c} y) AS c1, count(*) AS c2 FROM {source}",
            f"SELECT i, x FROM {source} ORDER BY x{order}, i",
            f"SELECT DISTINCT x FROM {source}",
            f"SELECT i, x + y AS c1, x - y AS c2, x * y AS c3, x / y AS c4, -x AS c5, abs(y) AS c6 FROM {source}",
            f"SELECT i, x IN (y, 1) AS c1, x NOT IN (1, NULL) AS c2, x BETWEEN 0 AND y AS c3 FROM {source}",
            f"SELECT i, nullif(x, y) AS c1, coalesce(x, y) AS c2 FROM {source}",
            f"SELECT t.i AS i1, b.i AS i2 FROM {source} JOIN {others} ON t.x = b.x",
            f"SELECT i, CASE WHEN x {c} y THEN 'yes' WHEN x IS NULL THEN 'none' ELSE 'no' END AS c1 FROM {source}",
            f"SELECT i, CASE x WHEN 0e0 THEN 'zero' WHEN y THEN 'same' ELSE 'other' END AS c1 FROM {source}",
            f"SELECT i, (x {c} y AND y > 0) AS c1, (x {c} y OR y IS NULL) AS c2, NOT x {c} y AS c3 FROM {source}",
            f"SELECT i, rank() OVER (ORDER BY x) AS c1, max(x) OVER (ORDER BY i) AS c2 FROM {source}",
            f"SELECT i, min(x) OVER (ORDER BY i {last_two}) AS c1, sum(x) OVER (ORDER BY i) AS c2 FROM {source}",
            f"SELECT x FROM {source} {sets} SELECT y FROM {source}",
        )
        return text, False, "ORDER BY x" in text and "OVER" not in text

    def special(self) -> str:
        return self.one("1e0", "0e0", "-0e0", "NULL", NAN, INFINITY, f"-{INFINITY}", "1e308", "-1e308", "5e-324", "2e0")

    def integers(self):
        """Integers: division, remainder, overflow, casts."""
        r = self.relation(True)
        n = "CAST(trunc(value) AS BIGINT)"

        def item():
            return self.one(
                f"{n} + 1",
                f"{n} * {n}",
                f"{n} % 4",
                f"abs({n})",
                f"{n} & 3",
                f"{n} * 9223372036854775807",
                f"{n} + 9223372036854775800",
                f"CAST({n} AS VARCHAR)",
                f"CAST({n} AS INT) + 2147483600",
                f"CAST({n} AS SMALLINT)",
                f"nullif({n}, 0)",
                f"CAST({n} AS DOUBLE) / 4",
                f"{n} BETWEEN 0 AND 2.5e0",
                f"{n} = value",
            )

        if self.chance(0.3):
            items = named([f"sum({n})", f"avg({n})", f"count(DISTINCT {n})", f"max({n})"])
            return f"SELECT {items} FROM {r.text} WHERE {r.where}", True, False
        return f"SELECT topic, time, {named(self.some(item, 2))} FROM {r.text} WHERE {r.where}", True, False

    def own_functions(self):
        """Functions of this project that have a translation."""
        r = self.relation()

        def item():
            return self.one(
                "first(value)", "last(value)", *(["delta(value)"] if r.is_tame else []), "last(origin)", "first(bound)"
            )

        key = self.one("topic", "topic, time_bucket('1m', time)")
        return (
            f"SELECT {named([*key.split(', ', 1), *self.some(item, 2)])} FROM {r.text} WHERE {r.where} GROUP BY {key}",
            r.is_tame,
            False,
        )

    def rate(self):
        topic = self.random.choice(
            ["n01/app/total", "n01/app/depth", "n02/app/depth", "n03/app/once", "n03/app/unknown"]
        )
        where = f"topic = '{topic}' AND {self.range()}"
        key = self.one("topic", "node")
        ours = f"SELECT {key}, rate(value) AS c1 FROM samples WHERE {where} GROUP BY {key}"
        steps = (
            f"SELECT {key}, value - lag(value) OVER w AS d, epoch_us(time) - lag(epoch_us(time)) OVER w AS took "
            f"FROM samples WHERE {where} WINDOW w AS (ORDER BY time)"
        )
        rose = "FILTER (WHERE d >= 0)"
        theirs = f"SELECT {key}, sum(d) {rose} / (sum(took) {rose} / 1e6) FROM ({steps}) GROUP BY {key}"
        return Statement("rate", ours, theirs)

    def gaps(self):
        """Buckets without gaps; `locf` carries only over buckets without rows."""
        topic = self.random.choice(TAME)
        seconds = self.random.choice([10, 30, 60])
        first = self.random.randrange(0, 300, 60)
        last = first + self.random.choice([60, 180, 300])
        where = f"topic = '{topic}' AND time >= '{at(first)}' AND time < '{at(last)}'"
        inner = self.one("avg(value)", "count(*)", "max(value)", "min(value)")
        is_carried = inner != "count(*)" and self.chance(0.5)
        ours = (
            f"SELECT time_bucket_gapfill('{seconds}s', time) AS slot, topic, "
            f"{f'locf({inner})' if is_carried else inner} AS x FROM samples WHERE {where} GROUP BY slot, topic"
        )
        width = f"INTERVAL '{seconds} seconds'"
        found = (
            f"SELECT time_bucket({width}, time) AS slot, topic, {inner} AS x, true AS has FROM samples "
            f"WHERE {where} GROUP BY ALL"
        )
        slots = f"generate_series(TIMESTAMPTZ '{at(first)}', TIMESTAMPTZ '{at(last - 1)}', {width})"
        grid = f"SELECT g.slot, t.topic FROM (SELECT unnest({slots}) AS slot) g, (SELECT DISTINCT topic FROM b) t"
        before = "SELECT p.x FROM b p WHERE p.slot < f.slot AND p.topic = f.topic ORDER BY p.slot DESC LIMIT 1"
        x = f"CASE WHEN has THEN x ELSE ({before}) END" if is_carried else "x"
        filled = f"SELECT g.slot, g.topic, b.x, b.has FROM ({grid}) g LEFT JOIN b USING (slot, topic)"
        theirs = f"WITH b AS ({found}), f AS ({filled}) SELECT slot, topic, {x} FROM f"
        return Statement("gaps", ours, theirs)

    def latest_at(self):
        """The sample of each topic that held at a time."""
        then, nodes = at(self.random.randrange(0, 660, 5)), "node IN ('n01', 'n02', 'n03')"
        also = self.one("", " AND value > 1", " AND family = 'mem'", " AND topic LIKE '%/depth'", " AND value IS NULL")
        shown = self.one("topic, value, time, origin", "topic, bound, unit", "count(*), max(value)", "node, time")
        found = f"SELECT DISTINCT ON (topic) * FROM samples WHERE time <= '{then}' ORDER BY topic, time DESC"
        ours = f"SELECT {shown} FROM latest_at('{then}') WHERE {nodes}{also}"
        theirs = f"SELECT {shown} FROM ({found}) WHERE {nodes}{also}"
        return Statement("latest at", ours, to_duckdb(theirs))

    def newest(self):
        """One row of each group, in the three ways that SQL has."""
        r = self.relation()
        key = self.one("topic", "node", "unit")
        order = self.one("time DESC, topic", "time, topic", "value DESC, time, topic", "value, topic, time")
        number = f"row_number() OVER (PARTITION BY {key} ORDER BY {order})"
        return (
            self.one(
                f"SELECT DISTINCT ON ({key}) {key}, time, value FROM {r.text} WHERE {r.where} ORDER BY {key}, {order}",
                f"SELECT {key}, time, value FROM {r.text} WHERE {r.where} QUALIFY {number} <= 2",
                f"SELECT * FROM (SELECT {key}, time, value, {number} AS n FROM {r.text} WHERE {r.where}) q WHERE n = 1",
            ),
            r.is_tame,
            False,
        )

    def extreme(self):
        """A column beside MAX or MIN comes from the row that has it."""
        tables = [f'"{self.random.choice(TAME + WILD)}"' for _ in range(self.random.randint(1, 4))]
        union = self.one("UNION", "UNION ALL")
        name, order = self.random.choice([("MAX", "DESC"), ("MIN", "ASC")])
        ours = f" {union} ".join(f"SELECT {name}(timestamp), metric, origin FROM {t}" for t in tables)
        theirs = f" {union} ".join(
            f"(SELECT timestamp, metric, origin FROM {t} ORDER BY timestamp {order} LIMIT 1)" for t in tables
        )
        return Statement("extreme", ours, theirs, False)

    def mistakes(self):
        """Statements that both refuse, or whose rules differ."""
        return (
            self.one(
                "SELECT valu FROM samples",
                "SELECT value FROM sample",
                "SELECT topic, count(*) FROM samples GROUP BY node",
                f"SELECT sum(topic) FROM samples WHERE {RANGE}",
                f"SELECT value FROM samples WHERE {RANGE} GROUP BY value HAVING nothing > 1",
                f"SELECT nofunction(value) FROM samples WHERE {RANGE}",
                f"SELECT abs(value, 1) FROM samples WHERE {RANGE}",
                f"SELECT sqrt('x') FROM samples WHERE {RANGE}",
                "SELECT FROM WHERE",
                "SELECT (1",
                f"SELECT value FROM samples a, samples b WHERE a.{RANGE}",
                f"SELECT CAST('x' AS BIGINT) FROM samples WHERE {RANGE}",
                f"SELECT (SELECT value FROM samples WHERE {RANGE}) AS c1",
                f"SELECT value FROM samples WHERE {RANGE} UNION SELECT topic, value FROM samples WHERE {RANGE}",
                f"SELECT max(sum(value)) FROM samples WHERE {RANGE}",
                f"SELECT value FROM samples WHERE {RANGE} AND sum(value) > 1",
                f"SELECT row_number() OVER (ORDER BY time) AS n FROM samples WHERE {RANGE} AND n = 1",
                f"SELECT topic FROM samples WHERE {RANGE} AND topic > 5",
                f"SELECT lag(value) FROM samples WHERE {RANGE}",
                f"SELECT rank() FROM samples WHERE {RANGE}",
                f"SELECT abs(value) OVER (ORDER BY time) FROM samples WHERE {RANGE}",
                f"SELECT s.value FROM samples WHERE {RANGE}",
                f"SELECT samples.value FROM samples s WHERE {RANGE}",
                f"SELECT q.value FROM (SELECT topic FROM samples WHERE {RANGE}) q",
                f"SELECT count(*) FROM samples WHERE {RANGE} GROUP BY node ORDER BY value",
                f"SELECT DISTINCT node FROM samples WHERE {RANGE} ORDER BY time",
                f"SELECT count(value) FROM samples WHERE {RANGE} ORDER BY time",
                f"SELECT topic FROM samples WHERE {RANGE} UNION SELECT topic FROM samples ORDER BY samples.topic",
                f"SELECT value FROM samples a JOIN samples b ON a.time = b.time WHERE a.{RANGE} AND b.topic = 'x'",
                f"SELECT max(value) OVER (ORDER BY nothing) FROM samples WHERE {RANGE}",
                f"SELECT substr(topic) FROM samples WHERE {RANGE}",
                f"SELECT sum(value) FILTER (WHERE nothing > 1) FROM samples WHERE {RANGE}",
                f"SELECT value FROM samples WHERE {RANGE} AND EXISTS (SELECT 1 FROM samples b WHERE b.valu = 1)",
                f"SELECT value + topic FROM samples WHERE {RANGE}",
                f"SELECT time + 5 FROM samples WHERE {RANGE}",
                "SELECT 1 / 0",
                "SELECT 5 % 0",
                "SELECT CAST(1e300 AS BIGINT)",
                "SELECT CAST(300 AS TINYINT)",
                "SELECT 9223372036854775807 + 1",
                'SELECT value FROM "n09/no/body"',
            ),
            False,
            False,
        )


KINDS: dict[str, tuple[Callable[[Maker], object], int]] = {
    "aggregates": (Maker.aggregates, 12),
    "groups": (Maker.groups, 14),
    "rows": (Maker.rows, 12),
    "distinct": (Maker.distinct, 5),
    "join": (Maker.join, 8),
    "window": (Maker.window, 8),
    "frame": (Maker.frame, 8),
    "range of values": (Maker.range_of_values, 3),
    "as of": (Maker.as_of, 6),
    "sets": (Maker.sets, 6),
    "subquery": (Maker.subquery, 8),
    "common table": (Maker.common_table, 4),
    "times": (Maker.times, 4),
    "constants": (Maker.constants, 8),
    "integers": (Maker.integers, 4),
    "own functions": (Maker.own_functions, 4),
    "rate": (Maker.rate, 1),
    "gaps": (Maker.gaps, 2),
    "latest at": (Maker.latest_at, 2),
    "newest": (Maker.newest, 3),
    "extreme": (Maker.extreme, 2),
    "mistakes": (Maker.mistakes, 2),
}


def named(items: list[str]) -> str:
    """Returns a list of columns with distinct names."""
    return ", ".join(f"{item} AS c{at}" for at, item in enumerate(items))


def quoted(texts: list[str]) -> str:
    """Returns a list of SQL texts."""
    return ", ".join(f"'{text}'" for text in texts)


def at(second: int) -> str:
    """Returns the time that is this many seconds after the first sample may be."""
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def of_topic(topic: str) -> str:
    """Returns the table of a topic with the columns of `samples`."""
    parts = topic.split("/")
    family = f"'{parts[1]}'" if parts[1] in ("mem", "load") else "CAST(NULL AS VARCHAR)"
    kind = "counter" if topic.endswith("/total") else "gauge"
    return (
        f"(SELECT '{topic}' AS topic, '{parts[0]}' AS node, {family} AS family, '{parts[-1]}' AS metric, "
        f"'{kind}' AS kind, timestamp AS time, metric AS value, origin, bound, unit FROM \"{topic}\")"
    )
