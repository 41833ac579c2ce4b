"""A file system in user space (FUSE) with one file, as a service of prices has it.

    pricesfs.py MOUNTPOINT [--lookup SECONDS] [--read SECONDS] [--ask HOST:PORT]

Four threads answer what the kernel asks, each one call at a time. A lookup or a read
takes a pause, or asks another machine first. Structures are those of
include/uapi/linux/fuse.h.
"""

import argparse
import ctypes
import os
import socket
import struct
import sys
import threading
import time

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, BATCH_FORGET = 1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29, 42
INTERRUPT = 36
ENOENT, ENOSYS = 2, 38
NAME, PRICES = b"today", b"LHR 120\n"


def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=6Q10I", node, len(PRICES), 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def ask(host, port):
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"price?\r\n")
        s.recv(256)


def answer(op, node, body, options):
    """The error and the body of an answer; None where there is none."""
    if op == INIT:
        return 0, struct.pack("=4I2H2I", 7, 31, 65536, 0, 16, 12, 65536, 1) + bytes(32)
    if op in (FORGET, BATCH_FORGET, INTERRUPT):
        return None
    if op == GETATTR:
        return 0, struct.pack("=QII", 0, 0, 0) + attributes(node)
    if op == LOOKUP:
        if options.lookup:
            time.sleep(options.lookup)
        if body.rstrip(b"\0") != NAME:
            return ENOENT, b""
        return 0, struct.pack("=4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    if op in (OPEN, OPENDIR):
        return 0, struct.pack("=Q2I", 0, 0, 0)
    if op == READ:
        if options.read:
            time.sleep(options.read)
        if options.ask:
            ask(*options.ask.split(":"))
        return 0, PRICES[struct.unpack_from("=Q", body, 8)[0]:]
    if op in (RELEASE, RELEASEDIR, FLUSH):
        return 0, b""
    if op == STATFS:
        return 0, bytes(80)
    return ENOSYS, b""


def serve(dev, options):
    while True:
        try:
            question = os.read(dev, 1 << 20)
        except OSError:
            return  # unmounted
        _, op, unique, node = struct.unpack_from("=2I2Q", question)
        result = answer(op, node, question[40:], options)
        if result is None:
            continue
        try:
            os.write(dev, struct.pack("=IiQ", 16 + len(result[1]), -result[0], unique) + result[1])
        except OSError:
            pass  # who asked is gone


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mountpoint")
    parser.add_argument("--lookup", type=float, default=0)
    parser.add_argument("--read", type=float, default=0)
    parser.add_argument("--ask")
    options = parser.parse_args()
    dev = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    data = f"fd={dev},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"prices", options.mountpoint.encode(), b"fuse.prices", 6, data):  # MS_NOSUID | MS_NODEV
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    threads = [threading.Thread(target=serve, args=(dev, options)) for _ in range(4)]
    for thread in threads:
        thread.start()


main()
