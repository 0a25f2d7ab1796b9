"""Calls the echo service at ADDRESS from Python: python_client.py CLIENTS FOLDER ADDRESS [aio]."""

import asyncio
import sys

sys.path.insert(0, sys.argv[1])
import grpc  # noqa: E402
import skopos_rpc  # noqa: E402

folder, address = sys.argv[2:4]
SAY = "/echo.Echo/Say"


async def call_in_asyncio():
    interceptors = skopos_rpc.aio_client_interceptors("echo")
    async with grpc.aio.insecure_channel(address, interceptors=interceptors) as channel:
        assert await channel.unary_unary(SAY)(b"hello") == b"hello"


skopos_rpc.start("python-client", folder)
if sys.argv[4:] == ["aio"]:
    asyncio.run(call_in_asyncio())
else:
    with grpc.insecure_channel(address) as channel:
        assert skopos_rpc.trace_channel(channel, "echo").unary_unary(SAY)(b"hello") == b"hello"
skopos_rpc.stop()
