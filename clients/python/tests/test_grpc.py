"""Tests of the interceptors with servers and channels of grpcio over the loopback; skipped without grpcio."""

import asyncio
import os
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

try:
    import grpc
except ImportError:
    grpc = None

import skopos_rpc  # noqa: E402
import traces  # noqa: E402

SAY, RELAY, FAIL, SLOW, COUNT, SUM, CHAT = (
    f"/echo.Echo/{name}" for name in ("Say", "Relay", "Fail", "Slow", "Count", "Sum", "Chat")
)
SLOW_SECONDS = 0.2


class Handlers:
    """Methods of an echo service for threads."""

    def __init__(self, relay=None):
        self.relay = relay

    def service(self, details):
        method = details.method.rpartition("/")[2].lower()
        behavior = getattr(self, method, None)
        make = {
            "count": "unary_stream", "sum": "stream_unary", "chat": "stream_stream",
        }.get(method, "unary_unary")  # fmt: skip
        return behavior and getattr(grpc, f"{make}_rpc_method_handler")(behavior)

    def say(self, request, context):
        return request

    def fail(self, request, context):
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "as asked")

    def slow(self, request, context):
        time.sleep(SLOW_SECONDS)
        return request

    def count(self, request, context):
        for number in range(3):
            yield request + bytes([number])

    def sum(self, requests, context):
        return b"".join(requests)

    def chat(self, requests, context):
        yield from requests


class AioHandlers(Handlers):
    """Methods of an echo service for asyncio."""

    async def say(self, request, context):
        return request

    async def relay_(self, request, context):
        return await self.relay(request)

    async def fail(self, request, context):
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "as asked")

    async def slow(self, request, context):
        await asyncio.sleep(SLOW_SECONDS)
        return request

    async def count(self, request, context):
        for number in range(3):
            yield request + bytes([number])

    async def sum(self, requests, context):
        return b"".join([request async for request in requests])

    async def chat(self, requests, context):
        async for request in requests:
            yield request


def generic(handlers):
    class Generic(grpc.GenericRpcHandler):
        def service(self, details):
            return handlers.service(details)

    return Generic()


@unittest.skipIf(grpc is None, "no grpcio: `scripts/setup test` gets it where there is PyPI")
class Interceptors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        skopos_rpc.start("echo", self.folder)
        self.addCleanup(skopos_rpc.stop)

    def sides(self):
        skopos_rpc.stop()
        return traces.read_folder(self.folder)

    def check_pair(self, sides, name, status=0):
        (origin,) = (s for s in sides if s["kind"] == 1 and s["name"] == name)
        (target,) = (s for s in sides if s["kind"] == 2 and s["name"] == name)
        for key in ("low", "high", "span", "hash"):
            self.assertEqual(origin[key], target[key], key)
        self.assertEqual((origin["status"], target["status"]), (status, status), name)
        return origin, target

    def serve(self, handlers, threads=4):
        pool = futures.ThreadPoolExecutor(threads)
        server = grpc.server(pool, interceptors=[skopos_rpc.server_interceptor()])
        server.add_generic_rpc_handlers([generic(handlers)])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait())
        return server, f"127.0.0.1:{port}"

    def channel(self, address):
        channel = grpc.insecure_channel(address)
        self.addCleanup(channel.close)
        return skopos_rpc.trace_channel(channel, "echo")

    def test_all_kinds_of_calls(self):
        server, address = self.serve(Handlers())
        channel = self.channel(address)
        identity = bytes
        self.assertEqual(channel.unary_unary(SAY, request_serializer=identity)(b"abc"), b"abc")
        self.assertEqual(list(channel.unary_stream(COUNT)(b"a")), [b"a\0", b"a\1", b"a\2"])
        self.assertEqual(channel.stream_unary(SUM)(iter([b"x", b"y"])), b"xy")
        self.assertEqual(list(channel.stream_stream(CHAT)(iter([b"x", b"y"]))), [b"x", b"y"])
        with self.assertRaises(grpc.RpcError):
            channel.unary_unary(FAIL)(b"")
        with self.assertRaises(grpc.RpcError):
            channel.unary_unary("/echo.Echo/Absent")(b"")
        server.stop(None).wait()
        sides = self.sides()
        origin, target = self.check_pair(sides, "echo.Echo/Say")
        self.assertIn("input_serialization", origin["values"])
        for name in ("target_handler", "input_deserialization", "target_execution_exclusive",
                     "output_serialization", "target_completion_callback"):  # fmt: skip
            self.assertIn(name, target["values"])
        for side in (origin, target):
            self.assertEqual((side["values"]["request_bytes"], side["values"]["response_bytes"]), (3, 3))
        for name, request_bytes in (("Count", 1), ("Sum", 2), ("Chat", 2)):
            origin, target = self.check_pair(sides, f"echo.Echo/{name}")
            self.assertEqual(origin["values"]["request_bytes"], request_bytes, name)
            self.assertEqual(target["values"]["request_bytes"], request_bytes, name)
        self.check_pair(sides, "echo.Echo/Fail", 1)
        self.check_pair(sides, "echo.Echo/Absent", 1)

    def test_the_wait_for_a_thread_of_the_pool_is_seen(self):
        server, address = self.serve(Handlers(), threads=1)
        slow = self.channel(address).unary_unary(SLOW)
        both = [slow.future(b""), slow.future(b"")]
        [call.result() for call in both]
        server.stop(None).wait()
        queued = sorted(s["values"]["target_handler"] for s in self.sides() if s["kind"] == 2)
        self.assertGreater(queued[1], SLOW_SECONDS * 0.5e9)

    def test_a_call_within_a_handler_is_below_it(self):
        second, last = self.serve(Handlers())
        handlers = Handlers()
        say = self.channel(last).unary_unary(SAY)
        handlers.relay = lambda request, context: say(request)
        first, address = self.serve(handlers)
        self.assertEqual(self.channel(address).unary_unary(RELAY)(b"x"), b"x")
        first.stop(None).wait()
        second.stop(None).wait()
        sides = self.sides()
        _, relay = self.check_pair(sides, "echo.Echo/Relay")
        origin, _ = self.check_pair(sides, "echo.Echo/Say")
        self.assertEqual((origin["parent"], origin["low"]), (relay["span"], relay["low"]))
        self.assertGreater(relay["values"]["children"], 0)

    def test_a_call_past_its_deadline_timed_out(self):
        server, address = self.serve(Handlers())
        with self.assertRaises(grpc.RpcError):
            self.channel(address).unary_unary(SLOW)(b"", timeout=SLOW_SECONDS / 4)
        server.stop(5).wait()
        self.check_pair(self.sides(), "echo.Echo/Slow", 3)

    def test_a_stopped_recorder_leaves_calls_alone(self):
        _, address = self.serve(Handlers())
        channel = self.channel(address)
        skopos_rpc.running().enabled = False
        self.assertEqual(channel.unary_unary(SAY)(b"abc"), b"abc")
        self.assertEqual(self.sides(), [])

    def test_asyncio(self):
        asyncio.run(self.all_kinds_in_asyncio())
        sides = self.sides()
        _, target = self.check_pair(sides, "echo.Echo/Say")
        self.assertIn("target_completion_callback", target["values"])
        for name in ("Count", "Sum", "Chat"):
            self.check_pair(sides, f"echo.Echo/{name}")
        self.check_pair(sides, "echo.Echo/Fail", 1)
        self.check_pair(sides, "echo.Echo/Slow", 3)

    async def all_kinds_in_asyncio(self):
        server = grpc.aio.server(interceptors=[skopos_rpc.aio_server_interceptor()])
        server.add_generic_rpc_handlers([generic(AioHandlers())])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        interceptors = skopos_rpc.aio_client_interceptors("echo")
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=interceptors) as channel:
            self.assertEqual(await channel.unary_unary(SAY)(b"abc"), b"abc")
            counted = [answer async for answer in channel.unary_stream(COUNT)(b"a")]
            self.assertEqual(counted, [b"a\0", b"a\1", b"a\2"])
            self.assertEqual(await channel.stream_unary(SUM)(aiter_of([b"x", b"y"])), b"xy")
            chatted = [answer async for answer in channel.stream_stream(CHAT)(aiter_of([b"x", b"y"]))]
            self.assertEqual(chatted, [b"x", b"y"])
            with self.assertRaises(grpc.aio.AioRpcError):
                await channel.unary_unary(FAIL)(b"")
            with self.assertRaises(grpc.aio.AioRpcError):
                await channel.unary_unary(SLOW)(b"", timeout=SLOW_SECONDS / 4)
        await server.stop(5)


async def aiter_of(items):
    for item in items:
        yield item


if __name__ == "__main__":
    watchdog = threading.Timer(120, os._exit, [3])
    watchdog.daemon = True
    watchdog.start()
    unittest.main()
