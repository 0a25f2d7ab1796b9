"""The two engines: a hub of Skopos with sealed history, and DuckDB over the same Parquet files."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

import world
from history_log import write_log

PATIENCE_SECONDS = 60
DEADLINE_MS = 20_000
MOST_ROWS = 100_000

# A relation of `sql()` would be copied less, but it hides when the statement runs.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")

CONFIG = '[history]\nmax_age = "36500d"\nseal_every = "1h"\n'


@dataclass
class Answer:
    """Rows, or an error. `way` is `point` or `planned`."""

    rows: list[tuple] | None = None
    error: str = ""
    way: str = ""


class Hub:
    """A hub with an agent in a folder of its own, and history that is sealed."""

    def __init__(self, program: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="skopos-differential-"))
        self.history = self.folder / "history"
        self.history.mkdir(mode=0o700)
        for generation, part in enumerate(world.split(world.series()), start=1):
            write_log(self.history, generation, part)
        self.program = program
        self.child = self._start()

    def __enter__(self) -> "Hub":
        try:
            self._wait(lambda: len(self.parts()) == 2, "the history is sealed")
            self._wait(lambda: self.socket_path().exists(), "the hub listens")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.child.terminate()
        self.child.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def parts(self) -> list[Path]:
        """Returns the sealed parts with the samples of this test, in the order of their times."""
        return sorted(self.history.glob("part-0000000[12]-*.parquet"))

    def socket_path(self) -> Path:
        """Returns the path of the hub's UNIX socket."""
        return self.folder / "run" / "hub.sock"

    def publish(self, topic: str, value: str, *options: str) -> None:
        """Publishes a live value."""
        asked = [self.program, "publish", *options, topic, "--", value]
        subprocess.run(asked, env=self._environment(), check=True, capture_output=True)

    def _environment(self) -> dict[str, str]:
        own = {"HOME": str(self.folder), "SKOPOS_DIR": str(self.folder / "run")}
        return os.environ | own | {"SKOPOS_STATE": str(self.folder / "state")}

    def _start(self) -> subprocess.Popen:
        config = self.folder / "skopos.toml"
        config.write_text(CONFIG)
        (self.folder / "run").mkdir(mode=0o700)
        asked = [self.program, "up", "--json", "--node", "hub", "--http", "none", "--flight", "none"]
        asked += ["--history", str(self.history), "--config", str(config)]
        log = open(self.folder / "log", "wb")
        return subprocess.Popen(asked, env=self._environment(), stdout=log, stderr=log)

    def _wait(self, ready, what: str) -> None:
        begun = time.monotonic()
        while not ready():
            ended = self.child.poll() is not None
            if ended or time.monotonic() - begun > PATIENCE_SECONDS * 2:
                told = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"gave up waiting: {what}\n{told}")
            time.sleep(0.1)


class Client:
    """A connection to the hub that carries one statement after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connect()

    def _connect(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_MS / 1000 + 10)
        self.socket.connect(str(self.path))
        self.reader = self.socket.makefile("rb")

    def ask(self, sql: str) -> Answer:
        """Asks a statement."""
        request = {"sql": sql, "rows": MOST_ROWS, "deadline_ms": DEADLINE_MS}
        try:
            self.socket.sendall(json.dumps(request).encode() + b"\n")
            head = json.loads(self.reader.readline())
            body = self.reader.read(head["bytes"])
        except (OSError, ValueError) as error:
            self._connect()
            return Answer(error=f"the connection broke: {error!r}")
        if head.get("error"):
            return Answer(error=head["error"])
        if head.get("missing"):
            return Answer(error=f"missing: {head['missing']}")
        return Answer(rows=rows_of(pa.ipc.open_stream(body).read_all()), way=head["way"])


def rows_of(table: pa.Table) -> list[tuple]:
    """Returns the rows of a table; times are whole nanoseconds."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ns")).cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True)) if columns else [()] * table.num_rows


class Peer:
    """DuckDB with a table `samples` of the parts, and a view for each topic."""

    def __init__(self, parts: list[Path]) -> None:
        self.connection = duckdb.connect()
        for setting in (
            "TimeZone = 'UTC'",
            "threads = 1",
            "default_null_order = 'nulls_last_on_asc_first_on_desc'",
        ):
            self.connection.execute(f"SET {setting}")
        self._create(parts)

    def another(self) -> "Peer":
        """Returns another connection to the same tables."""
        other = Peer.__new__(Peer)
        other.connection = self.connection.cursor()
        return other

    def _create(self, parts: list[Path]) -> None:
        execute = self.connection.execute
        execute("CREATE TABLE series (topic VARCHAR, unit VARCHAR, kind VARCHAR, family VARCHAR)")
        described = {topic: (unit, kind) for part in parts for topic, unit, kind in series_of(part)}
        for topic, (unit, kind) in described.items():
            family = topic.split("/")[1]
            known = family if family in world.FAMILIES else None
            execute("INSERT INTO series VALUES (?, ?, ?, ?)", [topic, unit, kind, known])
        files = ", ".join(f"'{part}'" for part in parts)
        execute(
            f"""CREATE TABLE samples AS SELECT topic, p.node, s.family, NULL::VARCHAR AS instance,
            split_part(topic, '/', -1) AS metric, p.time::TIMESTAMPTZ AS time, p.value, p.text, s.unit, s.kind,
            CASE p.origin WHEN 0 THEN 'measured' WHEN 1 THEN 'predicted' ELSE 'unknown' END AS origin,
            p.bound FROM read_parquet([{files}]) p JOIN series s USING (topic)"""
        )
        for topic in described:
            execute(
                f"""CREATE VIEW "{topic}" AS SELECT time AS timestamp, value AS metric, origin, bound,
                text, unit FROM samples WHERE topic = '{topic}'"""
            )

    def ask(self, sql: str) -> Answer:
        """Asks a statement."""
        try:
            return Answer(rows=rows_of(self.connection.execute(sql).to_arrow_table()))
        except duckdb.Error as error:
            return Answer(error=f"{type(error).__name__}: {error}")


def series_of(part: Path) -> list[tuple[str, str, str]]:
    """Returns topic, unit and kind of each series of a part, from its metadata."""
    lines = parquet.read_metadata(part).metadata[b"skopos.series"].decode().splitlines()
    return [tuple(line.split("\t")[:3]) for line in lines]
