"""DuckDB for `skopos-bench query`: a line of JSON on stdin asks, a line on stdout answers.

It has the table of latest values in memory and reads sealed history from Parquet. Its answers are
timed here, in its own process, so that no pipe is part of them.
"""

import json
import queue
import sys
import threading
import time

import duckdb

# Number of answers of each client before the measurement.
WARM = 32

TABLE = "CREATE TABLE latest (topic VARCHAR PRIMARY KEY, time BIGINT, value DOUBLE)"
WRITE = "INSERT OR REPLACE INTO latest SELECT unnest(?), unnest(?), unnest(?)"


def client(cursor, task, start, into):
    """Asks the statements in turns until the time is over."""
    count = len(task["statements"])
    for at, sql in enumerate(task["statements"]):
        cursor.execute(f"PREPARE q{at} AS {sql}")
    asks = [f"EXECUTE q{at}" for at in range(count)]
    for at in range(WARM):
        cursor.execute(asks[at % count]).fetchall()
    start.wait()
    took, at = [], 0
    begun = time.perf_counter_ns()
    end = begun + int(task["seconds"] * 1e9)
    now = begun
    while now < end:
        rows = cursor.execute(asks[at % count]).fetchall()
        after = time.perf_counter_ns()
        if len(rows) != task["complexity"]:
            raise ValueError(f"{len(rows)} of {task['complexity']} values")
        took.append(after - now)
        now = after
        at += 1
    into.append((took, (now - begun) / 1e9))


def measure(connection, task):
    """Runs a number of clients at once."""
    start, into, failed = threading.Barrier(task["clients"]), [], []

    def run(cursor):
        try:
            client(cursor, task, start, into)
        except Exception as error:  # pylint: disable=broad-except
            failed.append(str(error))
            start.abort()

    threads = [
        threading.Thread(target=run, args=(connection.cursor(),)) for _ in range(task["clients"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise ValueError(failed[0])
    return {
        "nanos": [nanos for took, _ in into for nanos in took],
        "seconds": max(seconds for _, seconds in into),
    }


def timed(connection, task):
    """Measures a statement, from its text to all of its rows."""
    begun = time.perf_counter_ns()
    rows = connection.execute(task["sql"]).fetchall()
    return {"nanos": time.perf_counter_ns() - begun, "rows": len(rows)}


def answer(connection, message):
    """Executes a message."""
    if "measure" in message:
        return measure(connection, message["measure"])
    if "values" in message:
        rows = connection.execute(message["values"]).fetchall()
        return {"values": [value for _, value in rows]}
    if "timed" in message:
        return timed(connection, message["timed"])
    return {"version": duckdb.__version__}


def main():
    """Feeds at once, and answers one message after the other."""
    connection = duckdb.connect(":memory:")
    connection.execute(TABLE)
    asked = queue.Queue()

    def work():
        while True:
            message = asked.get()
            try:
                said = answer(connection.cursor(), message)
            except Exception as error:  # pylint: disable=broad-except
                said = {"error": str(error).splitlines()[0]}
            print(json.dumps(said), flush=True)

    threading.Thread(target=work, daemon=True).start()
    feeding = connection.cursor()
    for line in sys.stdin:
        message = json.loads(line)
        if "feed" in message:
            feeding.execute(WRITE, message["feed"])
        else:
            asked.put(message)


if __name__ == "__main__":
    main()
