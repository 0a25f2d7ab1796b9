"""Channels and servers of grpcio for asyncio.

A server's interceptor runs in the task of the call. Waiting before the event loop runs that task for the first time is not
seen, and is a part of no interval.
"""

import inspect

import grpc
from grpc import aio

from . import blocking_server, record
from .blocking_client import with_context
from .blocking_server import deserializer, peer_name, serializer
from .context import from_metadata
from .span import Origin, Target, attach
from .status import call_name, cancelled, of_code, of_failure


class ServerInterceptor(aio.ServerInterceptor):
    """Records the calls of a server."""

    def __init__(self, recorder):
        self._recorder = recorder

    async def intercept_service(self, continuation, details):
        recorder = self._recorder
        if not recorder.enabled:
            return await continuation(details)
        context, others = from_metadata(details.invocation_metadata)
        target = Target(recorder, call_name(details.method), context, others)
        handler = await continuation(details)
        if handler is None:
            target.end(record.ERROR)
            return None
        return _wrap(handler, target)


def _wrap(handler, target):
    behavior = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    if not (inspect.iscoroutinefunction(behavior) or inspect.isasyncgenfunction(behavior)):
        # grpcio runs it in a thread.
        return blocking_server.wrap(handler, target)
    wrapped = _generated(behavior, target) if inspect.isasyncgenfunction(behavior) else _awaited(behavior, target)
    make = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[handler.request_streaming, handler.response_streaming]
    return make(
        wrapped,
        deserializer(handler.request_deserializer, target, handler.request_streaming),
        serializer(handler.response_serializer, target, handler.response_streaming),
    )


def _begin(target, context):
    target.begin()
    target.peer(peer_name(context.peer()))

    def over(*_):
        if target.is_handled:
            target.end(of_code(context.code()))
        else:
            target.end(cancelled(context.time_remaining()))

    context.add_done_callback(over)


def _awaited(behavior, target):
    async def run(request, context):
        _begin(target, context)
        before = attach(target)
        try:
            response = await behavior(request, context)
        except GeneratorExit:
            raise
        except BaseException as error:
            _failed(target, context, error)
            raise
        finally:
            attach(before)
        target.handled()
        return response

    return run


def _generated(behavior, target):
    async def run(request, context):
        _begin(target, context)
        before = attach(target)
        try:
            async for response in behavior(request, context):
                yield response
        except GeneratorExit:
            raise
        except BaseException as error:
            _failed(target, context, error)
            raise
        finally:
            attach(before)
        target.handled()

    return run


def _failed(target, context, error):
    import asyncio

    if isinstance(error, asyncio.CancelledError):
        target.end(cancelled(context.time_remaining()))
        return
    target.handled()
    target.end(of_failure(context.code()))


class _Client:
    """Records the calls of a channel, of each of the four kinds."""

    def __init__(self, recorder, peer):
        self._recorder = recorder
        self._peer = peer

    async def _intercept(self, continuation, details, request):
        recorder = self._recorder
        if not recorder.enabled:
            return await continuation(details, request)
        foreign, _ = from_metadata(details.metadata)
        origin = Origin(recorder, call_name(details.method), self._peer, foreign)
        try:
            call = await continuation(with_context(details, _Details, origin), request)
        except BaseException as error:
            code = error.code() if isinstance(error, grpc.RpcError) else None
            origin.end(record.ERROR if code is None else of_code(code))
            raise
        call.add_done_callback(lambda done: origin.end(_status(done)))
        return call


def _status(call):
    """Returns the status of a call that is over: asking for its code does not wait then."""
    if call.cancelled():
        return record.CANCELLED
    asking = call.code()
    try:
        asking.send(None)
    except StopIteration as answer:
        return of_code(answer.value)
    except Exception:  # Another version of grpcio answers in another way.
        return record.ERROR
    asking.close()
    return record.ERROR


class _Details(aio.ClientCallDetails):
    def __new__(cls, method, timeout, metadata, credentials, wait_for_ready):
        return super().__new__(cls, method, timeout, aio.Metadata(*metadata), credentials, wait_for_ready)


class _UnaryUnary(_Client, aio.UnaryUnaryClientInterceptor):
    intercept_unary_unary = _Client._intercept


class _UnaryStream(_Client, aio.UnaryStreamClientInterceptor):
    intercept_unary_stream = _Client._intercept


class _StreamUnary(_Client, aio.StreamUnaryClientInterceptor):
    intercept_stream_unary = _Client._intercept


class _StreamStream(_Client, aio.StreamStreamClientInterceptor):
    intercept_stream_stream = _Client._intercept


def client_interceptors(recorder, peer=None):
    """Returns one interceptor for each kind of calls: a channel takes an object for one kind only."""
    return [kind(recorder, peer) for kind in (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)]
