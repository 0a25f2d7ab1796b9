"""The record: 64 bytes for each side of a call.

Little-endian: request (lower, upper half), span, parent, start, duration (u64 each), node (u32), Lamport clock (u32),
order (u16), kind (u8), status (u8), number of records of details that follow (u16), peer (u16). A record of details
has seven tagged values: a tag in the upper 16 bits, a value in the lower 48.
"""

import struct

RECORD_BYTES = 64

ORIGIN, TARGET, LOCAL, DETAILS, SAMPLE = 1, 2, 3, 4, 5
OK, ERROR, CANCELLED, TIMED_OUT = 0, 1, 2, 3

# Intervals of a call in ns, by their tags. Variables of the process have the tags from FIRST_PVAR_TAG on.
INTERVALS = {
    "origin_execution": 1,
    "input_serialization": 2,
    "target_internal_rdma_transfer": 3,
    "target_handler": 4,
    "input_deserialization": 5,
    "target_execution_exclusive": 6,
    "output_serialization": 7,
    "target_completion_callback": 8,
    "origin_completion_callback": 9,
    "children": 10,
}
FIRST_PVAR_TAG = 64
# 48 bits: a greater value is stored as this one.
MAX_TAGGED = (1 << 48) - 1
DETAILS_VALUES = 7
SAMPLE_VALUES = 6

_SPAN = struct.Struct("<6QIIHBBHH")
_VALUES = struct.Struct("<8Q")


def tagged(tag, value):
    """Returns a tagged value; a negative value is stored as 0."""
    return tag << 48 | min(max(int(value), 0), MAX_TAGGED)


def encode(request, span, parent, start, duration, node, lamport, order, kind, status, peer, values):
    """Encodes one side of a call: its record, and as many records of details as `values` (tag and value) need."""
    chunks = [values[at : at + DETAILS_VALUES] for at in range(0, len(values), DETAILS_VALUES)]
    head = _SPAN.pack(
        request & 0xFFFFFFFFFFFFFFFF,
        request >> 64,
        span,
        parent,
        start,
        max(duration, 0),
        node,
        lamport & 0xFFFFFFFF,
        min(order, 0xFFFF),
        kind,
        status,
        len(chunks),
        peer,
    )
    return b"".join([head, *(_values(chunk, DETAILS) for chunk in chunks)])


def encode_sample(at, values):
    """Encodes samples of the process: at most six values (tag and value) in each record."""
    chunks = [values[i : i + SAMPLE_VALUES] for i in range(0, len(values), SAMPLE_VALUES)]
    return b"".join(_sample(at, chunk) for chunk in chunks)


def _values(values, kind):
    words = [tagged(tag, value) for tag, value in values]
    words += [0] * (DETAILS_VALUES - len(words))
    return _VALUES.pack(*words, kind << 16)


def _sample(at, values):
    words = [tagged(tag, value) for tag, value in values]
    words += [0] * (SAMPLE_VALUES - len(words))
    return _VALUES.pack(at, *words, SAMPLE << 16)
