"""Asks a hub over Flight about jobs as several callers, and sends records of jobs with the certificate of a node.

usage: job_callers.py URI USER-ID < REQUEST

REQUEST is JSON: `authority` (PEM), `identity` (PEM of a node, certificate and key), `tokens` (by name of the caller, null for
none), `statements`. A line of JSON is printed for each answer: [caller, number of the statement, rows or error]; the caller
`node` has the certificate. Then a line [what, refusals] for each batch of records of that node.
"""

import json
import os
import sys

import pyarrow
import pyarrow.flight as flight

uri, user = sys.argv[1], int(sys.argv[2])
request = json.load(sys.stdin)
# From here on this process is another user of the machine.
os.setgid(user)
os.setuid(user)

authority, identity = request["authority"].encode(), request["identity"].encode()
others = flight.FlightClient(uri, tls_root_certs=authority)
node = flight.FlightClient(uri, tls_root_certs=authority, cert_chain=identity, private_key=identity)


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def statement(sql: str) -> flight.FlightDescriptor:
    kind = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(field(1, kind) + field(2, field(1, sql.encode())))


def ask(client: flight.FlightClient, token: str | None, sql: str) -> object:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    options = flight.FlightCallOptions(timeout=60, headers=headers)
    try:
        info = client.get_flight_info(statement(sql), options)
        return client.do_get(info.endpoints[0].ticket, options).read_all().to_pylist()
    except (flight.FlightError, pyarrow.ArrowException) as error:
        return str(error)


for number, sql in enumerate(request["statements"]):
    for caller, token in request["tokens"].items():
        print(json.dumps([caller, number, ask(others, token, sql)]), flush=True)
    print(json.dumps(["node", number, ask(node, None, sql)]), flush=True)

SCHEMA = pyarrow.schema([
    ("sequence", pyarrow.int64()), ("job", pyarrow.string()), ("node", pyarrow.string()),
    ("time", pyarrow.int64()), ("kind", pyarrow.string()), ("document", pyarrow.string()),
])


def put(client: flight.FlightClient, producer: str, rows: list[tuple]) -> object:
    columns = [pyarrow.array(column, type=of.type) for column, of in zip(zip(*rows), SCHEMA)]
    batch = pyarrow.RecordBatch.from_arrays(columns, schema=SCHEMA)
    options = flight.FlightCallOptions(timeout=60)
    try:
        path = flight.FlightDescriptor.for_path("jobs", producer, "1")
        writer, reader = client.do_put(path, SCHEMA, options)
        with writer:
            writer.write_batch(batch)
            writer.done_writing()
            refusals = []
            while (answer := reader.read()) is not None:
                refusals += json.loads(answer.to_pybytes()).get("refusals", [])
            return refusals
    except (flight.FlightError, pyarrow.ArrowException) as error:
        return str(error)


NODES = {"own": '{"nodes": ["n1"]}', "other": '{"nodes": ["n2"]}', "both": '{"nodes": ["n1", "n2"]}'}
records = [
    ("a job of this node", [(0, "own", "n1", 1, "start", NODES["own"]), (1, "own", "n1", 2, "spans", "[]")]),
    ("a record about another node", [(2, "own", "n2", 3, "spans", "[]")]),
    ("the start of a job of another node", [(3, "other", "n1", 4, "start", NODES["other"])]),
    ("a start that names another node as its node", [(4, "both", "n2", 5, "start", NODES["both"])]),
    ("a job that is known to run elsewhere", [(5, "b/2", "n1", 6, "end", '{"state": "failed"}')]),
]
for what, rows in records:
    print(json.dumps([what, put(node, "p", rows)]), flush=True)
print(json.dumps(["a stranger", put(others, "p", records[0][1])]), flush=True)
