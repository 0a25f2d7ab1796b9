"""Asks a hub over Flight as callers of different roles, and prints what each of them gets.

usage: flight_callers.py URI AUTHORITY USER-ID TOKEN TOKEN
"""

import os
import sys

import pyarrow
import pyarrow.flight as flight

uri, authority, user = sys.argv[1], sys.argv[2], int(sys.argv[3])
first, second = sys.argv[4:6]
# From here on this process is another user of the machine.
os.setgid(user)
os.setuid(user)

client = flight.FlightClient(uri.replace("grpc+tls", "grpc+tls"), tls_root_certs=authority.encode())


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def any_of(name: str, message: bytes) -> bytes:
    kind = f"type.googleapis.com/arrow.flight.protocol.sql.{name}".encode()
    return field(1, kind) + field(2, message)


def options(token: str | None) -> flight.FlightCallOptions:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return flight.FlightCallOptions(timeout=30, headers=headers)


def ask(token: str | None, sql: str) -> pyarrow.Table:
    command = any_of("CommandStatementQuery", field(1, sql.encode()))
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command), options(token))
    return client.do_get(info.endpoints[0].ticket, options(token)).read_all()


def told(step: str, action) -> None:
    try:
        answer = action()
    except flight.FlightUnauthenticatedError:
        answer = "UNAUTHENTICATED"
    except flight.FlightUnauthorizedError:
        answer = "FORBIDDEN"
    except (pyarrow.ArrowInvalid, pyarrow.ArrowKeyError) as error:
        text = str(error)
        answer = "NOT_FOUND" if "does not exist" in text else "INVALID_ARGUMENT"
    print(f"{step}: {answer}", flush=True)


def is_answered(token: str | None, sql: str, word: str = "answered"):
    return lambda: word if ask(token, sql).num_rows == 1 else "nothing"


def prepare(token: str, sql: str) -> bytes:
    action = flight.Action("CreatePreparedStatement", any_of("ActionCreatePreparedStatementRequest", field(1, sql.encode())))
    body = next(iter(client.do_action(action, options(token)))).body.to_pybytes()
    # Any { type_url, value { prepared_statement_handle, … } }
    at = body.index(b"ActionCreatePreparedStatementResult") + len(b"ActionCreatePreparedStatementResult")
    result = read_field(body[at:])
    return read_field(result)


def read_field(data: bytes) -> bytes:
    """The bytes of the first field of a message."""
    at, length, shift = 1, 0, 0
    while True:
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return data[at : at + length]


def bind(token: str, handle: bytes, compression: str | None) -> None:
    command = any_of("CommandPreparedStatementQuery", field(1, handle))
    values = pyarrow.table({"1": ["hub1/load/load_1m" * 100]})
    write = pyarrow.ipc.IpcWriteOptions(compression=compression)
    call = flight.FlightCallOptions(
        timeout=30, headers=[(b"authorization", f"Bearer {token}".encode())], write_options=write
    )
    writer, reader = client.do_put(flight.FlightDescriptor.for_command(command), values.schema, call)
    with writer:
        writer.write_table(values)
        writer.done_writing()
        reader.read()


facts, jobs = "SELECT count(*) FROM latest", "SELECT count(*) FROM tasks"
told("stranger", is_answered(None, facts))
told("wrong token", is_answered("0123", facts))
told("first user", is_answered(first, facts, "facts"))
told("first user, jobs", is_answered(first, jobs))
told("second user, jobs", is_answered(second, jobs))
handle = prepare(first, "SELECT value FROM latest WHERE topic = ?")
bind(first, handle, None)
told("another's prepared statement", lambda: bind(second, handle, None))
told("compressed values", lambda: bind(first, handle, "lz4"))
