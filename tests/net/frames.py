"""Sends and receives Ethernet frames as they are, for tests of the data plane.

usage: frames.py send INTERFACE             sends the frames of stdin, a hexadecimal line each
       frames.py receive INTERFACE COUNT    prints `ready`, then COUNT frames with IP, a hexadecimal line each
"""

import socket
import sys

IPV4, IPV6 = 0x0800, 0x86DD
# Ends a test that hangs; longer than any frame needs.
PATIENCE_SECONDS = 20


def opened(interface):
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
    packets.bind((interface, 0))
    return packets


def send(interface):
    packets = opened(interface)
    for line in sys.stdin:
        packets.send(bytes.fromhex(line.strip()))


def is_of_test(frame):
    kind = int.from_bytes(frame[12:14], "big")
    if kind == IPV6:
        # ICMPv6 and hop-by-hop options are the kernel's own.
        return frame[20] in (6, 17)
    return kind == IPV4


def receive(interface, count):
    packets = opened(interface)
    packets.settimeout(PATIENCE_SECONDS)
    print("ready", flush=True)
    while count > 0:
        frame, (_, _, kind, _, _) = packets.recvfrom(65536)
        if kind != socket.PACKET_OUTGOING and is_of_test(frame):
            print(frame.hex(), flush=True)
            count -= 1


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2])
    else:
        receive(sys.argv[2], int(sys.argv[3]))
