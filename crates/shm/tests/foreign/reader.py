"""Reads a segment as the layout document describes it, with only Python's standard library.

    reader.py SEGMENT    prints one JSON object a line: the segment, then each vertex

The value of a number is printed as its 64 bits, so that no digit is lost.
"""

import fcntl
import json
import mmap
import struct
import sys

TYPES = {1: "f64", 2: "i64", 3: "u64", 4: "structured"}
KINDS = {1: "counter", 2: "gauge", 3: "state"}
ENTRY_BYTES, GROUP_BYTES, HEAD_BYTES, SLOT_BYTES = 320, 128, 64, 32
ATTEMPTS = 1000


class Segment:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.map = mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ)
        if self.map[:8] != b"SKOPOSEG" or self.u32(8) != 1 or self.u64(16) > len(self.map):
            raise SystemExit(f"{path}: not a segment of layout 1")

    def u32(self, at):
        return struct.unpack_from("<I", self.map, at)[0]

    def u64(self, at):
        return struct.unpack_from("<Q", self.map, at)[0]

    def i64(self, at):
        return struct.unpack_from("<q", self.map, at)[0]

    def text(self, at, length):
        return self.map[at : at + length].decode("ascii")

    def is_alive(self):
        """Returns whether the publisher holds its open-file-description lock and has not closed."""
        get_lock = getattr(fcntl, "F_OFD_GETLK", 36)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        kind = struct.unpack("hhqqi4x", fcntl.fcntl(self.file, get_lock, asked))[0]
        return self.u32(256) != 2 and kind != fcntl.F_UNLCK

    def header(self):
        return {
            "segment": self.text(112, self.u32(104)),
            "node": self.text(176, self.u32(108)),
            "pid": self.u32(80),
            "created_at": self.i64(96),
            "alive": self.is_alive(),
            "directory_version": self.u64(264),
            "clock_steps": self.u64(304),
        }

    def entry(self, index):
        """Returns a registered entry as a dictionary, else None."""
        at = self.u64(40) + index * ENTRY_BYTES
        for _ in range(ATTEMPTS):
            version, state = self.u32(at), self.u32(at + 4)
            value_type, kind, unit_len, topic_len = self.map[at + 24 : at + 28]
            found = {
                "owner": (index + 1) << 32 | version,
                "offset": self.u64(at + 8),
                "slots": self.u32(at + 16),
                "byte_ring_bytes": self.u32(at + 20),
                "type": TYPES.get(value_type),
                "kind": KINDS.get(kind),
                "group": self.u32(at + 28),
                "unit": self.map[at + 32 : at + 32 + unit_len],
                "topic": self.map[at + 48 : at + 48 + topic_len],
            }
            if version % 2 == 0 and self.u32(at) == version:
                return found if state == 1 else None
        return None

    def group_name(self, group):
        at = self.u64(24) + group * GROUP_BYTES
        return self.text(at + 20, self.u32(at + 16)) if group else ""

    def latest(self, vertex):
        """Returns the newest complete sample; None if there is no sample or the vertex is gone."""
        offset = vertex["offset"]
        for _ in range(ATTEMPTS):
            checked_at, head = self.i64(offset + 16), self.u64(offset + 8)
            if self.u64(offset) != vertex["owner"] or head == 0:
                return None
            slot = offset + HEAD_BYTES + (head - 1) % vertex["slots"] * SLOT_BYTES
            mark, time, bits, meta = struct.unpack_from("<QqQQ", self.map, slot)
            whole = mark == 2 * head == self.u64(slot) and self.u64(offset) == vertex["owner"]
            if not whole:
                continue
            sample = {"count": head, "time": time, "checked_at": max(checked_at, time)}
            sample["origin"] = ("measured", "predicted", "unknown")[meta & 0xFF]
            if vertex["type"] == "structured":
                text = self.structured(vertex, bits, meta >> 32)
                if text is None:
                    continue
                return sample | {"text": json.loads(text)}
            sample["bits"] = bits
            if meta & 0xFF == 1:
                sample["bound"] = struct.unpack("<f", struct.pack("<I", meta >> 32))[0]
            return sample
        return None

    def structured(self, vertex, position, length):
        ring = vertex["byte_ring_bytes"]
        start = vertex["offset"] + HEAD_BYTES + vertex["slots"] * SLOT_BYTES
        at = position % ring
        turned = self.map[start + at : start + ring] + self.map[start : start + at]
        kept = self.u64(vertex["offset"] + 32) - position <= ring
        return turned[:length] if kept else None


def main():
    segment = Segment(sys.argv[1])
    print(json.dumps(segment.header()))
    for index in range(segment.u32(272)):
        vertex = segment.entry(index)
        if vertex is None:
            continue
        print(
            json.dumps(
                {
                    "topic": vertex["topic"].decode("ascii"),
                    "type": vertex["type"],
                    "kind": vertex["kind"],
                    "unit": vertex["unit"].decode("ascii"),
                    "group": segment.group_name(vertex["group"]),
                    "slots": vertex["slots"],
                    "latest": segment.latest(vertex),
                }
            )
        )


if __name__ == "__main__":
    main()
