"""Cases against the listener for Arrow Flight SQL: broken frames, floods of them, and requests that take much."""

import asyncio
import random
import struct
from functools import partial

import h2
from clients import SMALL_BUFFER, Attack, open_tcp
from h2 import DATA, END_HEADERS, END_STREAM, HEADERS, SERVICE, Rpc, frame, head

METHODS = ["Handshake", "ListFlights", "GetFlightInfo", "PollFlightInfo", "GetSchema", "DoGet", "DoPut", "DoAction"]
METHODS += ["ListActions", "DoExchange", "NoSuchMethod"]
CLAIMED_BYTES = 1 << 46


def broken_start(chance: random.Random) -> bytes:
    """Returns the first bytes of a client that breaks HTTP/2."""
    sent = h2.settings()
    noise = chance.randbytes(60)
    return chance.choice([
        noise,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
        h2.PREFACE + noise,
        sent + b"\xff\xff\xff" + bytes([DATA, 0]) + struct.pack(">I", 1),
        sent + frame(DATA, 0, 0, noise),
        sent + frame(HEADERS, END_HEADERS, 2, head(SERVICE + "DoGet")),
        sent + frame(HEADERS, END_HEADERS | END_STREAM, 1, noise),
        sent + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        sent + frame(h2.CONTINUATION, END_HEADERS, 1, noise),
        sent + frame(h2.SETTINGS, 0, 0, noise[:5]),
        sent + frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        sent + frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)),
        sent + frame(h2.PING, 0, 0, noise[:7]),
        sent + frame(h2.PRIORITY, 0, 1, struct.pack(">IB", 1, 0)),
        sent + frame(chance.randrange(256), chance.randrange(256), chance.randrange(1 << 31), noise),
    ])


async def malformed(attack: Attack) -> None:
    """Frames that are not HTTP/2, or not quite, by tens of thousands."""
    chance = random.Random(2)

    async def client(data: bytes) -> str:
        reader, writer = await open_tcp(attack.hub.flight)
        try:
            writer.write(data)
            writer.write_eof()
            return await h2.end_of(reader)
        finally:
            writer.close()

    wrong = (broken_start(chance) for _ in range(attack.many(30_000, 1500)))
    await attack.do((partial(client, data) for data in wrong), 64)


async def malformed_messages(attack: Attack) -> None:
    """Messages that no method can read, by tens of thousands: noise, false lengths and false compression."""
    chance = random.Random(3)
    right = [h2.statement("SELECT 1"), h2.ticket("SELECT 1"), h2.preparing("SELECT 1")]
    right += [h2.places('{"skopos_jobs":1,"where":"true"}'), h2.places('{"skopos_jobs":1,"jobs":[{"job":"7"}]}')]
    right += [h2.jobs_ticket(b"\x00" + bytes(64) + b'{"version":1}'), h2.jobs_ticket(b"\xff\xff\xff\xff\x7f")]

    def damaged() -> bytes:
        data = bytearray(chance.choice([*right, chance.randbytes(100)]))
        for _ in range(4):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randrange(1, len(data) + 1)])

    async def client() -> str:
        rpc = await Rpc.open(attack.hub.flight)
        try:
            for _ in range(19):
                answer, _ = await rpc.call(chance.choice(METHODS), [damaged()])
                attack.answers[answer] += 1
                if answer in ("closed", "reset", "GOAWAY"):
                    break
            return await lie(rpc, chance)
        finally:
            rpc.close()

    await attack.do([client] * attack.many(2000, 60), 32)


async def lie(rpc: Rpc, chance: random.Random) -> str:
    """Sends a message that lies about its length or that it is compressed."""
    prefix = struct.pack(">BI", *chance.choice([(0, (1 << 32) - 1), (1, 4), (7, 4), (0, 1 << 20)]))
    rpc.stream += 2
    try:
        rpc.writer.write(frame(HEADERS, END_HEADERS, rpc.stream, head(SERVICE + chance.choice(METHODS))))
        rpc.writer.write(frame(DATA, END_STREAM, rpc.stream, prefix + b"abcd"))
        return (await asyncio.wait_for(rpc.answer(), 5))[0]
    except ConnectionError:
        return "reset"


async def floods(attack: Attack) -> None:
    """Floods of cheap frames: requests that are reset at once, endless heads, settings, pings, and heads that grow."""
    request = head(SERVICE + "GetFlightInfo")
    many = attack.many(5000, 1000)
    resets = (
        frame(HEADERS, END_HEADERS, 2 * at + 1, request) + frame(h2.RST_STREAM, 0, 2 * at + 1, struct.pack(">I", 8))
        for at in range(many)
    )
    endless = frame(HEADERS, 0, 1, request) + frame(h2.CONTINUATION, 0, 1, b"\x00" + h2.text("x") * 2) * (4 * many)
    # One entry of 4000 bytes in the table, and then a thousand references of one byte each.
    bomb = b"\x40" + h2.text("x") + h2.text("y" * 4000) + b"\xbe" * 1000
    kinds = [
        b"".join(resets),
        endless,
        frame(h2.SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)) * (4 * many),
        frame(h2.PING, 0, 0, bytes(8)) * (4 * many),
        b"".join(frame(HEADERS, END_HEADERS, 2 * at + 1, request + bomb) for at in range(many // 10)),
        b"".join(frame(HEADERS, END_HEADERS, 2 * at + 1, request) for at in range(many)),
    ]

    async def client(data: bytes) -> str:
        reader, writer = await open_tcp(attack.hub.flight)
        try:
            writer.write(h2.settings() + data)
            return await asyncio.wait_for(h2.end_of(reader), 3)
        except TimeoutError:
            return "endured"
        finally:
            writer.transport.abort()

    await attack.do([partial(client, data) for data in kinds * attack.many(30, 2)], 24)


async def describe(attack: Attack) -> None:
    """Hundreds of clients that only want to know the columns of heavy statements."""
    branches = " UNION ALL ".join(["SELECT topic, value FROM latest"] * 80)

    async def client(at: int) -> str:
        sql = f"SELECT {at}, topic, max(value) FROM ({branches}) GROUP BY topic ORDER BY 2"
        return await h2.call(attack.hub.flight, "GetFlightInfo", h2.statement(sql))

    await attack.do([partial(client, at) for at in range(attack.many(4000, 300))], attack.many(240, 100))


async def prepare_many(attack: Attack) -> None:
    """Thousands of prepared statements that are never closed, each with a plan of its own."""
    columns = ", ".join(f"value + {at} AS c{at}" for at in range(400))

    async def client(start: int) -> str:
        rpc = await Rpc.open(attack.hub.flight)
        try:
            for at in range(start, start + 50):
                sql = f"SELECT {columns} FROM latest WHERE value > {at} AND topic = $1"
                answer, _ = await rpc.call("DoAction", [h2.preparing(sql)])
                attack.answers[answer] += 1
            return "done"
        finally:
            rpc.close()

    await attack.do([partial(client, at * 50) for at in range(attack.many(100, 8))], 16)
    attack.answers.pop("done", None)


async def compressed_values(attack: Attack) -> None:
    """Values for a prepared statement, compressed by LZ4 and ZSTD, that claim to be 2^46 bytes long."""
    batches = [claiming(codec) for codec in ("lz4", "zstd")]

    async def client(messages: list[tuple[bytes, bytes]]) -> str:
        rpc = await Rpc.open(attack.hub.flight)
        try:
            _, answer = await rpc.call("DoAction", [h2.preparing("SELECT * FROM latest WHERE topic = $1")])
            result = h2.fields(h2.fields(answer).get(1, b"")).get(2, b"")
            handle = h2.fields(result).get(1, b"")
            binds = h2.descriptor("CommandPreparedStatementQuery", h2.field(1, handle))
            return (await rpc.call("DoPut", flight_data(messages, binds)))[0]
        finally:
            rpc.close()

    clients = [partial(client, messages) for messages in batches * attack.many(500, 20)]
    await attack.do(clients, 8)
    attack.goals["no false length was believed"] = "200" not in attack.answers


def flight_data(messages: list[tuple[bytes, bytes]], descriptor: bytes) -> list[bytes]:
    """Returns messages of Arrow as those of Flight; the first one has the descriptor."""
    sent = [h2.field(2, header) + h2.field(1000, body) for header, body in messages]
    return [h2.field(1, descriptor) + sent[0], *sent[1:]]


def claiming(codec: str) -> list[tuple[bytes, bytes]]:
    """Returns a schema and a compressed row, as headers and bodies, whose buffers claim to be enormous."""
    import pyarrow as pa  # type: ignore[import-untyped]

    row = pa.record_batch({"$1": ["x" * 5000]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as stream:
        stream.write_batch(row)
    found = []
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        body = message.body.to_pybytes() if message.body is not None else b""
        found.append((message.metadata.to_pybytes(), body))
    schema, (header, body) = found
    # Each compressed buffer starts with its length; that of the text is the last one.
    at = body.rfind(struct.pack("<q", 5000))
    return [schema, (header, body[:at] + struct.pack("<q", CLAIMED_BYTES) + body[at + 8 :])]


async def never_read(attack: Attack) -> None:
    """Clients that ask for everything over Flight and never read: half with an open window, half without one."""

    async def client(window: int) -> str:
        _, writer = await open_tcp(attack.hub.flight, SMALL_BUFFER)
        try:
            request = frame(HEADERS, END_HEADERS, 1, head(SERVICE + "DoGet"))
            data = h2.message(h2.ticket("SELECT * FROM samples"))
            writer.write(h2.settings(window) + request + frame(DATA, END_STREAM, 1, data))
            await asyncio.sleep(max(0.0, attack.left - 0.3))
            return "held"
        finally:
            writer.transport.abort()

    windows = [0, h2.LARGEST_WINDOW] * attack.many(110, 20)
    await attack.do([partial(client, window) for window in windows], len(windows))


async def never_read_latest(attack: Attack) -> None:
    """Clients with 64 point reads of all topics each, over Flight, that never open their window."""

    async def client() -> str:
        _, writer = await open_tcp(attack.hub.flight, SMALL_BUFFER)
        try:
            writer.write(h2.settings(0))
            data = h2.message(h2.ticket("SELECT * FROM latest WHERE topic LIKE '%'"))
            for stream in range(1, 129, 2):
                request = frame(HEADERS, END_HEADERS, stream, head(SERVICE + "DoGet"))
                writer.write(request + frame(DATA, END_STREAM, stream, data))
            await asyncio.sleep(max(0.0, attack.left - 0.3))
            return "held"
        finally:
            writer.transport.abort()

    count = attack.many(30, 8)
    await attack.do([client] * count, count)


async def growing_values(attack: Attack) -> None:
    """Values for a prepared statement, sent as message after message without end."""

    async def client() -> str:
        rpc = await Rpc.open(attack.hub.flight)
        try:
            _, answer = await rpc.call("DoAction", [h2.preparing("SELECT * FROM latest WHERE topic = $1")])
            result = h2.fields(h2.fields(answer).get(1, b"")).get(2, b"")
            binds = h2.descriptor("CommandPreparedStatementQuery", h2.field(1, h2.fields(result).get(1, b"")))
            return (await rpc.call("DoPut", flight_data([(b"", b"x" * 500_000)] * 100, binds)))[0]
        finally:
            rpc.close()

    await attack.do([client] * attack.many(300, 12), 12)


def has_arrow() -> bool:
    """Returns whether pyarrow is there, which compresses values."""
    try:
        import pyarrow  # type: ignore[import-untyped] # noqa: F401
    except ImportError:
        return False
    return True
