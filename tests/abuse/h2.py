"""Just enough of HTTP/2, gRPC and Flight SQL to ask a hub, rightly or wrongly. Only statuses are decoded from heads."""

import asyncio
import struct
from collections.abc import Iterable

from clients import Streams, open_tcp

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
SERVICE = "/arrow.flight.protocol.FlightService/"
TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
LARGEST_WINDOW = (1 << 31) - 1
CODES = {0: "200", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND", 8: "RESOURCE_EXHAUSTED"}
CODES |= {11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED", 13: "INTERNAL", 14: "UNAVAILABLE", 16: "UNAUTHENTICATED"}
# Huffman codes of digits, and of the name of gRPC's status, as in RFC 7541.
DIGITS = ["00000", "00001", "00010", "011001", "011010", "011011", "011100", "011101", "011110", "011111"]
STATUS_NAME = bytes.fromhex("9acac8b21234da8f")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(window: int = LARGEST_WINDOW) -> bytes:
    """Returns the first bytes of a client, with the window in which it takes answers."""
    # The first entry keeps the hub from referring to earlier heads.
    first = frame(SETTINGS, 0, 0, struct.pack(">HIHI", 1, 0, 4, window))
    wide = frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", LARGEST_WINDOW - 65_535)) if window > 65_535 else b""
    return PREFACE + first + wide


def text(value: str) -> bytes:
    """Returns a string of HPACK, without Huffman's code."""
    data = value.encode()
    length = bytes([len(data)]) if len(data) < 127 else b"\x7f" + varint(len(data) - 127)
    return length + data


def head(path: str) -> bytes:
    """Returns the head of a request of gRPC."""
    fields = b"\x83\x86\x04" + text(path) + b"\x01" + text("127.0.0.1")
    return fields + b"\x0f\x10" + text("application/grpc") + b"\x00" + text("te") + text("trailers")


def message(data: bytes) -> bytes:
    """Returns a message with its prefix in gRPC."""
    return struct.pack(">BI", 0, len(data)) + data


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(tag: int, data: bytes) -> bytes:
    """Returns a field of bytes in a protocol buffer."""
    return varint(tag << 3 | 2) + varint(len(data)) + data


def fields(data: bytes) -> dict[int, bytes]:
    """Returns the fields of bytes in a protocol buffer."""
    found, at = {}, 0
    while at < len(data):
        key, at = number_at(data, at)
        length, at = number_at(data, at)
        if key & 7 == 2:
            found[key >> 3] = data[at : at + length]
            at += length
    return found


def number_at(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number, at


def command(name: str, data: bytes) -> bytes:
    """Returns a command of Flight SQL."""
    return field(1, (TYPES + name).encode()) + field(2, data)


def descriptor(name: str, data: bytes) -> bytes:
    return b"\x08\x02" + field(2, command(name, data))


def statement(sql: str) -> bytes:
    """Returns the descriptor of a statement, for `GetFlightInfo` and `GetSchema`."""
    return descriptor("CommandStatementQuery", field(1, sql.encode()))


def ticket(sql: str) -> bytes:
    """Returns the ticket of a statement, for `DoGet`; the hub has the same layout."""
    handle = b"\x08\x01" + field(2, sql.encode())
    return field(1, command("TicketStatementQuery", field(1, handle)))


def places(text: str) -> bytes:
    """Returns the descriptor of a command about jobs, for `GetFlightInfo`."""
    return b"\x08\x02" + field(2, text.encode())


def jobs_ticket(rest: bytes) -> bytes:
    """Returns a ticket of a download that no hub has signed, for `DoGet`."""
    return field(1, b"SKT\x01" + rest)


def preparing(sql: str) -> bytes:
    """Returns the action that prepares a statement."""
    name = "CreatePreparedStatement"
    return field(1, name.encode()) + field(2, command(f"Action{name}Request", field(1, sql.encode())))


def status_in(block: bytes) -> str:
    """Returns the status of gRPC in a head, as a word; nothing if it is not in it."""
    for name in (STATUS_NAME, b"grpc-status"):
        at = block.find(name)
        if at >= 0:
            length, value = block[at + len(name)], block[at + len(name) + 1 :]
            return CODES.get(digits(value[: length & 127], is_coded=length > 127), "another status")
    return ""


def digits(data: bytes, *, is_coded: bool) -> int:
    if not is_coded:
        return int(data)
    bits, found = "".join(f"{byte:08b}" for byte in data), ""
    while code := next((code for code in DIGITS if bits.startswith(code)), ""):
        found += str(DIGITS.index(code))
        bits = bits[len(code) :]
    return int(found or -1)


async def frame_of(reader: asyncio.StreamReader) -> tuple[int, int, bytes] | None:
    """Returns the kind, flags and payload of the next frame; nothing at the end."""
    try:
        start = await reader.readexactly(9)
        length = int.from_bytes(start[:3], "big")
        return start[3], start[4], await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        return None


async def end_of(reader: asyncio.StreamReader) -> str:
    """Returns how a hub ends a connection that breaks the rules."""
    try:
        while found := await frame_of(reader):
            if found[0] == GOAWAY:
                return "GOAWAY"
            if found[0] == RST_STREAM:
                return "RST_STREAM"
        return "closed"
    except ConnectionError:
        return "reset"


class Rpc:
    """A connection for one request after another."""

    def __init__(self, streams: Streams) -> None:
        self.reader, self.writer = streams
        self.stream = -1

    @classmethod
    async def open(cls, port: int) -> "Rpc":
        rpc = cls(await open_tcp(port))
        rpc.writer.write(settings())
        return rpc

    async def call(self, method: str, messages: Iterable[bytes]) -> tuple[str, bytes]:
        """Calls a method, and returns the status and the first message of the answer."""
        self.stream += 2
        sent = [frame(DATA, 0, self.stream, part) for data in messages for part in parts(message(data))]
        try:
            self.writer.write(frame(HEADERS, END_HEADERS, self.stream, head(SERVICE + method)))
            self.writer.write(b"".join(sent) + frame(DATA, END_STREAM, self.stream))
            return await self.answer()
        except ConnectionError:
            return "reset", b""

    async def answer(self) -> tuple[str, bytes]:
        """Returns the status and the first message of the answer to the last request."""
        body = b""
        while found := await frame_of(self.reader):
            kind, flags, payload = found
            if kind == SETTINGS and not flags & ACK:
                self.writer.write(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.writer.write(frame(PING, ACK, 0, payload))
            elif kind == DATA and len(body) < 1 << 16:
                body += payload
            elif kind == HEADERS and flags & END_STREAM:
                return status_in(payload) or "no status", body[5:]
            elif kind == GOAWAY:
                # The last stream and the code, then the reason as a text.
                return f"GOAWAY {payload[8:].decode(errors='replace')}".strip(), b""
            elif kind == RST_STREAM:
                return "RST_STREAM", b""
        return "closed", b""

    def close(self) -> None:
        self.writer.close()


def parts(data: bytes) -> list[bytes]:
    return [data[at : at + 16_384] for at in range(0, len(data), 16_384)]


async def call(port: int, method: str, *messages: bytes) -> str:
    """Calls a method over a connection of its own, and returns the status."""
    rpc = await Rpc.open(port)
    try:
        return (await rpc.call(method, messages))[0]
    finally:
        rpc.close()


async def greet(port: int) -> str:
    """Asks what every client may ask first: which actions there are."""
    return await call(port, "ListActions", b"")
