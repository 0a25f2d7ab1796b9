"""Statements that Skopos answers by a point read, and rewritings of them that need the planner."""

import random
import time
from collections.abc import Callable

from compare import difference
from engines import Answer, Client, Hub
from statements import NAN, Statement, named, quoted

# Live topics that nobody changes: topic and values, the last of which holds.
LIVE = {
    "hub/live/a": "5",
    "hub/live/b": "-3",
    "hub/live/c": "0.25",
    "hub/live/zero": "0",
    "hub/live/minus_zero": "-0.0",
    "hub/live/huge": "1e308",
    "hub/live/huge_too": "1e308",
    "hub/live/huge_minus": "-1e308",
    "hub/live/tiny": "1e-300",
    "hub/live/text": '"a text"',
    "hub/live/list": "[1, 2]",
}
INTEGER = ("hub/live/integer", "9007199254740993")

COLUMNS = ["value", "topic", "node", "family", "instance", "metric", "unit", "kind", "origin", "time", "text", "bound"]
EXPRESSIONS = ["value", "value * 2", "abs(value)", "-value", "value + 1", "coalesce(value, 7)", "nullif(value, 0)"]
EXPRESSIONS += ["CASE WHEN value > 3 THEN value ELSE 0 END", "CASE WHEN value > 3 THEN value END", "round(value / 2.0)"]
EXPRESSIONS += ["greatest(value, 2.5)", "least(value, 1.5)", "value / value", "value % 3", "1.5", "floor(value / 4)"]

Compared = Callable[[Statement, Answer, Answer], None]


def publish(hub: Hub) -> None:
    """Publishes the live topics."""
    for topic, value in LIVE.items():
        hub.publish(topic, value)
    hub.publish(*INTEGER, "--type", "i64")


def against_planner(hub: Hub, seed: int, count: int, compared: Compared) -> None:
    """Asks each statement both ways. An answer that changes meanwhile is asked again."""
    publish(hub)
    time.sleep(1)
    client, random_ = Client(hub.socket_path()), random.Random(seed)
    for _ in range(count):
        statement = _statement(random_)
        point = client.ask(statement.ours)
        if point.way != "point":
            compared(Statement("not a point read", statement.ours, statement.ours), point, point)
            continue
        for _ in range(3):
            planned, again = client.ask(statement.theirs), client.ask(statement.ours)
            if not difference(point, again, False, False):
                break
            point = again
        if planned.rows is not None and planned.way != "planned":
            raise RuntimeError(f"not planned: {statement.theirs}")
        compared(statement, point, planned)


def _statement(random_: random.Random) -> Statement:
    make = random_.choice([_tuples, _rows, _numbers, _numbers])
    sql = make(random_)
    return Statement(f"point {make.__name__[1:]}", sql, f"{sql} ORDER BY 1", False)


def _topics() -> list[str]:
    return [*LIVE, INTEGER[0]]


def _tuples(random_: random.Random) -> str:
    beside = random_.choice(["metric", "metric, unit", "origin, metric", "text", "bound, metric"])
    tables = [random_.choice(_topics()) for _ in range(random_.randint(1, 6))]
    union = random_.choice([" UNION ", " UNION ALL "])
    name = random_.choice(["MAX", "max"])
    return union.join(f'SELECT {name}(timestamp), {beside} FROM "{topic}"' for topic in tables)


def _rows(random_: random.Random) -> str:
    columns = ", ".join(random_.sample(COLUMNS, random_.randint(1, 4)))
    return f"SELECT {columns} FROM latest WHERE {_wanted(random_)}"


def _wanted(random_: random.Random) -> str:
    topics = random_.sample(_topics() + ["n09/no/body", "it''s"], random_.randint(1, 5))
    like = random_.choice(["hub/live/%", "hub/live/huge%", "h_b/live/_", "%/live/%zero", "nobody/%", "hub_live/a"])
    return random_.choice([f"topic = '{topics[0]}'", f"topic IN ({quoted(topics)})", f"topic LIKE '{like}'"])


def _numbers(random_: random.Random) -> str:
    items = []
    for _ in range(random_.randint(1, 3)):
        x = random_.choice(EXPRESSIONS)
        name = random_.choice(["sum", "avg", "min", "max", "count", "median"])
        item = random_.choice([f"{name}({x})", f"{name}({x})", f"quantile({x}, 0.25)", "count(*)"])
        condition = random_.choice(["value > 3", "value IS NULL", "value <> 2", f"value < {NAN}", "unit = ''"])
        items.append(f"{item} FILTER (WHERE {condition})" if random_.random() < 0.2 else item)
    more = random_.choice(["", "", " AND value > 0", " AND value IS NOT NULL", " AND NOT value IN (0, 5)"])
    return f"SELECT {named(items)} FROM latest WHERE {_wanted(random_)}{more}"
