"""Servers of grpcio for threads.

The moments of a call: t4, the interceptor runs, in the thread that takes calls from the network. t5, a thread of the pool
has taken the call and its first message has arrived. t8, the behavior has returned, or its last response was taken. t13,
grpcio says that the call is over. So the time in the queue has the wait for a free thread of the pool.
"""

import time

import grpc

from . import record
from .context import from_metadata
from .span import Target, attach
from .status import call_name, cancelled, of_code, of_failure

_DESERIALIZATION = record.INTERVALS["input_deserialization"]
_SERIALIZATION = record.INTERVALS["output_serialization"]


class ServerInterceptor(grpc.ServerInterceptor):
    """Records the calls of a server."""

    def __init__(self, recorder):
        self._recorder = recorder

    def intercept_service(self, continuation, details):
        recorder = self._recorder
        if not recorder.enabled:
            return continuation(details)
        context, others = from_metadata(details.invocation_metadata)
        target = Target(recorder, call_name(details.method), context, others)
        handler = continuation(details)
        if handler is None:
            # grpcio answers UNIMPLEMENTED.
            target.end(record.ERROR)
            return None
        return wrap(handler, target)


def wrap(handler, target):
    """Returns a handler that records in `target` one call of `handler`."""
    deserialize = deserializer(handler.request_deserializer, target, handler.request_streaming)
    serialize = serializer(handler.response_serializer, target, handler.response_streaming)
    if handler.request_streaming and handler.response_streaming:
        behavior = _streamed(handler.stream_stream, target)
        return grpc.stream_stream_rpc_method_handler(behavior, deserialize, serialize)
    if handler.request_streaming:
        behavior = _returned(handler.stream_unary, target)
        return grpc.stream_unary_rpc_method_handler(behavior, deserialize, serialize)
    if handler.response_streaming:
        behavior = _streamed(handler.unary_stream, target)
        return grpc.unary_stream_rpc_method_handler(behavior, deserialize, serialize)
    behavior = _returned(handler.unary_unary, target)
    return grpc.unary_unary_rpc_method_handler(behavior, deserialize, serialize)


def deserializer(inner, target, is_stream):
    """Measures the deserialization of requests: bytes of all messages, and the time of a single one."""

    def deserialize(data):
        target.add_bytes(len(data), 0)
        if is_stream:
            return inner(data) if inner else data
        target.begin()
        start = time.monotonic_ns()
        message = inner(data) if inner else data
        target.value(_DESERIALIZATION, time.monotonic_ns() - start)
        return message

    return deserialize


def serializer(inner, target, is_stream):
    """Measures the serialization of responses: bytes of all messages, and the time of a single one."""

    def serialize(message):
        start = time.monotonic_ns()
        data = inner(message) if inner else message
        if not is_stream:
            target.value(_SERIALIZATION, time.monotonic_ns() - start)
        target.add_bytes(0, len(data))
        return data

    return serialize


def _begin(target, context):
    target.begin()
    target.peer(peer_name(context.peer()))

    def over():
        if target.is_handled:
            target.end(of_code(context.code()))
        else:
            # The caller has gone, and the handler does not know yet.
            target.end(cancelled(context.time_remaining()))

    if not context.add_callback(over):
        target.end(cancelled(context.time_remaining()))


def _failed(target, context):
    target.handled()
    target.end(of_failure(context.code()))


def _returned(behavior, target):
    def run(request, context):
        _begin(target, context)
        before = attach(target)
        try:
            response = behavior(request, context)
        except BaseException:
            _failed(target, context)
            raise
        finally:
            attach(before)
        target.handled()
        return response

    return run


def _streamed(behavior, target):
    def run(request, context):
        _begin(target, context)
        before = attach(target)
        try:
            yield from behavior(request, context)
        except GeneratorExit:
            raise
        except BaseException:
            _failed(target, context)
            raise
        finally:
            attach(before)
        target.handled()

    return run


def peer_name(peer):
    """Returns the address of a peer without its port, which differs for each connection."""
    scheme, _, address = peer.partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme or None
    return address.rpartition(":")[0].replace("%5B", "").replace("%5D", "").strip("[]")
