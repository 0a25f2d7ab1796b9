"""The innocent point reader: a process that reads one topic at a fixed rate while others abuse the hub.

It asks by HTTP over one connection that it keeps, and in SQL over the UNIX socket. A latency counts from the time at
which a request was due, so that requests that a stalled hub kept from being sent are not missing.
"""

import json
import multiprocessing as mp
import socket
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from hub import Hub, forget_peak, memory_mb

TIMEOUT = 10.0
LISTENERS = ("http", "unix")


@dataclass
class Seen:
    """What was seen since the last look: latencies in milliseconds, failures, and the peak of the hub's memory."""

    latencies: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LISTENERS})
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LISTENERS, 0))
    peak_mb: float = 0.0

    def quantile(self, share: float) -> float:
        """Returns the quantile of the slower listener, in milliseconds; failed requests took the whole timeout."""
        return max(quantile(self.latencies[name] + [TIMEOUT * 1e3] * self.failures[name], share) for name in LISTENERS)


class Innocent:
    """The reader's process, as the abuser's process sees it."""

    def __init__(self, hub: Hub, rate: float) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        at = (hub.http, hub.unix, hub.topic, hub.pid)
        self.process = context.Process(target=run, args=(theirs, at, rate), daemon=True)
        self.process.start()
        self.pipe.recv()

    def look(self) -> Seen:
        """Returns what was seen since the last look."""
        self.pipe.send("look")
        return self.pipe.recv()

    def stop(self) -> None:
        self.process.terminate()
        self.process.join()


def run(pipe: Connection, at: tuple[int, str, str, int], rate: float) -> None:
    """Reads until the process ends, and answers each message with what was seen since the last one."""
    http, unix, topic, pid = at
    state = State(rate)
    get = f"GET /api/v1/get?topic={topic} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    ask = {"sql": f"SELECT value FROM latest WHERE topic = '{topic}'", "rows": 10, "deadline_ms": 10_000}
    readers = {
        "http": (lambda: connect(socket.AF_INET, ("127.0.0.1", http)), get, read_http),
        "unix": (lambda: connect(socket.AF_UNIX, unix), json.dumps(ask).encode() + b"\n", read_unix),
    }
    for name, how in readers.items():
        threading.Thread(target=read_for_ever, args=(name, how, state), daemon=True).start()
    pipe.send("ready")
    forget_peak(pid)
    while True:
        while not pipe.poll(0.05):
            state.seen.peak_mb = max(state.seen.peak_mb, memory_mb(pid, "VmHWM"))
        pipe.recv()
        seen = state.take()
        seen.peak_mb = max(seen.peak_mb, memory_mb(pid, "VmHWM"))
        forget_peak(pid)
        pipe.send(seen)


class State:
    """What the threads of the reader share."""

    def __init__(self, rate: float) -> None:
        self.pause, self.seen = 1 / rate, Seen()
        # When the request that is not answered yet was due.
        self.due: dict[str, float] = {}

    def take(self) -> Seen:
        """Returns what was seen, with the requests that wait for their answers or could not even be sent."""
        seen, self.seen = self.seen, Seen()
        now = time.monotonic()
        for name, due in list(self.due.items()):
            waited = int(max(0.0, now - due) / self.pause)
            seen.latencies[name].extend((now - due - at * self.pause) * 1e3 for at in range(waited))
        return seen


def read_for_ever(name: str, how: tuple, state: State) -> None:
    make, request, read = how
    stream, due = None, time.monotonic()
    while True:
        due += state.pause
        state.due[name] = due
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            stream = stream or make()
            stream.sendall(request)
            read(stream)
            state.seen.latencies[name].append((time.monotonic() - due) * 1e3)
        except OSError:
            state.seen.failures[name] += 1
            if stream:
                stream.close()
            stream, due = None, time.monotonic() + 0.1


def connect(family: int, address: tuple[str, int] | str) -> socket.socket:
    stream = socket.socket(family, socket.SOCK_STREAM)
    stream.settimeout(TIMEOUT)
    stream.connect(address)
    return stream


def read_http(stream: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        head += received(stream)
    head, _, body = head.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(head[:40])
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    missing = int(length.split(b":")[1]) - len(body)
    while missing > 0:
        missing -= len(received(stream))


def read_unix(stream: socket.socket) -> None:
    head = b""
    while b"\n" not in head:
        head += received(stream)
    line, _, body = head.partition(b"\n")
    answer = json.loads(line)
    if "error" in answer:
        raise OSError(answer["error"])
    missing = answer["bytes"] - len(body)
    while missing > 0:
        missing -= len(received(stream))


def received(stream: socket.socket) -> bytes:
    data = stream.recv(65536)
    if not data:
        raise OSError("the hub closed the connection")
    return data


def quantile(values: list[float], share: float) -> float:
    """Returns the quantile of values; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
