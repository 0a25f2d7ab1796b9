"""Callpaths: chains of RPC names as one 64-bit hash. The same arithmetic as in the Rust crate, so processes agree."""

ROOT = 0
_MASK = 0xFFFFFFFFFFFFFFFF
_MIX = 0xD6E8FEB86659FD93


def name_hash(name):
    """Returns FNV-1a with 64 bits of the UTF-8 bytes of `name`."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x0100000001B3 & _MASK
    return value


def child(parent, name):
    """Returns the hash of the path that continues `parent` by the name hash `name`; never `ROOT`."""
    value = parent * 0x9E3779B97F4A7C15 & _MASK ^ name
    for _ in range(2):
        value = (value ^ value >> 32) * _MIX & _MASK
    value ^= value >> 32
    return value or 1
