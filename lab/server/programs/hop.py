"""One of a chain of small HTTP services: it does something, asks the next, answers."""

import argparse
import fcntl
import http.client
import itertools
import os
import queue
import socket
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("addr")
parser.add_argument("port", type=int)
for name in ("sleep-us", "lock-us", "spin-us", "workers", "log", "backlog", "timeout-ms"):
    parser.add_argument("--" + name, type=int, default=0)
parser.add_argument("--every", type=int, default=1)
for name in ("next", "read", "flock"):
    parser.add_argument("--" + name, default="")
are = parser.parse_args()

count = itertools.count(1)
stock = threading.Lock()
mine = threading.local()


def tariff(seconds):
    end, total = time.thread_time() + seconds, 0
    while time.thread_time() < end:
        for n in range(500):
            total = (total * 31 + n) % 1000003
    return total


def reserve():
    with stock:
        time.sleep(are.lock_us / 1e6)


def await_supplier():
    time.sleep(are.sleep_us / 1e6)


def take_ticket():
    with open(are.flock, "a") as ticket:
        fcntl.flock(ticket, fcntl.LOCK_EX)


def read_terms():
    with open(are.read, "rb") as terms:
        return len(terms.read())


def ask_next():
    for again in (True, False):
        fresh = getattr(mine, "next", None) is None
        try:
            if fresh:
                host, port = are.next.rsplit(":", 1)
                mine.next = http.client.HTTPConnection(host, int(port), timeout=are.timeout_ms / 1e3 or 10)
                mine.next.connect()
                mine.next.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine.next.request("GET", "/")
            answer = mine.next.getresponse()
            answer.read()
            if answer.will_close:
                mine.next.close()
                mine.next = None
            return answer.status
        except OSError as problem:
            mine.next = None
            if fresh or isinstance(problem, TimeoutError):
                return 502
        except http.client.HTTPException:
            mine.next = None
            if fresh:
                return 502
    return 502


def answer():
    if next(count) % are.every == 0:
        if are.sleep_us:
            await_supplier()
        if are.spin_us:
            tariff(are.spin_us / 1e6)
        if are.lock_us:
            reserve()
    if are.flock:
        take_ticket()
    if are.read:
        read_terms()
    if are.log:
        os.write(1, b"x" * are.log + b"\n")
    return ask_next() if are.next else 200


def serve(conn, keep):
    with conn:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = conn.recv(65536)
                if not more:
                    return
                data += more
            head, data = data.split(b"\r\n\r\n", 1)
            stays = keep and b"connection: close" not in head.lower()
            try:
                status = answer()
            except OSError:
                status = 500
            body = b"ok\n" if status < 400 else b"no\n"
            reason = b"OK" if status < 400 else b"Error"
            conn.sendall(b"HTTP/1.1 %d %s\r\nContent-Length: 3\r\nConnection: %s\r\n\r\n%s" % (status, reason, b"keep-alive" if stays else b"close", body))
            if not stays:
                return


def quietly(conn, keep):
    try:
        serve(conn, keep)
    except OSError:
        pass


def work(jobs):
    while True:
        quietly(jobs.get(), False)


listener = socket.create_server((are.addr, are.port), backlog=are.backlog or 1024)
jobs = queue.Queue()
for _ in range(are.workers):
    threading.Thread(target=work, args=(jobs,), daemon=True).start()
while True:
    try:
        conn, _ = listener.accept()
    except OSError as problem:
        print(problem, file=sys.stderr)
        time.sleep(0.01)
        continue
    if are.workers:
        jobs.put(conn)
    else:
        threading.Thread(target=quietly, args=(conn, True), daemon=True).start()
