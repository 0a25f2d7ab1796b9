"""Compares answers, and names the way in which two answers differ."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from engines import Answer

RELATIVE = 1e-9
# Sums of ordinary numbers may end near zero.
ABSOLUTE = 1e-6

OUR_KINDS = [
    (r"there is no (column|table|function)|has another name here|needs a window|is not known here", "binding"),
    (r"(?i)overflow|divide by zero|division by zero|cannot cast (string|value)|can't cast|out of range", "value"),
    (r"(?i)more than one row", "value"),
    (r"(?i)expected|syntax|unexpected", "syntax"),
    (r"(?i)type|coerc|group by|aggregate|cannot|ambiguous|unqualified|columns|signature|function|takes", "binding"),
]
THEIR_KINDS = {
    "ParserException": "syntax",
    "SyntaxException": "syntax",
    "BinderException": "binding",
    "CatalogException": "binding",
    "TypeMismatchException": "binding",
    "ConversionException": "value",
    "OutOfRangeException": "value",
    "InvalidInputException": "value",
    "InternalException": "internal",
}


# Names that exist, of which an error may not say that they do not.
KNOWN = {
    "column": "topic node family instance metric value text unit kind origin bound time".split(),
    "function": "lag lead rank row_number first_value sum avg count max min abs round date_bin".split(),
    "table": ["samples", "latest", "topics", "nodes"],
}


def false_claim(error: str) -> str:
    """Returns the name of which an error says that it does not exist, although it does; else an empty text."""
    found = re.search(r"there is no (column|table|function) `([^`]*)`", error)
    return found[2] if found and found[2] in KNOWN[found[1]] else ""


def our_kind(error: str) -> str:
    """Returns the kind of an error of Skopos."""
    return next((kind for pattern, kind in OUR_KINDS if re.search(pattern, error)), "other")


def their_kind(error: str) -> str:
    """Returns the kind of an error of DuckDB."""
    return THEIR_KINDS.get(error.split(":")[0], "other")


def difference(ours: Answer, theirs: Answer, is_tame: bool, is_ordered: bool) -> str:
    """Returns how two answers differ; an empty text if they are alike."""
    if ours.rows is None or theirs.rows is None:
        return _of_errors(ours, theirs)
    if len(ours.rows) != len(theirs.rows):
        return "number of rows"
    absolute = ABSOLUTE if is_tame else 0.0
    if is_ordered:
        same = all(_same_row(a, b, absolute) for a, b in zip(ours.rows, theirs.rows))
        if not same and not difference(ours, theirs, is_tame, is_ordered=False):
            return "order"
        return "" if same else _of_rows(ours.rows, theirs.rows, absolute)
    left, right = sorted(ours.rows, key=_key), sorted(theirs.rows, key=_key)
    if all(_same_row(a, b, absolute) for a, b in zip(left, right)) or _match(left, right, absolute):
        return ""
    return _of_rows(left, right, absolute)


def _of_errors(ours: Answer, theirs: Answer) -> str:
    if name := false_claim(ours.error):
        return f"Skopos claims that there is no `{name}`"
    if ours.rows is not None:
        return f"only DuckDB refuses: {their_kind(theirs.error)}"
    if theirs.rows is not None:
        return f"only Skopos refuses: {our_kind(ours.error)}"
    kinds = (our_kind(ours.error), their_kind(theirs.error))
    return "" if kinds[0] == kinds[1] else f"errors: {kinds[0]}, DuckDB's {kinds[1]}"


def _of_rows(ours: Sequence[tuple], theirs: Sequence[tuple], absolute: float) -> str:
    """Names the first cells that differ by their classes."""
    for mine, other in zip(ours, theirs):
        for a, b in zip(mine, other):
            if not same_cell(a, b, absolute):
                return f"{_class(a)} for {_class(b)}"
    return "cells"


def _class(cell: object) -> str:
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "infinity"
    return "NULL" if cell is None else type(cell).__name__


def _same_row(a: tuple, b: tuple, absolute: float) -> bool:
    return len(a) == len(b) and all(same_cell(x, y, absolute) for x, y in zip(a, b))


def same_cell(a: object, b: object, absolute: float = 0.0) -> bool:
    """Returns true if two cells have the same value; NaN is NaN, and zero has no sign."""
    a, b = _number(a), _number(b)
    if a is None or b is None or isinstance(a, (str, bool)) or isinstance(b, (str, bool)):
        return a == b and type(a) is type(b)
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if not isinstance(a, (int, float)) or not isinstance(b, (int, float)):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or math.isclose(a, b, rel_tol=RELATIVE, abs_tol=absolute)


def _number(cell: object) -> object:
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    return cell


def _key(row: tuple) -> tuple:
    return tuple(_place(_number(cell)) for cell in row)


def _place(cell: object) -> tuple:
    if cell is None:
        return (0, 0.0, "")
    if isinstance(cell, (bool, int, float)):
        return (2, 0.0, "") if isinstance(cell, float) and math.isnan(cell) else (1, cell + 0.0, "")
    return (3, 0.0, str(cell))


def _match(left: list[tuple], right: list[tuple], absolute: float) -> bool:
    """Finds a partner for each row: sorting may separate rows that are alike within the error."""
    rest = list(right)
    if len(rest) > 2000:
        return False
    for row in left:
        at = next((i for i, other in enumerate(rest) if _same_row(row, other, absolute)), None)
        if at is None:
            return False
        rest.pop(at)
    return True
