"""One side of a call while it lasts, and the request in which a piece of code works."""

import contextvars
import threading
import time

from . import callpath, record
from .context import NEWER, Context

_current = contextvars.ContextVar("skopos_rpc_current", default=None)

_EXECUTION = record.INTERVALS["target_execution_exclusive"]
_HANDLER = record.INTERVALS["target_handler"]
_CALLBACK = record.INTERVALS["target_completion_callback"]
_CHILDREN = record.INTERVALS["children"]


def current():
    """Returns the context of the request that this code serves, or None."""
    scope = _current.get()
    return None if scope is None else scope.context


def attach(scope):
    """Makes `scope` (or None) current and returns the one before."""
    before = _current.get()
    _current.set(scope)
    return before


class Origin:
    """The side of the caller."""

    __slots__ = (
        "_recorder", "_scope", "_start", "_parent", "_node", "_peer", "_values", "_sent", "_received", "context", "_done",
    )  # fmt: skip

    def __init__(self, recorder, name, peer, foreign=None):
        scope = _current.get()
        parent = scope.context if scope is not None else foreign
        self._recorder = recorder
        self._scope = scope
        self._peer = recorder.peer(peer)
        if parent is None:
            request, above, order = recorder.new_id() << 64 | recorder.new_id(), 0, 1
        else:
            request, above = parent.request, parent.span
            order = scope.next_order() if scope is not None else parent.order + 1
        path = parent.callpath if parent is not None else callpath.ROOT
        self._parent = above
        self._node, _ = recorder.node(path, name)
        lamport = recorder.tick(parent.lamport if parent is not None else 0)
        self.context = Context(request, recorder.new_id(), path, lamport, min(order, 0xFFFF))
        self._values = []
        self._sent = self._received = None
        self._done = False
        recorder.in_flight["client"] += 1
        self._start = time.monotonic_ns()
        if scope is not None:
            scope.child_begins(self._start)

    def headers(self, others):
        """Returns the headers that carry the context; `others` is the `tracestate` of other systems."""
        if others is None and self._scope is not None:
            others = self._scope.others
        return (("traceparent", self.context.traceparent()), ("tracestate", self.context.tracestate(others)))

    def value(self, tag, value):
        """Adds an interval in ns or the value of a variable, by its tag."""
        self._values.append((tag, value))

    def add_sent(self, count):
        """Counts bytes of requests."""
        self._sent = (self._sent or 0) + count

    def add_received(self, count):
        """Counts bytes of responses."""
        self._received = (self._received or 0) + count

    def end(self, status, sent=None, received=None):
        """Records the call, with bytes that were not counted yet. Further calls of this do nothing."""
        if self._done:
            return
        self._done = True
        if sent is not None:
            self.add_sent(sent)
        if received is not None:
            self.add_received(received)
        now = time.monotonic_ns()
        recorder, context = self._recorder, self.context
        recorder.in_flight["client"] -= 1
        recorder.count("client", self._received or 0, self._sent or 0)
        if self._scope is not None:
            self._scope.child_ends(now)
        if not recorder.enabled:
            return
        # Bytes that are not known have no value.
        for name, count in (("request_bytes", self._sent), ("response_bytes", self._received)):
            if count is not None:
                self._values.append((recorder.tag(name), count))
        lamport = recorder.tick()
        recorder.write(
            record.encode(
                context.request, context.span, self._parent, self._start, now - self._start, self._node, lamport,
                context.order, record.ORIGIN, status, self._peer, self._values,
            )
        )  # fmt: skip

    def __del__(self):
        self.end(record.CANCELLED)


class Target:
    """The side of the callee, and the scope of its handler. It ends when handler and response have ended."""

    def __init__(self, recorder, name, context, others):
        self._start = time.monotonic_ns()
        if context is None:
            request = recorder.new_id() << 64 | recorder.new_id()
            context = Context(request, recorder.new_id())
        self._recorder = recorder
        self.others = others
        if context.flags & NEWER:
            recorder.count_newer()
            context = context._replace(flags=context.flags & ~NEWER)
        self._node, path = recorder.node(context.callpath, name, is_foreign=True)
        lamport = recorder.tick(context.lamport)
        self._order = context.order
        # Calls of the handler belong below this.
        self.context = context._replace(callpath=path, lamport=lamport, order=0)
        self._lock = threading.Lock()
        self._calls = 0
        self._active, self._since, self._covered = 0, 0, 0
        self._begun = self._ended = 0
        self._peer = 0
        self._values = []
        self._bytes = [0, 0]
        self._done = False
        recorder.in_flight["server"] += 1

    def next_order(self):
        """Counts one more call of the handler."""
        with self._lock:
            self._calls += 1
            return self._calls

    def child_begins(self, now):
        """A call of the handler begins."""
        with self._lock:
            if self._active == 0:
                self._since = now
            self._active += 1

    def child_ends(self, now):
        """A call of the handler ends."""
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self._covered += now - self._since

    def begin(self):
        """The handler begins (t5), or the work for it, which is the deserialization of the request."""
        if not self._begun:
            self._begun = time.monotonic_ns()

    def handled(self):
        """The handler has ended (t8)."""
        self._ended = time.monotonic_ns()

    @property
    def is_handled(self):
        """True once the handler has ended."""
        return bool(self._ended)

    def peer(self, name):
        """Names the caller."""
        self._peer = self._recorder.peer(name)

    def value(self, tag, value):
        """Adds an interval in ns or the value of a variable, by its tag."""
        self._values.append((tag, value))

    def add_bytes(self, received, sent):
        """Counts bytes of messages."""
        self._bytes[0] += received
        self._bytes[1] += sent

    def end(self, status):
        """Records the call: its response was sent (t13), or cannot be. Further calls of this do nothing."""
        with self._lock:
            if self._done:
                return
            self._done = True
        now = time.monotonic_ns()
        recorder = self._recorder
        recorder.in_flight["server"] -= 1
        received, sent = self._bytes
        recorder.count("server", received, sent)
        if not recorder.enabled:
            return
        self._intervals(now)
        self._values += [(recorder.tag("request_bytes"), received), (recorder.tag("response_bytes"), sent)]
        context = self.context
        recorder.write(
            record.encode(
                context.request, context.span, 0, self._start, now - self._start, self._node,
                recorder.tick(context.lamport), self._order, record.TARGET, status, self._peer, self._values,
            )
        )  # fmt: skip

    def _intervals(self, now):
        if not self._begun:
            return
        ended = self._ended or now
        with self._lock:
            covered = self._covered + (ended - self._since if self._active else 0)
        inside = sum(ns for tag, ns in self._values if tag == record.INTERVALS["input_deserialization"])
        self.value(_HANDLER, self._begun - self._start)
        self.value(_EXECUTION, ended - self._begun - covered - inside)
        if covered:
            self.value(_CHILDREN, covered)
        if self._ended:
            self.value(_CALLBACK, now - self._ended)

    def __del__(self):
        # The call ended before its handler ran.
        self.end(record.CANCELLED)
