"""Reads numbers from a segment of Skopos in shared memory, such as ranks, without a system call.

>>> from skopos_shm import Segment
>>> agent = Segment("/dev/shm/skopos-1000/agent.seg")
>>> weight = agent.find("n01/rank/reads@n02/weight")
>>> value, age = weight.read()

Find a topic once and keep its vertex. ``read`` raises ``Gone`` after the topic was removed; ``silence`` of the segment is
the time since its publisher's last sign of life. The layout is documented in crates/shm/src/layout.rs.

``Reporter`` reports the outcomes of ranked choices to the agent.
"""

import mmap
import os
import struct
import time

from .report import Counts, Reporter

__all__ = ["Segment", "Vertex", "NoValue", "Gone", "Reporter", "Counts"]

_ENTRY = struct.Struct("<IIQIIBBBBI")
_ENTRY_BYTES, _HEAD_BYTES, _SLOT_BYTES, _ATTEMPTS = 320, 64, 32, 100
_HEAD = struct.Struct("<QQ")
_SLOT = struct.Struct("<QqQQ")
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_VALUES = {1: struct.Struct("<d"), 2: struct.Struct("<q"), 3: struct.Struct("<Q")}


class NoValue(LookupError):
    """The topic does not exist, is not a number, or has no value now."""


class Gone(LookupError):
    """The topic was removed."""


class Segment:
    """A mapped segment."""

    def __init__(self, path):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self._map = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(file)
        size = len(self._map)
        if size < 4096 or self._map[:8] != b"SKOPOSEG":
            raise ValueError(f"{path} is not a segment")
        version, entry_bytes = self._u32(8), self._u32(52)
        if version != 1 or entry_bytes != _ENTRY_BYTES:
            raise ValueError(f"{path} has layout {version}; this reader knows layout 1")
        self._directory, self._capacity = _U64.unpack_from(self._map, 40)[0], self._u32(48)
        if self._directory + self._capacity * _ENTRY_BYTES > size:
            raise ValueError(f"{path} is damaged: its directory is longer than the file")

    def _u32(self, at):
        return struct.unpack_from("<I", self._map, at)[0]

    def silence(self):
        """Returns the seconds since the last sign of life of the publisher."""
        beat = _U64.unpack_from(self._map, 296)[0]
        return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - beat) / 1e9

    def find(self, topic):
        """Returns the vertex of a whole topic. Looks through the directory.

        Raises NoValue if no vertex has the topic, or if it is not a number.
        """
        wanted = topic.encode("ascii")
        for index in range(min(self._u32(272), self._capacity)):
            at = self._directory + index * _ENTRY_BYTES
            for _ in range(_ATTEMPTS):
                fields = _ENTRY.unpack_from(self._map, at)
                version, state, offset, slots, _, value_type, _, _, length, _ = fields
                name = self._map[at + 48 : at + 48 + length]
                if version % 2 == 0 and self._u32(at) == version:
                    break
            else:
                continue
            if state != 1 or name != wanted:
                continue
            end = offset + _HEAD_BYTES + slots * _SLOT_BYTES
            if value_type not in _VALUES or slots == 0 or slots & (slots - 1) or end > len(self._map):
                break
            owner = (index + 1) << 32 | version
            return Vertex(self._map, topic, offset, owner, slots, _VALUES[value_type])
        raise NoValue(f"no number has the topic {topic}")


class Vertex:
    """The place of one topic."""

    __slots__ = ("_map", "topic", "_offset", "_owner", "_mask", "_value")

    def __init__(self, mapped, topic, offset, owner, slots, value):
        self._map, self.topic, self._offset, self._owner = mapped, topic, offset, owner
        self._mask, self._value = slots - 1, value

    def read(self):
        """Returns the latest value, and the seconds since its source was last polled.

        Raises NoValue if there is no value, and Gone after the topic was removed.
        """
        mapped, offset = self._map, self._offset
        for _ in range(_ATTEMPTS):
            checked = _I64.unpack_from(mapped, offset + 48)[0]
            owner, stored = _HEAD.unpack_from(mapped, offset)
            if owner != self._owner:
                raise Gone(f"{self.topic} was removed")
            if stored == 0:
                raise NoValue(f"{self.topic} has no value yet")
            slot = offset + _HEAD_BYTES + ((stored - 1) & self._mask) * _SLOT_BYTES
            mark, _, bits, meta = _SLOT.unpack_from(mapped, slot)
            after = _U64.unpack_from(mapped, slot)[0]
            if mark != 2 * stored or after != mark:
                continue
            if _U64.unpack_from(mapped, offset)[0] != self._owner:
                continue
            if meta & 255 == 2:
                raise NoValue(f"the value of {self.topic} is unknown")
            value = self._value.unpack(_U64.pack(bits))[0]
            return value, (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - checked) / 1e9
        raise NoValue(f"{self.topic} is written again and again")
