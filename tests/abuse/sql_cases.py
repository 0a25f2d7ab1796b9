"""Cases of statements that grow: texts, arrays, lists, levels, names and joins. All are sent by HTTP."""

import itertools
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from clients import Attack, post_sql, send_http

AT_ONCE = 16


async def ask_all(attack: Attack, statements: Iterable[str], at_once: int = AT_ONCE) -> None:
    """Asks statements until the time is over."""
    requests = (post_sql(sql) for sql in statements)
    await attack.do((partial(send_http, attack.hub.http, data) for data in requests), at_once)


def rounds(attack: Attack, statements: list[str], full: int, quick: int) -> Iterable[str]:
    """Repeats statements, each time with another comment, so that none is in a cache."""
    for at in range(attack.many(full, quick)):
        for sql in statements:
            yield f"{sql} -- {at}"


def growing(what: str, statements: list[str], full: int = 10, quick: int = 1) -> Callable[[Attack], Awaitable[None]]:
    """Returns the case of statements that are repeated."""

    async def case(attack: Attack) -> None:
        await ask_all(attack, rounds(attack, statements, full, quick))

    case.__doc__ = what
    return case


def nested(call: str, start: str, levels: int) -> str:
    """Returns a call whose argument `{}` is the same call, some levels deep."""
    for _ in range(levels):
        start = call.replace("{}", start)
    return start


def doubled(levels: int, start: str = "topic", by: str = "t || t") -> str:
    """Returns a chain of subqueries, each of which doubles the texts of the one before."""
    steps = [f"t{at + 1} AS (SELECT {by} AS t FROM t{at})" for at in range(levels)]
    return f"WITH t0 AS (SELECT {start} AS t FROM latest), " + ", ".join(steps)


def total_length(call: str, levels: int) -> str:
    """Returns a statement that reads nested calls on every topic."""
    return f"SELECT sum(length({nested(call, 'topic', levels)})) FROM latest"


SIXTEEN = "'xxxxxxxxxxxxxxxx'"
MULTIPLY = f"replace({{}}, 'x', {SIXTEEN})"
REPLACE = [
    *(f"SELECT length({nested(MULTIPLY, SIXTEEN, levels)})" for levels in (5, 6, 7)),
    total_length("replace({}, 's', topic)", 6),
    total_length("replace({}, 'm', topic || topic)", 5),
]
CONCAT = [
    *(f"{doubled(levels)} SELECT sum(length(t)) FROM t{levels}" for levels in (10, 12, 16)),
    f"{doubled(12, by='concat(t, t)')} SELECT sum(length(t)) FROM t12",
    f"{doubled(8, by='concat_ws(t, t, t, t)')} SELECT max(length(t)) FROM t8",
    f"SELECT length({nested('({} || {})', SIXTEEN, 12)})",
]
OTHER_TEXTS = [
    "SELECT length(repeat('x', 2000000000))",
    "SELECT sum(length(repeat(topic, 100000))) FROM latest",
    "SELECT length(lpad('x', 2000000000, 'y')), length(rpad('x', 2000000000, 'y'))",
    total_length("regexp_replace({}, '.', '\\0\\0\\0\\0', 'g')", 6),
    total_length("encode({}, 'hex')", 12),
    total_length("overlay({} PLACING {} FROM 2)", 6),
    total_length("array_to_string(make_array({}, {}, {}, {}), {})", 4),
]
AGGREGATES = [
    "SELECT length(string_agg(a.topic, ',')) FROM latest a, latest b",
    "SELECT length(string_agg(s, s)) FROM (SELECT string_agg(topic, topic) AS s FROM samples GROUP BY node)",
    "SELECT sum(length(string_agg(topic, topic))) OVER () FROM samples GROUP BY metric",
    "SELECT array_length(array_agg(a.topic || b.topic)) FROM latest a, latest b",
    "SELECT string_agg(topic, ',') OVER (ORDER BY topic) FROM latest",
    "SELECT array_agg(topic) OVER (ORDER BY topic) FROM latest",
    "SELECT count(DISTINCT a.topic || b.topic) FROM latest a, latest b",
    "SELECT median(a.value + b.value) FROM latest a, latest b",
]
ARRAYS = [
    "SELECT array_length(array_repeat(1, 2000000000))",
    "SELECT array_length(range(1, 2000000000))",
    "SELECT array_length(array_resize(make_array(1), 2000000000, 1))",
    f"{doubled(18, 'make_array(value)', 'array_concat(t, t)')} SELECT sum(array_length(t)) FROM t18",
    f"{doubled(14, 'make_array(topic)', 'array_cat(t, t)')} SELECT sum(cardinality(t)) FROM t14",
    f"{doubled(20, 'make_array(value)', 'make_array(t, t)')} SELECT count(t) FROM t20",
    "SELECT unnest(array_agg(a.topic)) FROM latest a, latest b",
    "SELECT array_length(string_to_array(string_agg(topic, ','), '')) FROM samples",
    "SELECT generate_series(1, 1000000000)",
]
JOINS = [
    "SELECT count(*) FROM latest a, latest b, latest c",
    "SELECT a.topic, b.topic FROM samples a, samples b ORDER BY a.value + b.value LIMIT 10",
    "SELECT count(*) FROM samples a JOIN samples b ON a.value < b.value + random()",
    "SELECT a.* FROM samples a JOIN samples b ON a.node = b.node JOIN samples c ON c.node = b.node",
    "SELECT count(DISTINCT value) FROM generate_series(1, 100000000000)",
    "SELECT * FROM generate_series(1, 100000000000) ORDER BY value DESC",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "WITH RECURSIVE r AS (SELECT 'x' AS t UNION ALL SELECT t || t FROM r) SELECT max(length(t)) FROM r",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r, (VALUES (1), (2)) v) SELECT count(*) FROM r",
    "SELECT count(*) FROM samples a WHERE EXISTS (SELECT 1 FROM samples b WHERE b.value > a.value + random())",
    "SELECT sum(a.value) OVER (PARTITION BY a.node ORDER BY b.value) FROM latest a, latest b",
]


async def long_lists(attack: Attack) -> None:
    """512 statements at one time with lists of thousands of names: point reads, planned ones, and numbers."""

    def statements() -> Iterable[str]:
        for at in range(attack.many(2048, 64)):
            names = ", ".join(f"'n{at}/mem/{number}_bytes'" for number in range(4500))
            numbers = ", ".join(str(at + number / 8) for number in range(12_000))
            yield f"SELECT value FROM latest WHERE topic IN ({names})"
            yield f"SELECT max(value) FROM samples WHERE topic NOT IN ({names})"
            yield f"SELECT count(*) FROM samples WHERE value IN ({numbers})"

    await ask_all(attack, statements(), attack.many(512, 64))


async def unknown_names(attack: Attack) -> None:
    """Statements with names that exist nowhere, in each of many branches or behind 199 that exist, 64 at one time."""
    known = "".join(character if character.isalnum() else "_" for character in attack.hub.topic)

    def union(names: Iterable[str]) -> str:
        return " UNION ".join(f"SELECT MAX(timestamp), metric FROM {name}" for name in names)

    def statements() -> Iterable[str]:
        for at in range(attack.many(2000, 30)):
            yield union(f"nowhere_at_all_{at}_{branch}" for branch in range(200))
            yield union(f"n{at}_mem_available_byte{branch}" for branch in range(90))
            yield union([*itertools.repeat(known, 199), f"nowhere_{at}"])

    await ask_all(attack, statements(), 64)


async def deep(attack: Attack) -> None:
    """Statements of as many levels as their length allows, in every way to nest."""
    size = 60_000
    wholes = [
        "SELECT " + "(" * size + "1" + ")" * size,
        "SELECT " + "NOT " * (size // 2) + "true",
        "SELECT " + "-" * 2 + " " + "- " * size + "1",
        "SELECT " + "[" * size + "1" + "]" * size,
        "SELECT 1" + " + 1" * (size // 2),
        "SELECT * FROM " + "(SELECT * FROM " * 7000 + "latest" + ")" * 7000,
        "SELECT " + "CASE WHEN true THEN " * 5000 + "1" + " END" * 5000,
        "SELECT 1" + " UNION SELECT 1" * 8000,
        "SELECT " + "CAST(" * 8000 + "1" + " AS INT)" * 8000,
        "EXPLAIN " * 15_000 + "SELECT 1",
    ]
    allowed = [
        "SELECT " + nested("coalesce({}, 1)", "value", 95) + " FROM latest",
        "SELECT * FROM " + "(SELECT *, 1 AS one FROM " * 45 + "latest" + ")" * 45,
        "SELECT * FROM latest WHERE " + " OR ".join(f"value = {at}" for at in range(95)),
        "SELECT " + "CASE WHEN value > 1 THEN " * 45 + "1" + " END" * 45 + " FROM latest",
    ]
    await ask_all(attack, rounds(attack, wholes + allowed, 100, 3), 32)


async def many_columns(attack: Attack) -> None:
    """Statements with ten thousand columns, and with grouping sets and windows by the hundred."""
    columns = ", ".join(f"value + {at}" for at in range(8000))
    windows = ", ".join(f"avg(value) OVER (ORDER BY time ROWS {at} PRECEDING)" for at in range(300))
    sets = "CUBE (topic, node, family, instance, metric, unit, kind, origin, time, value)"
    wide = [
        f"SELECT {columns} FROM latest",
        f"SELECT {windows} FROM samples",
        f"SELECT count(*) FROM samples GROUP BY {sets}",
        "SELECT * FROM " + " NATURAL JOIN ".join(f"latest AS l{at}" for at in range(30)),
        "SELECT * FROM " + ", ".join(itertools.repeat("latest", 199)),
    ]
    await ask_all(attack, rounds(attack, wide, 20, 2))
