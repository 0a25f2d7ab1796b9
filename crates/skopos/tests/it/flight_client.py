"""Uses the hub's Arrow Flight SQL listener from Python, by a third-party driver.

usage: flight_client.py URI

Every step prints its name when it succeeds; the test expects all of them.
"""

import sys
import threading
import time

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow
import pyarrow.compute

uri = sys.argv[1]


def eventually(ready):
    until = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < until, "gave up waiting"
        time.sleep(0.05)


def one(cursor, sql, parameters=None):
    cursor.execute(sql, parameters)
    return cursor.fetchone()


def error_of(cursor, sql):
    try:
        cursor.execute(sql)
        cursor.fetchall()
    except flightsql.Error as error:
        return type(error).__name__, str(error)
    raise AssertionError(f"{sql} was answered")


connection = flightsql.connect(uri, autocommit=True)
cursor = connection.cursor()

join = (
    "SELECT l.node, l.value, i.topic AS insight FROM latest l JOIN insights i ON l.node = i.node "
    "WHERE l.topic = 'n01/load/load_1m'"
)
eventually(lambda: one(cursor, join) is not None)
cursor.execute(join)
table = cursor.fetch_arrow_table()
assert table.num_rows > 0 and set(table["node"].to_pylist()) == {"n01"}, table
assert table.schema.field("value").type == pyarrow.float64(), table.schema
print("join", flush=True)

depth = "SELECT value FROM latest WHERE topic = ?"
assert one(cursor, depth, ("n01/app/depth",)) == (17.0,)
assert one(cursor, depth, ("n01/app/nothing",)) is None
cursor.execute(
    "SELECT topic FROM latest WHERE topic LIKE ? AND value > ? ORDER BY topic LIMIT ?",
    ("n01/app/%", 16, 5),
)
assert cursor.fetchall() == [("n01/app/depth",)]
assert one(cursor, "SELECT ? AS a, ? + 1 AS b", ("it's", 1)) == ("it's", 2)
assert [f.name for f in cursor.adbc_prepare("SELECT $1 AS a, $2 AS b")] == ["$1", "$2"]
print("prepared", flush=True)

objects = connection.adbc_get_objects(depth="all").read_all().to_pylist()
assert [c["catalog_name"] for c in objects] == ["skopos"], objects
(schema,) = objects[0]["catalog_db_schemas"]
tables = {t["table_name"]: t for t in schema["db_schema_tables"]}
assert schema["db_schema_name"] == "live" and {"latest", "nodes", "mem"} <= set(tables), tables
columns = [c["column_name"] for c in tables["nodes"]["table_columns"]]
assert columns[:2] == ["node", "alive"], columns
assert connection.adbc_get_table_types() == ["TABLE"]
assert connection.adbc_get_table_schema("nodes").names[:2] == ["node", "alive"]
assert "metric" in connection.adbc_get_table_schema("n01/app/depth").names
assert connection.adbc_get_info()["vendor_name"] == "skopos"
told = cursor.adbc_execute_schema("SELECT node, count(*) AS n FROM latest GROUP BY node")
assert told.names == ["node", "n"], told
print("catalogs", flush=True)

kind, text = error_of(cursor, "SELECT valu FROM latest")
assert kind == "ProgrammingError" and "line 1, column 8" in text, (kind, text)
assert "did you mean `value`?" in text, text
kind, text = error_of(cursor, "DELETE FROM latest")
assert kind == "NotSupportedError" and "only queries are answered" in text, (kind, text)
kind, text = error_of(cursor, "SELECT value FROM latest WHERE topic = ?")
assert "1 parameters" in text, text
try:
    cursor.adbc_ingest("mine", pyarrow.table({"a": [1]}))
    raise AssertionError("a table was written")
except flightsql.Error:
    pass
print("errors", flush=True)

cursor.execute("SELECT a.value AS a FROM generate_series(1, 1000) a, generate_series(1, 2000) b")
batches, rows, total = 0, 0, 0
for batch in cursor.fetch_record_batch():
    batches, rows = batches + 1, rows + batch.num_rows
    total += pyarrow.compute.sum(batch["a"]).as_py() if batch.num_rows else 0
assert rows == 2_000_000 and total == 2000 * 500_500 and batches > 10, (rows, total, batches)
print("streamed", flush=True)


def count(what):
    sql = "SELECT value FROM latest WHERE topic = 'n01/self/listener/flight/requests_" + what + "'"
    found = one(connection.cursor(), sql)
    return found[0] if found else -1


eventually(lambda: count("running") >= 0)
before = count("cancelled_total")
# A debug build compares a row with 100,000 others in milliseconds, and may be cancelled after each row.
endless = (
    "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 1000000000) b "
    "WHERE a.value + b.value < 0"
)
failed = []


def ask():
    try:
        cursor.execute(endless)
        cursor.fetchall()
    except flightsql.Error as error:
        failed.append(str(error))


def cancelled():
    """Asks, cancels, and returns whether the hub counted that. On a busy machine the statement may not have begun."""
    failed.clear()
    asking = threading.Thread(target=ask)
    asking.start()
    asking.join(0.5)
    while asking.is_alive():
        cursor.adbc_cancel()
        asking.join(0.1)
    assert failed, "it was answered"
    # The hub publishes its counts each second.
    time.sleep(1.5)
    return count("cancelled_total") > before


eventually(cancelled)
eventually(lambda: count("running") == 0)
print("cancelled", flush=True)

cursor.close()
connection.close()
