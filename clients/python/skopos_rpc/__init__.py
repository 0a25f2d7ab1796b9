"""Records the calls of gRPC services in trace files that `skopos trace` reads.

    import skopos_rpc
    skopos_rpc.start("kv", "/var/tmp/traces")      # the folder exists
    server = grpc.server(pool, interceptors=[skopos_rpc.server_interceptor(pool)])
    channel = skopos_rpc.trace_channel(grpc.insecure_channel(address))

For asyncio: `grpc.aio.server(interceptors=[skopos_rpc.aio_server_interceptor()])` and
`grpc.aio.insecure_channel(address, interceptors=skopos_rpc.aio_client_interceptors())`.

Read in this order: `record` (the 64 bytes of a record), `callpath`, `context`, `tracefile`, `recorder`, `span`, and then
the hosts `blocking_client`, `blocking_server` and `aio`.
"""

import os

from .context import Context
from .recorder import Recorder
from .span import current

__all__ = [
    "Context",
    "Recorder",
    "aio_client_interceptors",
    "aio_server_interceptor",
    "client_interceptor",
    "current",
    "running",
    "server_interceptor",
    "start",
    "stop",
    "trace_channel",
]

_recorder = None


def start(name, folder=None, config=None, **options):
    """Starts the recorder of this process and returns it; `config` (text by name) is stored with the run.

    Without `folder` the trace goes to that of the variable `SKOPOS_TRACE`, which `skopos run --trace` sets. Raises
    `ValueError` if neither names a folder, and `OSError` if it does not exist or cannot be written. A second call returns
    the recorder that runs.
    """
    global _recorder
    if _recorder is None:
        _recorder = Recorder(name, _folder(folder), config=config, **options)
    return _recorder


def _folder(named):
    if named is not None:
        return named
    folder = os.environ.get("SKOPOS_TRACE", "")
    # Another path would mean another folder in each working directory.
    if not os.path.isabs(folder):
        raise ValueError("name the folder of the trace, or set SKOPOS_TRACE to an absolute path")
    return folder


def running():
    """Returns the recorder of this process, or None before `start`."""
    return _recorder


def stop():
    """Writes all records, ends the trace file, and forgets the recorder."""
    global _recorder
    if _recorder is not None:
        _recorder.close()
        _recorder = None


def _needed():
    if _recorder is None:
        raise RuntimeError("call skopos_rpc.start(name, folder) before interceptors are made")
    return _recorder


def server_interceptor(pool=None):
    """Returns the interceptor for `grpc.server`; the number of threads of `pool` is recorded as `execution_streams`."""
    from .blocking_server import ServerInterceptor

    threads = getattr(pool, "_max_workers", None)
    if threads is not None:
        _needed().set_config("execution_streams", threads)
    return ServerInterceptor(_needed())


def client_interceptor(peer=None):
    """Returns the interceptor for `grpc.intercept_channel`; `peer` names the service behind the channel."""
    from .blocking_client import ClientInterceptor

    return ClientInterceptor(_needed(), peer)


def trace_channel(channel, peer=None):
    """Returns a channel that records the calls of `channel`, with the time that serialization takes."""
    from .blocking_client import trace_channel as trace

    return trace(_needed(), channel, peer)


def aio_server_interceptor():
    """Returns the interceptor for `grpc.aio.server`."""
    from .aio import ServerInterceptor

    return ServerInterceptor(_needed())


def aio_client_interceptors(peer=None):
    """Returns the interceptors for a channel of `grpc.aio`; `peer` names the service behind the channel."""
    from .aio import client_interceptors

    return client_interceptors(_needed(), peer)
