"""Asks Skopos and DuckDB the same generated statements over the same sealed history, and compares the answers.

    pip install duckdb pyarrow
    python3 tests/sql/differential.py --skopos target/release/skopos
    python3 tests/sql/differential.py --skopos target/release/skopos --count 500     # the short form
    python3 tests/sql/differential.py --skopos target/release/skopos --mode point    # point reads and the planner

It starts a hub in a folder of its own, with samples from `world.py`. Each disagreement is printed once for each of
its signatures, by the shortest statement that has it. It exits with 1 if a disagreement is not in `differences.toml`.
The same seed makes the same statements.
"""

import argparse
import re
import sys
import threading
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import point
from compare import difference
from engines import Answer, Client, Hub, Peer
from statements import Maker, Statement
from translate import without_minus_zero

HERE = Path(__file__).resolve().parent
SHOWN_ROWS = 3

Ask = Callable[[str], Answer]


@dataclass(frozen=True)
class Disagreement:
    """A statement with two answers that differ."""

    statement: Statement
    ours: Answer
    theirs: Answer
    what: str

    def signature(self) -> str:
        """Returns what disagreements of one cause have in common."""
        error = self.ours.error or self.theirs.error
        error = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\d+", "…", error.split("\n")[0])[:100]
        return f"{self.statement.kind}: {self.what}" + (f" ({error})" if error else "")


@dataclass(frozen=True)
class Explanation:
    """An entry of the list of explained differences: regular expressions, all of which are found."""

    name: str
    reason: str
    is_bug: bool = False
    statement: str = ""
    what: str = ""
    error: str = ""

    def fits(self, found: Disagreement) -> bool:
        """Returns true if this explains a disagreement."""
        errors = f"{found.ours.error}\n{found.theirs.error}"
        texts = [(self.statement, found.statement.ours), (self.what, found.what), (self.error, errors)]
        return all(re.search(pattern, text, re.DOTALL) for pattern, text in texts)


class Tally:
    """Counts of statements, and disagreements by their explanations or signatures."""

    def __init__(self, explanations: list[Explanation]) -> None:
        self.explanations = explanations
        self.lock = threading.Lock()
        self.asked: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.explained: dict[str, list[Disagreement]] = defaultdict(list)
        self.unexplained: dict[str, list[Disagreement]] = defaultdict(list)

    def add(self, statement: Statement, ours: Answer, theirs: Answer, ask: Ask | None = None) -> None:
        """Compares two answers and counts them. With `ask`, looks whether the sign of zeros is the cause."""
        what = difference(ours, theirs, statement.is_tame, statement.is_ordered)
        if what and ask and ours.rows is not None and theirs.rows is not None:
            unsigned = ask(without_minus_zero(statement.ours))
            if not difference(unsigned, theirs, statement.is_tame, statement.is_ordered):
                what = f"sign of zero, {what}"
        found = Disagreement(statement, ours, theirs, what)
        explanation = next((e for e in self.explanations if what and e.fits(found)), None)
        with self.lock:
            self.asked[statement.kind] += 1
            self.refused[statement.kind] += bool(ours.error and theirs.error)
            if explanation:
                self.explained[explanation.name].append(found)
            elif what:
                self.unexplained[found.signature()].append(found)

    def report(self, seconds: float, shows_all: bool) -> None:
        """Prints disagreements, and the counts."""
        for signature, found in sorted(self.unexplained.items(), key=lambda item: -len(item[1])):
            print(f"\n== {len(found)} x {signature}")
            show(min(found, key=lambda d: len(d.statement.ours)))
        print()
        for e in self.explanations:
            if e.name in self.explained:
                mark = "known bug" if e.is_bug else "by design"
                print(f"{len(self.explained[e.name]):6} {mark}: {e.name}")
                if shows_all:
                    show(min(self.explained[e.name], key=lambda d: len(d.statement.ours)))
        total, both = sum(self.asked.values()), sum(self.refused.values())
        unexplained = sum(map(len, self.unexplained.values()))
        print(f"{total} statements in {seconds:.0f} s, {both} refused by both, {unexplained} unexplained disagreements")
        print(", ".join(f"{kind} {count}" for kind, count in sorted(self.asked.items())))


def show(found: Disagreement) -> None:
    """Prints a disagreement with both answers."""
    peer = "the planner" if found.statement.kind.startswith("point") else "DuckDB"
    print(f"  Skopos: {found.statement.ours}")
    if found.statement.theirs != found.statement.ours:
        print(f"  {peer}: {found.statement.theirs}")
    ours, theirs = found.ours, found.theirs
    if ours.rows is not None and theirs.rows is not None:
        mine, others = only_in(ours.rows, theirs.rows), only_in(theirs.rows, ours.rows)
        print(f"  Skopos has {len(ours.rows)} rows, of which {len(mine)} only here: {mine[:SHOWN_ROWS]}")
        print(f"  {peer} has {len(theirs.rows)} rows, of which {len(others)} only there: {others[:SHOWN_ROWS]}")
        return
    for name, answer in (("Skopos", ours), (peer, theirs)):
        said = answer.error.split("\n")[0] or f"{len(answer.rows)} rows: {answer.rows[:SHOWN_ROWS]}"
        print(f"  {name} says {said}")


def only_in(rows: list[tuple], others: list[tuple]) -> list[tuple]:
    """Returns rows that others do not have, compared as texts."""
    counts = Counter(map(repr, others))
    left = []
    for row in rows:
        counts[repr(row)] -= 1
        if counts[repr(row)] < 0:
            left.append(row)
    return left


def explanations_in(path: Path) -> list[Explanation]:
    """Reads the list of explained differences."""
    return [Explanation(**entry) for entry in tomllib.loads(path.read_text())["difference"]]


def against_duckdb(hub: Hub, options: argparse.Namespace, tally: Tally) -> None:
    """Asks both engines from several threads."""
    peer = Peer(hub.parts())
    maker = Maker(options.seed)
    statements = iter([maker.statement() for _ in range(options.count)])
    lock = threading.Lock()

    def work() -> None:
        client, other = Client(hub.socket_path()), peer.another()
        while True:
            with lock:
                statement = next(statements, None)
            if statement is None:
                return
            tally.add(statement, client.ask(statement.ours), other.ask(statement.theirs), client.ask)

    together(work, options.clients)


def together(work: Callable[[], None], count: int) -> None:
    """Runs a function in several threads, and fails if one of them does."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def parsed() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the statements")
    parser.add_argument("--count", type=int, default=20_000, help="number of statements")
    parser.add_argument("--skopos", default="target/release/skopos", help="path of the program")
    parser.add_argument("--clients", type=int, default=4, help="number of connections")
    parser.add_argument("--mode", choices=["duckdb", "point", "both"], default="both")
    parser.add_argument("--all", action="store_true", help="also print one statement of each explained difference")
    return parser.parse_args()


def main() -> int:
    """Asks, prints, and returns the exit status."""
    options = parsed()
    tally = Tally(explanations_in(HERE / "differences.toml"))
    begun = time.monotonic()
    with Hub(options.skopos) as hub:
        if options.mode != "point":
            against_duckdb(hub, options, tally)
        if options.mode != "duckdb":
            point.against_planner(hub, options.seed, max(options.count // 10, 50), tally.add)
    tally.report(time.monotonic() - begun, options.all)
    return 1 if tally.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
