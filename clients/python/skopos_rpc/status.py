"""The end of a call, by the status codes of gRPC."""

import grpc

from . import record

_CODES = {
    grpc.StatusCode.OK: record.OK,
    grpc.StatusCode.CANCELLED: record.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED: record.TIMED_OUT,
}


# The caller's time began before the request was here, and its cancellation may be here before its deadline.
EARLY_SECONDS = 0.01


def of_code(code):
    """Returns the status of a code; without a code a call that returned is a success."""
    if code is None or code == 0:
        return record.OK
    return _CODES.get(code, record.ERROR)


def of_failure(code):
    """Returns the status of a handler that raised; without a code gRPC answers UNKNOWN."""
    status = of_code(code)
    return record.ERROR if status == record.OK else status


def cancelled(time_remaining):
    """Returns the status of a call whose caller does not wait any more."""
    passed = time_remaining is not None and time_remaining <= EARLY_SECONDS
    return record.TIMED_OUT if passed else record.CANCELLED


def call_name(method):
    """Returns the name of a call: `/kv.Store/Put` is `kv.Store/Put`. grpcio has text or bytes."""
    text = method.decode(errors="replace") if isinstance(method, bytes) else method
    return text.lstrip("/")
