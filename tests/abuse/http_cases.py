"""Cases against HTTP and the UNIX socket: broken requests, silent clients, and clients that take much."""

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable
from functools import partial

from clients import (
    BUFFER,
    SMALL_BUFFER,
    Attack,
    Streams,
    ask_unix,
    get,
    open_tcp,
    open_unix,
    post_sql,
    send_http,
    status_of,
)
from h2 import Rpc, greet

SILENT = 1000
# Time within which a new client of a full listener is served, in seconds.
NEW_CLIENT_S = 10.0
EVERYTHING = "SELECT * FROM samples"
ALL_LATEST = "SELECT * FROM latest WHERE topic LIKE '%'"
ALL_TOPICS = "&".join(["topic=**"] * 256)
# Most connections of each listener.
MOST = {"http": 2048, "flight": 256, "unix": 256}


def garbage_heads(chance: random.Random) -> bytes:
    """Returns a head that is not HTTP, or not quite."""
    host = b"Host: 127.0.0.1\r\n"
    return chance.choice([
        chance.randbytes(200) + b"\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /healthz HTTP/9.9\r\n" + host + b"\r\n",
        b"GET /%00%ff%2e%2e/ HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /healthz HTTP/1.1\r\nHost 127.0.0.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n",
        b"POST /api/v1/sql HTTP/1.1\r\n" + host + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/v1/sql HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(100),
        b"\0" * 300 + b"\r\n\r\n",
    ])


async def malformed(attack: Attack) -> None:
    """Heads that are not HTTP, by tens of thousands."""
    chance = random.Random(1)
    wrong = (garbage_heads(chance) for _ in range(attack.many(30_000, 2000)))
    # Without an end of its own, a wrong head would be waited for.
    await attack.do((partial(send_http, attack.hub.http, data, half_close=True) for data in wrong), 64)


async def huge_heads(attack: Attack) -> None:
    """Heads of a megabyte: one long line, one long header, and many headers."""
    mega = b"a" * (1 << 20)
    heads = [
        b"GET /" + mega + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + mega + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    ]
    repeated = itertools.islice(itertools.cycle(heads), attack.many(5000, 200))
    await attack.do((partial(send_http, attack.hub.http, data) for data in repeated), 64)


async def huge_bodies(attack: Attack) -> None:
    """Bodies in chunks that do not end, and one that claims 2^60 bytes."""
    start = b"POST /api/v1/sql HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/sql\r\n"
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n"

    async def chunks() -> str:
        reader, writer = await open_tcp(attack.hub.http)
        try:
            writer.write(start + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(200):
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), 5)
        except (ConnectionError, TimeoutError):
            pass
        status = await status_of(reader)
        writer.close()
        return status

    claimed = start + b"Content-Length: 1152921504606846976\r\n\r\nSELECT 1"
    clients = [chunks, lambda: send_http(attack.hub.http, claimed)] * attack.many(2000, 100)
    await attack.do(clients, 100)


async def slowloris(attack: Attack) -> None:
    """As many connections as the hub takes, each sending a byte of its head now and then. Then a new client comes."""

    async def drip() -> str:
        reader, writer = await open_tcp(attack.hub.http)
        answered = asyncio.ensure_future(status_of(reader))
        for byte in itertools.chain(b"GET /healthz HTTP/1.1\r\nX: ", itertools.repeat(97)):
            writer.write(bytes([byte]))
            done, _ = await asyncio.wait([answered], timeout=0.5)
            if done or attack.left < 0.6:
                break
        answer = answered.result() if answered.done() else "held"
        answered.cancel()
        writer.close()
        return answer

    holding = asyncio.ensure_future(attack.do([drip] * 600, 600))
    await asyncio.sleep(attack.left / 2)
    await expect_served(attack, "http")
    await holding


async def half_closed(attack: Attack) -> None:
    """Clients that end their side after the request. They still want the answer."""
    point = post_sql(f"SELECT value FROM latest WHERE topic = '{attack.hub.topic}'")
    planned = post_sql("SELECT count(*) FROM latest a JOIN latest b ON a.topic = b.topic")
    requests = [point, planned, get("/healthz")] * attack.many(1000, 30)
    await attack.do((partial(send_http, attack.hub.http, data, half_close=True) for data in requests), 16)
    attack.goals["every half-closed client was answered"] = set(attack.answers) <= {"200", "no answer yet"}


async def hold_silent(attack: Attack, listener: str, count: int) -> list[asyncio.StreamWriter]:
    """Opens connections that say nothing, and returns them."""
    hub, held = attack.hub, []
    open_one = (lambda: open_unix(hub.unix)) if listener == "unix" else (lambda: open_tcp(getattr(hub, listener)))
    for _ in range(count):
        try:
            reader, writer = await asyncio.wait_for(open_one(), 2)
            held.append((reader, writer))
        except (OSError, TimeoutError):
            attack.answers["cannot connect"] += 1
    await asyncio.sleep(min(2.0, attack.left / 4))
    for reader, _ in held:
        attack.answers["closed by the hub" if reader.at_eof() else "held"] += 1
    return [writer for _, writer in held]


def silent(listener: str, count: int = SILENT) -> Callable[[Attack], Awaitable[None]]:
    """Returns the case of connections that stay silent, after which a new client comes."""

    async def case(attack: Attack) -> None:
        held = await hold_silent(attack, listener, count)
        await expect_served(attack, listener)
        for writer in held:
            writer.close()

    case.__doc__ = f"{count} connections that say nothing, and then a new client of the same listener."
    return case


async def expect_served(attack: Attack, listener: str) -> None:
    """A new client has to be answered within NEW_CLIENT_S."""
    until = asyncio.get_running_loop().time() + NEW_CLIENT_S
    answer = await knock(attack, listener)
    while answer != "200" and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.5)
        answer = await knock(attack, listener)
    attack.answers[f"new client: {answer}"] += 1
    attack.goals["a new client was served"] = answer == "200"


async def knock(attack: Attack, listener: str) -> str:
    """Asks a small thing over a new connection, and returns the answer."""
    hub = attack.hub
    asked = {
        "http": lambda: send_http(hub.http, get("/healthz")),
        "unix": lambda: ask_unix(hub.unix, {"get": [hub.topic]}),
        "flight": lambda: greet(hub.flight),
    }
    try:
        return await asyncio.wait_for(asked[listener](), 3)
    except TimeoutError:
        return "no answer"
    except OSError as e:
        return type(e).__name__


async def told_before_close(attack: Attack) -> None:
    """Clients beyond the limit of each listener. Whoever is refused is told before the connection is closed."""
    busy = {"http": ("503", "429", "200"), "flight": ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "200"), "unix": ("200",)}
    for listener, proper in busy.items():
        held = await hold_working(attack, listener, MOST[listener])
        answers = [await knock(attack, listener) for _ in range(20)]
        words = {"too many", "the hub is busy", "try again"}
        told = [answer in proper or any(word in answer for word in words) for answer in answers]
        attack.answers.update(f"{listener}: {answer}" for answer in answers)
        attack.goals[f"{listener} tells whom it refuses"] = all(told)
        for writer in held:
            writer.close()
        await asyncio.sleep(0.3)


async def hold_working(attack: Attack, listener: str, count: int) -> list[asyncio.StreamWriter]:
    """Opens connections that have been answered once, so that none of them counts as silent."""
    hub, held = attack.hub, []

    async def hold() -> str:
        if listener == "flight":
            rpc = await Rpc.open(hub.flight)
            held.append(rpc.writer)
            return (await rpc.call("ListActions", [b""]))[0]
        reader, writer = await (open_unix(hub.unix) if listener == "unix" else open_tcp(hub.http))
        held.append(writer)
        wanted = json.dumps({"get": [hub.topic]}).encode() + b"\n"
        writer.write(wanted if listener == "unix" else b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        return "200" if await reader.readline() else "closed"

    clients = (hold() for _ in range(count))
    await asyncio.gather(*(asyncio.wait_for(client, 5) for client in clients), return_exceptions=True)
    return held


async def get_everything(attack: Attack) -> None:
    """The latest values of 256 patterns that match all topics, by 32 clients."""
    request = get(f"/api/v1/get?{ALL_TOPICS}")
    await attack.do([lambda: send_http(attack.hub.http, request)] * attack.many(256, 32), 32)


async def get_unknown(attack: Attack) -> None:
    """Topics that exist nowhere, each a little different, by 32 clients: the hub looks for the nearest name."""
    names = (f"/api/v1/get?topic=sim0001/mem/availible_bites_{at}" for at in itertools.count())
    requests = itertools.islice(map(get, names), attack.many(3000, 100))
    await attack.do((partial(send_http, attack.hub.http, data) for data in requests), 32)


def watch_everything(*, reads: bool) -> Callable[[Attack], Awaitable[None]]:
    """Returns the case of clients that watch all topics from the beginning of memory, and read or not."""

    async def watch(attack: Attack) -> str:
        reader, writer = await open_tcp(attack.hub.http, BUFFER if reads else SMALL_BUFFER)
        try:
            writer.write(get("/api/v1/watch?topic=**", "Last-Event-ID: 0"))
            status = await asyncio.wait_for(status_of(reader), attack.left - 0.3)
            if status != "200":
                return status
            if reads:
                return f"200, then {await read_on(attack, reader)}"
            await asyncio.sleep(attack.left - 0.3)
            return "200, not read"
        except TimeoutError:
            return "no answer yet"
        finally:
            writer.close()

    async def case(attack: Attack) -> None:
        count = attack.many(160, 160)
        await attack.do([lambda: watch(attack)] * count, count)

    case.__doc__ = f"160 clients that watch all topics from the beginning and {'read' if reads else 'never read'}."
    return case


async def read_on(attack: Attack, reader: asyncio.StreamReader) -> str:
    """Reads almost until the case is over, and returns whether the hub has ended the answer before."""
    try:
        while (left := attack.left - 0.3) > 0:
            if not await asyncio.wait_for(reader.read(BUFFER), left):
                return "closed"
    except TimeoutError:
        pass
    except ConnectionError:
        return "reset"
    return "open"


async def standing_questions(attack: Attack) -> None:
    """A thousand standing questions with large answers by HTTP, and two hundred by the UNIX socket."""
    hub = attack.hub

    async def over_http(at: int) -> str:
        sql = f"SELECT%20topic,value%20FROM%20latest%20WHERE%20value%20>%20-{at}".replace(">", "%3E")
        reader, writer = await open_tcp(hub.http)
        try:
            writer.write(get(f"/api/v1/watch?sql={sql}&every=10ms"))
            status = await asyncio.wait_for(status_of(reader), attack.left - 0.3)
            return status if status != "200" else f"200, then {await read_on(attack, reader)}"
        except TimeoutError:
            return "no answer yet"
        finally:
            writer.close()

    async def over_unix(at: int) -> str:
        sql = f"SELECT topic, value FROM latest WHERE value > -{at}"
        reader, writer = await open_unix(hub.unix)
        try:
            wanted = {"sql": sql, "rows": 10**6, "deadline_ms": 10**5, "standing": True}
            writer.write(json.dumps(wanted).encode() + b"\n")
            return f"unix: {await read_on(attack, reader)}"
        finally:
            writer.close()

    clients = [partial(over_http, at) for at in range(attack.many(1000, 200))]
    clients += [partial(over_unix, at) for at in range(attack.many(200, 40))]
    await attack.do(clients, len(clients))


async def unix_statements(attack: Attack) -> None:
    """Two hundred heavy statements at one time by the UNIX socket."""
    sql = "SELECT count(*) FROM samples a JOIN samples b ON a.value < b.value + random()"

    async def client(at: int) -> str:
        return await ask_unix(attack.hub.unix, {"sql": f"{sql} -- {at}", "rows": 10, "deadline_ms": 15_000})

    await attack.do([partial(client, at) for at in range(200)], 200)


async def never_read_http(attack: Attack) -> None:
    """Clients that ask for everything by HTTP and never read the answer."""
    connect = partial(open_tcp, attack.hub.http, SMALL_BUFFER)
    await never_read(attack, connect, post_sql(EVERYTHING), attack.many(400, 40))


async def never_read_latest(attack: Attack) -> None:
    """Clients that ask for the latest values of all topics, by a point read, a pattern and a scrape, and never read."""
    connect = partial(open_tcp, attack.hub.http, SMALL_BUFFER)
    requests = [post_sql(ALL_LATEST), get("/api/v1/get?topic=**"), get("/metrics")]
    count = attack.many(300, 20)
    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(never_read(attack, connect, request, count))


async def new_reads(attack: Attack) -> None:
    """Point reads of all topics, each with another text, by 64 clients."""
    requests = (post_sql(f"SELECT avg(value) FROM latest WHERE value > {at}") for at in itertools.count())
    chosen = itertools.islice(requests, attack.many(20_000, 300))
    await attack.do((partial(send_http, attack.hub.http, data) for data in chosen), 64)


async def never_read_unix(attack: Attack) -> None:
    """Clients that ask for everything by the UNIX socket and never read the answer."""
    request = json.dumps({"sql": EVERYTHING, "rows": 10**6, "deadline_ms": 30_000}).encode() + b"\n"
    connect = partial(open_unix, attack.hub.unix, SMALL_BUFFER)
    await never_read(attack, connect, request, attack.many(200, 40))


async def never_read(attack: Attack, connect: Callable[[], Awaitable[Streams]], request: bytes, count: int) -> None:
    async def client() -> str:
        reader, writer = await connect()
        try:
            writer.write(request)
            await asyncio.sleep(max(0.0, attack.left - 0.3))
            status = await status_of(reader)
            return "sent" if status == "not HTTP" else status
        finally:
            writer.transport.abort()

    await attack.do([client] * count, count)
