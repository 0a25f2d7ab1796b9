"""Serves the method Say in Python until its input ends: python_server.py CLIENTS FOLDER. Prints its address."""

import sys
from concurrent import futures

sys.path.insert(0, sys.argv[1])
import grpc  # noqa: E402
import skopos_rpc  # noqa: E402

skopos_rpc.start("python-server", sys.argv[2])
server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=[skopos_rpc.server_interceptor()])
say = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo.Echo", {"Say": say})])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(f"127.0.0.1:{port}", flush=True)
sys.stdin.read()
server.stop(5).wait()
skopos_rpc.stop()
