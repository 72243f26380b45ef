"""Asks again and again who has an address, and writes down every frame by which somebody says so: time and sender."""

import ipaddress
import select
import socket
import struct
import sys
import time

link, address, pause = sys.argv[1], ipaddress.ip_address(sys.argv[2]), float(sys.argv[3])
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind((link, 0))
mac = wire.getsockname()[4]
own = socket.inet_aton(sys.argv[4])


def question():
    if address.version == 4:
        return (b"\xff" * 6 + mac + b"\x08\x06\x00\x01\x08\x00\x06\x04\x00\x01" + mac + own + bytes(6) + address.packed)
    target = address.packed
    group = bytes.fromhex("ff0200000000000000000001ff") + target[-3:]
    # Our own address is made from the hardware address, as the kernel makes it.
    source = bytes.fromhex("fe80000000000000") + bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    body = b"\x87\x00\x00\x00\x00\x00\x00\x00" + target + b"\x01\x01" + mac
    total = sum(struct.unpack("!%dH" % ((40 + len(body)) // 2), source + group + struct.pack("!II", len(body), 58) + body))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    body = body[:2] + struct.pack("!H", 0xFFFF ^ total) + body[4:]
    header = b"\x60\x00\x00\x00" + struct.pack("!HBB", len(body), 58, 255) + source + group
    return b"\x33\x33\xff" + target[-3:] + mac + b"\x86\xdd" + header + body


def claims(frame):
    if address.version == 4:
        return frame[12:14] == b"\x08\x06" and frame[28:32] == address.packed
    return frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] == 136 and frame[62:78] == address.packed


asked = 0.0
print("asking", flush=True)
while True:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    if now - asked >= pause:
        wire.send(question())
        asked = now
    if select.select([wire], [], [], max(0.0, asked + pause - now))[0]:
        frame, source = wire.recvfrom(2048)
        # Also what we send ourselves is heard.
        if source[2] != socket.PACKET_OUTGOING and len(frame) >= 42 and claims(frame):
            print("%.6f %s" % (time.clock_gettime(time.CLOCK_BOOTTIME), frame[6:12].hex(":")), flush=True)
