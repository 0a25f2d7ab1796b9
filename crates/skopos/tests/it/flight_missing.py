"""Prints the nodes that an answer lacks, as Python programs see them.

usage: flight_missing.py URI SQL
"""

import json
import sys

import adbc_driver_flightsql.dbapi as flightsql
import pyarrow.flight

uri, sql = sys.argv[1:]


def field(number, content):
    """A field of a protocol buffer that has a length."""
    length, head = len(content), bytes([number << 3 | 2])
    while length > 127:
        head, length = head + bytes([length & 127 | 128]), length >> 7
    return head + bytes([length]) + content


kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
command = field(1, kind) + field(2, field(1, sql.encode()))
client = pyarrow.flight.connect(uri.replace("grpc://", "grpc+tcp://"))
info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(command))
rows, missing = 0, []
for chunk in client.do_get(info.endpoints[0].ticket):
    rows += chunk.data.num_rows
    if chunk.app_metadata:
        missing = json.loads(chunk.app_metadata.to_pybytes())["missing"]

with flightsql.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
    cursor.execute(sql)
    table = cursor.fetch_arrow_table()

print(json.dumps({"adbc": table.num_rows, "pyarrow": rows, "missing": missing}))
