"""The trace file: frames of magic, kind, length, CRC-32 and payload. One process writes it, readers stop at a tear."""

import json
import os
import struct
import zlib

MAGIC = 0x46544B53  # "SKTF"
MAX_FRAME_BYTES = 16 << 20

PROCESS, CLOCK, NODE, PEER, PVAR, RECORDS, END, COUNTERS = 1, 2, 3, 4, 5, 6, 7, 8
CLOSED = 1

_HEAD = struct.Struct("<4I")


def frame(kind, payload):
    """Encodes one frame. The checksum covers kind, length and payload."""
    if len(payload) > MAX_FRAME_BYTES:
        raise ValueError(f"a frame has at most {MAX_FRAME_BYTES} bytes, not {len(payload)}")
    checksum = zlib.crc32(payload, zlib.crc32(struct.pack("<2I", kind, len(payload))))
    return _HEAD.pack(MAGIC, kind, len(payload), checksum) + payload


def process(description):
    """Encodes the description of the process, a dictionary."""
    return frame(PROCESS, json.dumps(description).encode())


def clock(ticks, unix_ns, ns_per_tick, error_ns):
    """Encodes a calibration, which holds for all records that follow."""
    return frame(CLOCK, struct.pack("<QqdQ", ticks, unix_ns, ns_per_tick, error_ns))


def node(number, parent_hash, own_hash, name):
    """Encodes a node of the call tree."""
    return frame(NODE, struct.pack("<IQQ", number, parent_hash, own_hash) + _text(name))


def peer(number, name):
    """Encodes the name of another entity."""
    return frame(PEER, struct.pack("<H", number) + _text(name))


def pvar(number, variable_class, binding, name, unit):
    """Encodes the description of a variable."""
    head = struct.pack("<HBB", number, variable_class, binding)
    return frame(PVAR, head + _text(name) + _text(unit))


def records(thread, lost_before, data):
    """Encodes records of one thread, and the number of records that were lost before them."""
    return frame(RECORDS, struct.pack("<IQ", thread, lost_before) + data)


def end(reason=CLOSED):
    """Encodes the last frame."""
    return frame(END, bytes([reason]))


def create(folder, name, pid, start_ticks):
    """Creates the file of a process, readable by its user only, and returns its descriptor and path.

    Raises `OSError`: the folder does not exist or cannot be written, or the file is there already.
    """
    path = os.path.join(folder, f"{name}-{pid}-{start_ticks}.sktrace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600), path


def write_all(descriptor, data):
    """Writes all bytes; the system may take them in parts."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _text(text):
    data = text.encode()[:0xFFFF]
    return struct.pack("<H", len(data)) + data
