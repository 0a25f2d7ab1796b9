"""A service of somebody else, slowed on purpose: slowed.py CLIENTS FOLDER MODE.

The service is `grpc.health.v1.Health` of the package grpcio-health-checking. MODE is the fault: `sleep` (the handler sleeps),
`lock` (handlers wait for one lock), `pool` (one thread serves all), `large` (some messages have a megabyte more), or
`downstream` (the handler calls a second service, which is slow). Server and client are two processes with a trace each.
"""

import os
import subprocess
import sys
import threading
import time
from concurrent import futures

clients, folder, mode = sys.argv[1:4]
sys.path.insert(0, clients)
import grpc  # noqa: E402
import skopos_rpc  # noqa: E402
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # noqa: E402

CALLS = 200
CALLERS = 8
SLEEP_SECONDS = 0.01
LARGE_BYTES = 1 << 20
# The pool of all modes but `pool`.
THREADS = 16


class Slowed(health.HealthServicer):
    """The servicer of the package, with one fault."""

    def __init__(self, fault, downstream=None):
        super().__init__()
        self._fault = fault
        self._one = threading.Lock()
        self._downstream = downstream
        for number in range(10):
            self.set(f"service-{number}", health_pb2.HealthCheckResponse.SERVING)

    def Check(self, request, context):
        if self._fault in ("sleep", "pool"):
            time.sleep(SLEEP_SECONDS)
        elif self._fault == "lock":
            with self._one:
                time.sleep(SLEEP_SECONDS)
        elif self._fault == "downstream":
            self._downstream.Check(health_pb2.HealthCheckRequest(service="service-0"))
        elif self._fault == "large":
            request.service = request.service.split("/")[0]
        return super().Check(request, context)


def serve(name, fault, downstream=None):
    skopos_rpc.start(name, folder, config={"fault": fault})
    pool = futures.ThreadPoolExecutor(1 if fault == "pool" else THREADS)
    server = grpc.server(pool, interceptors=[skopos_rpc.server_interceptor(pool)])
    next_service = None
    if downstream is not None:
        channel = skopos_rpc.trace_channel(grpc.insecure_channel(downstream), "below")
        next_service = health_pb2_grpc.HealthStub(channel)
    health_pb2_grpc.add_HealthServicer_to_server(Slowed(fault, next_service), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(5).wait()
    skopos_rpc.stop()


def child(*words):
    command = [sys.executable, __file__, clients, folder, mode, *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def call_all(address):
    skopos_rpc.start("client", folder)
    channel = skopos_rpc.trace_channel(grpc.insecure_channel(address), "health")
    stub = health_pb2_grpc.HealthStub(channel)

    def one(number):
        name = f"service-{number % 10}"
        if mode == "large" and number % 2:
            name += "/" + "x" * LARGE_BYTES
        stub.Check(health_pb2.HealthCheckRequest(service=name))

    with futures.ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(one, range(CALLS)))
    channel.close()
    skopos_rpc.stop()


def main():
    if sys.argv[4:5] == ["serve"]:
        serve(sys.argv[5], sys.argv[6], *sys.argv[7:])
        return
    started = []
    if mode == "downstream":
        started.append(child("serve", "below", "sleep"))
    below = [address for _, address in started]
    started.append(child("serve", "health", mode, *below))
    call_all(started[-1][1])
    for process, _ in reversed(started):
        process.communicate("")
        assert process.returncode == 0, os.fspath(process.args[-1])


if __name__ == "__main__":
    main()
