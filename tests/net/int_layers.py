"""Layers of scapy for INT 2.1 and Telemetry Report 2.0, written from the tables of the specifications.

usage: int_layers.py write    prints packets and their fields, a JSON object a line
       int_layers.py read     reads packets from stdin, hexadecimal, and prints their fields, a JSON object a line

The tests of the crate `net` exchange packets with this program: neither knows the code of the other.
"""

import json
import sys

from scapy.fields import (
    BitField, ByteField, ConditionalField, IntField, LongField, PacketListField, ShortField,
    XShortField,
)
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Packet, bind_layers

INT_PORT = 5000


def bit(number):
    """True for packets whose instructions have this bit, counted from the most significant."""
    return lambda packet: packet.instructions() & (0x8000 >> number) != 0


class Metadata(Packet):
    """The values of a hop, in the order of the bits."""

    __slots__ = ["asked"]
    name = "INT metadata"
    fields_desc = [
        ConditionalField(IntField("node", 0), bit(0)),
        ConditionalField(ShortField("ingress_port", 0), bit(1)),
        ConditionalField(ShortField("egress_port", 0), bit(1)),
        ConditionalField(IntField("latency_ns", 0), bit(2)),
        ConditionalField(ByteField("queue", 0), bit(3)),
        ConditionalField(BitField("queue_bytes", 0, 24), bit(3)),
        ConditionalField(LongField("ingress_ns", 0), bit(4)),
        ConditionalField(LongField("egress_ns", 0), bit(5)),
        ConditionalField(IntField("utilisation_ppm", 0), bit(7)),
    ]

    def __init__(self, *arguments, asked=None, **fields):
        self.asked = asked
        super().__init__(*arguments, **fields)

    def clone_with(self, *arguments, **fields):
        clone = super().clone_with(*arguments, **fields)
        clone.asked = self.asked
        return clone

    def copy(self):
        copy = super().copy()
        copy.asked = self.asked
        return copy

    def instructions(self):
        return self.asked if self.asked is not None else 0

    def extract_padding(self, rest):
        return b"", rest


def next_hop(packet, hops, current, _rest):
    """Returns the class of the next hop, or None at the end of the stack."""
    below = packet.words * 4 - 12 - 4 * (packet.domain_instructions >> 15)
    count = len(hops) + (current is not None)
    if count * packet.hop_words * 4 >= below:
        return None
    return lambda data, **more: Metadata(data, asked=packet.instruction_bits, **more)


class Embedded(Packet):
    """Shim, header and stack of INT-MD."""

    name = "INT"
    fields_desc = [
        BitField("type", 1, 4),
        BitField("npt", 2, 2),
        BitField("reserved_shim", 0, 2),
        ByteField("words", 3),
        XShortField("next", 0),
        BitField("version", 2, 4),
        BitField("discard", 0, 1),
        BitField("hops_exceeded", 0, 1),
        BitField("mtu_exceeded", 0, 1),
        BitField("reserved", 0, 12),
        BitField("hop_words", 0, 5),
        ByteField("remaining", 0),
        XShortField("instruction_bits", 0),
        XShortField("domain", 0),
        XShortField("domain_instructions", 0),
        XShortField("domain_flags", 0),
        PacketListField("hops", [], next_cls_cb=next_hop),
        ConditionalField(IntField("sequence", 0), lambda p: p.domain_instructions & 0x8000 != 0),
    ]

    def guess_payload_class(self, payload):
        return {(2, 6): TCP, (2, 17): UDP}.get((self.npt, self.next), Packet.guess_payload_class(self, payload))


class Report(Packet):
    """An individual report of type 1."""

    name = "telemetry report"
    fields_desc = [
        BitField("type", 1, 4),
        BitField("inner_type", 4, 4),
        ByteField("words", 0),
        ByteField("metadata_words", 0),
        BitField("dropped", 0, 1),
        BitField("congested", 0, 1),
        BitField("tracked", 0, 1),
        BitField("intermediate", 0, 1),
        BitField("reserved", 0, 4),
        XShortField("bits", 0),
        XShortField("domain", 0),
        XShortField("domain_bits", 0),
        XShortField("domain_status", 0),
    ]


class Group(Packet):
    """The header of a group of reports."""

    name = "telemetry report group"
    fields_desc = [
        BitField("version", 2, 4),
        BitField("hardware", 0, 6),
        BitField("sequence", 0, 22),
        IntField("node", 0),
    ]


bind_layers(UDP, Embedded, dport=INT_PORT)
bind_layers(Group, Report)

FIELDS = ["node", "ingress_port", "egress_port", "latency_ns", "queue", "queue_bytes", "ingress_ns", "egress_ns",
          "utilisation_ppm"]


def values(hop):
    return {name: hop.getfieldval(name) for name in FIELDS if hop.getfieldval(name) is not None
            and hop.get_field(name) is not None and shown(hop, name)}


def shown(hop, name):
    """True if the bit of the field is among the instructions of the hop."""
    bits = {"node": 0, "ingress_port": 1, "egress_port": 1, "latency_ns": 2, "queue": 3, "queue_bytes": 3,
            "ingress_ns": 4, "egress_ns": 5, "utilisation_ppm": 7}
    return hop.instructions() & (0x8000 >> bits[name]) != 0


def described(packet):
    """The fields of a packet with INT, source first."""
    embedded = packet[Embedded]
    inner = embedded.payload
    return {
        "hex": bytes(packet).hex(),
        "hop_words": embedded.hop_words,
        "remaining": embedded.remaining,
        "sequence": embedded.sequence if embedded.domain_instructions & 0x8000 else None,
        "flags": [int(flag) for flag in (embedded.discard, embedded.hops_exceeded, embedded.mtu_exceeded)],
        "hops": [values(hop) for hop in reversed(embedded.hops)],
        "protocol": embedded.next & 0xff,
        "ports": [inner.sport, inner.dport],
    }


def hop(instructions, number):
    fields = {"node": 100 + number, "ingress_port": number, "egress_port": number + 1, "latency_ns": 1000 * number,
              "queue": number, "queue_bytes": 1500 * number, "ingress_ns": 10 ** 18 + number,
              "egress_ns": 10 ** 18 + 1000 * number, "utilisation_ppm": 250000}
    made = Metadata(asked=instructions)
    for name, value in fields.items():
        if shown(made, name):
            made.setfieldval(name, value)
    return made


def write():
    sizes = [1, 1, 1, 1, 2, 2, 2, 1]
    for network in (IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="fd00::1", dst="fd00::2")):
        for instructions in (0x8000, 0x9000, 0xfd00, 0x6d00):
            for count in range(4):
                words = sum(size for at, size in enumerate(sizes) if instructions & (0x8000 >> at))
                hops = [hop(instructions, number) for number in range(count, 0, -1)]
                inner = TCP(sport=1234, dport=80) if count % 2 else UDP(sport=1234, dport=53)
                embedded = Embedded(
                    words=3 + words * count + 1, next=6 if count % 2 else 17, hop_words=words,
                    remaining=8 - count, instruction_bits=instructions, domain=0x5c09, domain_instructions=0x8000,
                    hops=hops, sequence=1000 + count, mtu_exceeded=count == 2, hops_exceeded=count == 3)
                packet = network / UDP(sport=50000, dport=INT_PORT, chksum=0) / embedded / inner / b"payload"
                print(json.dumps(described(packet)))


def read():
    for line in sys.stdin:
        data = bytes.fromhex(line.strip())
        group = Group(data)
        report = group[Report]
        inner = bytes(report.payload)
        skipped = report.metadata_words * 4
        metadata = Metadata(inner[:skipped], asked=report.bits)
        packet = (IPv6 if report.inner_type == 5 else IP)(inner[skipped:])
        answer = {"node": group.node, "sequence": group.sequence, "hardware": group.hardware,
                  "tracked": report.tracked, "words": report.words, "bytes": len(data), "hop": values(metadata)}
        if Embedded in packet:
            answer["packet"] = described(packet)
        print(json.dumps(answer))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]]()
