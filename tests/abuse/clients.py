"""Clients that speak to a hub's sockets byte by byte, and so can break every rule. They name each answer in a word."""

import asyncio
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from hub import Hub

# Closes a connection without leaving its port behind.
RESET_AT_CLOSE = struct.pack("ii", 1, 0)
# Bytes that a client takes before it reads.
BUFFER, SMALL_BUFFER = 1 << 20, 4096
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Attack:
    """A case under way: the hub, how much to do, until when, and how the hub answered."""

    def __init__(self, hub: Hub, seconds: float, *, is_quick: bool) -> None:
        self.hub, self.is_quick = hub, is_quick
        self.until = time.monotonic() + seconds
        self.answers: Counter[str] = Counter()
        # Goals of this case alone: name, whether it was met.
        self.goals: dict[str, bool] = {}

    def many(self, full: int, quick: int) -> int:
        return quick if self.is_quick else full

    @property
    def left(self) -> float:
        return max(0.0, self.until - time.monotonic())

    async def do(self, what: Iterable[Callable[[], Awaitable[str]]], at_once: int) -> None:
        """Runs clients, some at one time, until the time is over, and counts their answers."""
        waiting = iter(what)

        async def work() -> None:
            for client in waiting:
                if not self.left:
                    return
                try:
                    answer = await asyncio.wait_for(client(), self.left)
                except TimeoutError:
                    answer = "no answer yet"
                except OSError as e:
                    answer = word_of(e)
                self.answers[answer] += 1

        await asyncio.gather(*(work() for _ in range(at_once)))


def word_of(error: OSError) -> str:
    """Returns a word for a connection that broke."""
    return {"ConnectionResetError": "reset", "BrokenPipeError": "reset"}.get(type(error).__name__, type(error).__name__)


async def open_tcp(port: int, limit: int = BUFFER) -> Streams:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    return reader, writer


async def open_unix(path: str, limit: int = BUFFER) -> Streams:
    return await asyncio.open_unix_connection(path, limit=limit)


async def status_of(reader: asyncio.StreamReader) -> str:
    """Returns the HTTP status of an answer."""
    try:
        line = await reader.readline()
    except ConnectionError:
        return "reset"
    if not line:
        return "closed"
    parts = line.split()
    return parts[1].decode("ascii", "replace") if len(parts) > 1 and line.startswith(b"HTTP/") else "not HTTP"


async def send_http(port: int, request: bytes, *, half_close: bool = False, whole: bool = True) -> str:
    """Sends bytes, and returns the status of the answer; the rest of it is read unless `whole` is false."""
    reader, writer = await open_tcp(port)
    try:
        writer.write(request)
        if half_close:
            writer.write_eof()
        status = await status_of(reader)
        while whole and status == "200" and await reader.read(1 << 20):
            pass
        return status
    finally:
        writer.close()


def get(path: str, *headers: str) -> bytes:
    """Returns a request that ends its connection."""
    more = "".join(f"{header}\r\n" for header in headers)
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{more}\r\n".encode()


def post_sql(sql: str, deadline_ms: int = 20_000) -> bytes:
    """Returns the request of a statement."""
    body = json.dumps({"sql": sql, "deadline_ms": deadline_ms}).encode()
    lines = ["POST /api/v1/sql HTTP/1.1", "Host: 127.0.0.1", "Connection: close", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def ask_unix(path: str, request: dict) -> str:
    """Asks by the UNIX socket, and returns the kind of the answer: its way, or the first words of the error."""
    reader, writer = await open_unix(path)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
        if not line:
            return "closed"
        head = json.loads(line)
        return head["error"][:40] if "error" in head else "200"
    except ConnectionError:
        return "reset"
    finally:
        writer.close()
