"""Reads trace files for the tests."""

import glob
import json
import os
import struct
import zlib


def read_folder(folder):
    """Returns the sides of all calls: dictionaries with `name`, `kind`, the fields of the record and `values`."""
    paths = sorted(glob.glob(os.path.join(folder, "*.sktrace")))
    return [side for path in paths for side in read(path)[1]]


def read(path):
    """Returns the process and the sides of one file, and fails at a tear."""
    process, nodes, pvars, sides, samples, lost, ended, counters = None, {}, {}, [], [], 0, False, {}
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at < len(data):
        magic, kind, length, checksum = struct.unpack_from("<4sIII", data, at)
        payload = data[at + 16 : at + 16 + length]
        assert magic == b"SKTF" and len(payload) == length
        assert checksum == zlib.crc32(data[at + 4 : at + 12] + payload)
        at += 16 + length
        if kind == 1:
            process = json.loads(payload)
        elif kind == 3:
            number, parent, own, _ = struct.unpack_from("<IQQH", payload)
            nodes[number] = (payload[22:].decode(), parent, own)
        elif kind == 5:
            number, _, _, size = struct.unpack_from("<HBBH", payload)
            pvars[number] = payload[6 : 6 + size].decode()
        elif kind == 6:
            lost += struct.unpack_from("<IQ", payload)[1]
            for start in range(12, length, 64):
                _record(payload[start : start + 64], nodes, pvars, sides, samples)
        elif kind == 7:
            ended = True
        elif kind == 8:
            counters = json.loads(payload)
    return {**process, "lost": lost, "ended": ended, "samples": samples, "counters": counters}, sides


def _record(data, nodes, pvars, sides, samples):
    kind = data[58]
    words = struct.unpack("<8Q", data)
    if kind in (4, 5):
        values = {_name(word >> 48, pvars): word & (1 << 48) - 1 for word in words[kind - 4 : 7] if word}
        (sides[-1]["values"] if kind == 4 else samples.append(values) or {}).update(values)
        return
    names = "low high span parent start duration node lamport order kind status details peer".split()
    side = dict(zip(names, struct.unpack("<6QIIHBBHH", data)))
    side["name"], _, side["hash"] = nodes[side["node"]]
    sides.append({**side, "values": {}})


def _name(tag, pvars):
    from skopos_rpc.record import INTERVALS

    names = {number: name for name, number in INTERVALS.items()}
    return names.get(tag) or pvars[tag - 64]
