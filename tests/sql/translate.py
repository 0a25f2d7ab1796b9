"""Turns SQL of Skopos into that of DuckDB, where the dialects differ."""

import re
from collections.abc import Callable

EPOCH = "TIMESTAMPTZ '1970-01-01 00:00:00+00'"
COLUMN = r"([\w.]+)"

Rewriting = str | Callable[[re.Match[str]], str]


def _like(found: re.Match[str]) -> str:
    """`_` is any character but a slash in a LIKE on topics."""
    column, negated, pattern = found.groups()
    expression = "".join({"%": ".*", "_": "[^/]"}.get(c, re.escape(c)) for c in pattern)
    return f"{negated or ''}regexp_full_match({column}, '{expression}')"


def _as_of(found: re.Match[str]) -> str:
    right, condition, keys = found.groups()
    return f"ASOF LEFT JOIN {right} ON {condition}" + (" AND " if keys else "")


def _bucket(found: re.Match[str]) -> str:
    count, unit, column = found.groups()
    unit = {"s": "seconds", "m": "minutes"}.get(unit, unit)
    return f"time_bucket(INTERVAL '{count} {unit}', {column}, {EPOCH})"


def _change(found: re.Match[str]) -> str:
    """The last known value minus the first, if they are two samples."""
    value = found[1]
    known = f"(ORDER BY time) FILTER ({value} IS NOT NULL)"
    first, last = (known.replace("(ORDER", f"{name}({value} ORDER", 1) for name in ("first", "last"))
    return f"CASE WHEN count({value}) > 1 THEN {last} - {first} END"


RULES: list[tuple[str, Rewriting]] = [
    (r"(\b[a-z]\.topic|\btopic) (NOT )?LIKE '([^']*)'", _like),
    (r"ASOF JOIN (.*?) MATCH_CONDITION \((.*?)\)( ON )?", _as_of),
    (rf"time_bucket\('(\d+)(\w+)', {COLUMN}\)", _bucket),
    (rf"date_bin\(INTERVAL '(\d+) (\w+)', {COLUMN}\)", _bucket),
    (r"\bdelta\((\w+)\)", _change),
    (r"\b(first|last)\((\w+)\)", r"\1(\2 ORDER BY time)"),
]


def to_duckdb(sql: str) -> str:
    """Returns the statement in DuckDB's dialect."""
    for pattern, rewriting in RULES:
        sql = re.sub(pattern, rewriting, sql)
    return sql


def without_minus_zero(sql: str) -> str:
    """Returns a statement of Skopos in which no value is minus zero, as far as its text shows."""
    sql = re.sub(r"-0e0|-0\.0", "0e0", sql)
    sql = re.sub(r"(?<![\w)] )-value\b", "(0e0 - value)", sql)
    sql = re.sub(r"(nullif\((?!unit|time)|(?:count|sum|avg)\(DISTINCT (?!node)|median\()", r"\g<1>0e0 + ", sql)
    return re.sub(r"(?<!AS )(?<!\.)\b([a-z]\.)?value\b(?! OVER)", r"coalesce(\1value + 0e0, NULL)", sql)
