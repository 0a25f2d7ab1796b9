"""Channels of grpcio for threads."""

import collections
import threading
import time

import grpc

from . import record
from .context import from_metadata
from .span import Origin
from .status import call_name, of_code

_SERIALIZATION = record.INTERVALS["input_serialization"]

# The call that this thread sends, or whose requests it sends: serializers of a channel do not know their call. A response
# that comes to another thread is not measured.
_sending = threading.local()


class _Details(
    collections.namedtuple(
        "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
    ),
    grpc.ClientCallDetails,
):
    pass


def with_context(details, kind, origin):
    """Returns `details` with the headers of the context, as a tuple of the class `kind`."""
    own = ("traceparent", "tracestate")
    kept = [(key, value) for key, value in details.metadata or () if key not in own]
    others = next((value for key, value in details.metadata or () if key == "tracestate"), None)
    fields = {name: getattr(details, name, None) for name in kind._fields}
    fields["metadata"] = kept + list(origin.headers(others))
    return kind(**fields)


class ClientInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Records the calls of a channel."""

    def __init__(self, recorder, peer=None):
        self._recorder = recorder
        self._peer = peer

    def _intercept_stream(self, continuation, details, requests):
        return self._intercept(continuation, details, requests, is_stream=True)

    def _intercept(self, continuation, details, request, is_stream=False):
        recorder = self._recorder
        if not recorder.enabled:
            return continuation(details, request)
        foreign, _ = from_metadata(details.metadata)
        origin = Origin(recorder, call_name(details.method), self._peer, foreign)
        _sending.origin = origin
        if is_stream:
            request = _sent_by(origin, request)
        try:
            call = continuation(with_context(details, _Details, origin), request)
        except BaseException:
            origin.end(record.ERROR)
            raise
        finally:
            _sending.origin = None

        def done(*_):
            origin.end(of_code(call.code()))

        _when_over(call, done)
        return call

    intercept_unary_unary = _intercept
    intercept_unary_stream = _intercept
    intercept_stream_unary = _intercept_stream
    intercept_stream_stream = _intercept_stream


def _sent_by(origin, requests):
    """Yields the requests of a call. grpcio takes and serializes them in a thread of the call."""
    for request in requests:
        _sending.stream = origin
        yield request


def _when_over(call, done):
    """Runs `done` when a call is over, or now if it is. The classes of grpcio differ in what they implement."""
    try:
        if call.add_callback(done):
            return
    except (AttributeError, NotImplementedError):
        if hasattr(call, "add_done_callback"):
            call.add_done_callback(done)
            return
    done()


def trace_channel(recorder, channel, peer=None):
    """Returns a channel that records the calls of `channel`, with the time that serialization takes."""
    return grpc.intercept_channel(_Timed(channel), ClientInterceptor(recorder, peer))


def _serializer(inner, is_stream):
    """Measures a serializer of requests: bytes of all messages, and the time of a single one."""

    def serialize(message):
        origin = getattr(_sending, "stream" if is_stream else "origin", None)
        start = time.monotonic_ns()
        data = inner(message) if inner else message
        if origin is not None:
            if not is_stream:
                origin.value(_SERIALIZATION, time.monotonic_ns() - start)
            origin.add_sent(len(data))
        return data

    return serialize


def _deserializer(inner):
    """Measures the bytes of a response that comes to the thread which waits for it."""

    def deserialize(data):
        origin = getattr(_sending, "origin", None)
        if origin is not None:
            origin.add_received(len(data))
        return inner(data) if inner else data

    return deserialize


class _Timed(grpc.Channel):
    """A channel whose serializers are measured."""

    def __init__(self, channel):
        self._channel = channel

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, *args, **kwargs):
        serialize, deserialize = _serializer(request_serializer, False), _deserializer(response_deserializer)
        return self._channel.unary_unary(method, serialize, deserialize, *args, **kwargs)

    def unary_stream(self, method, request_serializer=None, *args, **kwargs):
        return self._channel.unary_stream(method, _serializer(request_serializer, False), *args, **kwargs)

    def stream_unary(self, method, request_serializer=None, response_deserializer=None, *args, **kwargs):
        serialize, deserialize = _serializer(request_serializer, True), _deserializer(response_deserializer)
        return self._channel.stream_unary(method, serialize, deserialize, *args, **kwargs)

    def stream_stream(self, method, request_serializer=None, *args, **kwargs):
        return self._channel.stream_stream(method, _serializer(request_serializer, True), *args, **kwargs)

    def subscribe(self, callback, try_to_connect=False):
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback):
        self._channel.unsubscribe(callback)

    def close(self):
        self._channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False
