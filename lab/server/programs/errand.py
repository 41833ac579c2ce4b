"""An HTTP service whose request is an errand: a few lines of Python that a file has.

What begins with "begin" is run once, before it serves; the function request(n) is
run for each request, in the thread of its connection, and what it raises is
answered with status 500. It has the names of this program: os, libc, DIR, …
"""

import ctypes
import fcntl
import itertools
import mmap
import os
import pwd
import random
import socket
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
DIR = os.path.dirname(os.path.abspath(sys.argv[3]))
ANSWER = b"HTTP/1.1 %s\r\nContent-Length: 12\r\n\r\nHello World\n"
count = itertools.count(1)


def check(result):
    """Raises what a function of C says went wrong."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def serve(conn, request):
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest = b""
    while True:
        while b"\r\n\r\n" not in rest:
            part = conn.recv(65536)
            if not part:
                return
            rest += part
        _, _, rest = rest.partition(b"\r\n\r\n")
        try:
            request(next(count))
            status = b"200 OK"
        except OSError as e:
            print(e, file=sys.stderr, flush=True)
            status = b"500 Internal Server Error"
        conn.sendall(ANSWER % status)


def guarded(conn, request):
    with conn:
        try:
            serve(conn, request)
        except OSError:
            pass


def main():
    errand = dict(globals())
    with open(sys.argv[3]) as f:
        exec(compile(f.read(), sys.argv[3], "exec"), errand)
    if "begin" in errand:
        errand["begin"]()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((sys.argv[1], int(sys.argv[2])))
    listener.listen(1024)
    if "uid" in errand:
        os.setuid(errand["uid"])
    while True:
        try:
            conn, _ = listener.accept()
        except OSError:
            time.sleep(0.05)
            continue
        threading.Thread(target=guarded, args=(conn, errand["request"]), daemon=True).start()


main()
