"""The part of a call that travels with the request, as W3C headers and as 32 bytes."""

import re
import struct
from typing import NamedTuple

# Limits of the recommendation for `tracestate`, and the size at which proxies cut headers.
MAX_MEMBERS = 32
MAX_TRACESTATE_BYTES = 8192

# Flag of a context that was read from a newer version. It does not travel: a target counts it.
NEWER = 0x80
# The flags that travel.
_FLAGS = 0x0F

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z")
_MEMBER = re.compile(r"([0-9a-f]{4})-([0-9a-f]{8})-([0-9a-f]{16})(-.*)?\Z")
_BINARY = struct.Struct("<BBHIQQQ")


class Context(NamedTuple):
    """A request's id (128 bits), the call with which it travels, and the callpath above that call."""

    request: int
    span: int
    callpath: int = 0
    lamport: int = 0
    order: int = 0
    flags: int = 1

    def traceparent(self):
        """Returns the value of the header `traceparent`."""
        return f"00-{self.request:032x}-{self.span:016x}-{self.flags & _FLAGS:02x}"

    def tracestate(self, others=None):
        """Returns the value of the header `tracestate`: our member, and then the members of `others`."""
        ours = f"skopos={self.order & 0xFFFF:04x}-{self.lamport & 0xFFFFFFFF:08x}-{self.callpath:016x}"
        kept = [f"{key}={value}" for key, value in _members(others) if key != "skopos"]
        return ",".join([ours, *kept[: MAX_MEMBERS - 1]])

    def to_bytes(self):
        """Returns the binary form, which leaves the upper half of the request's id behind."""
        low = self.request & 0xFFFFFFFFFFFFFFFF
        head = 1 << 4 | self.flags & _FLAGS
        return _BINARY.pack(head, 0, self.order, self.lamport, low, self.span, self.callpath)


def from_w3c(traceparent, tracestate=None):
    """Reads the headers; None if `traceparent` is not valid. A `tracestate` that cannot be read is passed over."""
    match = _PARENT.match(traceparent.strip()) if traceparent else None
    if match is None:
        return None
    version, request, span, flags, longer = match.groups()
    request, span = int(request, 16), int(span, 16)
    if version == "ff" or version == "00" and longer or not request or not span:
        return None
    if not request & 0xFFFFFFFFFFFFFFFF:
        # Everything joins by the lower half, which is never 0.
        request |= request >> 64
    context = Context(request, span, flags=int(flags, 16) & 1 | (NEWER if version != "00" else 0))
    for key, value in _members(tracestate):
        ours = _MEMBER.match(value) if key == "skopos" else None
        if ours:
            order, lamport, callpath = (int(part, 16) for part in ours.groups()[:3])
            flags = context.flags | (NEWER if ours.group(4) else 0)
            return context._replace(order=order, lamport=lamport, callpath=callpath, flags=flags)
    return context


def from_metadata(metadata):
    """Reads the context from metadata of gRPC; returns it (or None) and the `tracestate` of other systems."""
    parent = state = None
    for key, value in metadata or ():
        if key == "traceparent":
            parent = value
        elif key == "tracestate":
            state = value
    return from_w3c(parent, state), state


def _members(state):
    if not isinstance(state, str) or len(state) > MAX_TRACESTATE_BYTES:
        return []
    pairs = (member.strip().partition("=") for member in state.split(",")[:MAX_MEMBERS])
    return [(key, value) for key, equals, value in pairs if equals]
