"""An HTTP service as people write it in Python, with nothing but its library.

With --workers it is as gunicorn is: processes that each take a connection, read
a request, work, answer and close. With --loop it is as tornado is: an event loop
that hands requests to a pool of threads, or works on them itself (--inline). With
--threaded it is as Python's own servers are: a thread for each connection.
What a request costs is counted in turns, not in time, so that a slower CPU takes
longer for it.
"""

import argparse
import asyncio
import concurrent.futures
import hashlib
import itertools
import json
import logging
import os
import re
import socket
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request

ANSWER = b"HTTP/1.1 %d %s\r\nContent-Length: 12\r\nConnection: %s\r\n\r\nHello World\n"
REASONS = {200: b"OK", 429: b"Too Many Requests\r\nRetry-After: 1", 500: b"Internal Server Error", 502: b"Bad Gateway", 503: b"Service Unavailable\r\nRetry-After: 1"}
log = logging.getLogger("booking")


def price_of_route(turns):
    """The hot function: each leg with each other one."""
    total = 0
    for leg in range(turns):
        total += (leg * 2654435761) % 97
    return total


def render_seats(turns):
    return "".join("<td>%d</td>" % (n % 40) for n in range(turns))


def parse_offer(turns):
    return [json.loads('{"seat": %d, "price": [1, 2, 3]}' % n) for n in range(turns // 6)]


def sort_flights(turns):
    return sorted(range(turns), key=lambda n: n * 7919 % turns)


def find_codes(turns):
    return re.findall(r"[A-Z]{3}-\d+", "LHR-11 to FRA-7 " * (turns // 16))


def sign(turns):
    digest = b""
    for _ in range(turns // 8):
        digest = hashlib.sha1(digest).digest()
    return digest


MIX = (render_seats, parse_offer, sort_flights, find_codes, sign)


count = itertools.count(1)
seats = threading.Lock()


class Account:
    def __init__(self):
        self.lock, self.balance = threading.Lock(), 0


HERE, THERE = Account(), Account()


def book(options):
    """Takes a seat, and asks somebody else for it while nobody may take another."""
    with seats:
        time.sleep(options.lock_us / 1e6)


def transfer(first, second):
    """Locks two accounts, in the order in which it gets them."""
    with first.lock:
        time.sleep(0.001)
        with second.lock:
            first.balance -= 1
            second.balance += 1


def ask(options):
    """Calls the other service, and gives the status that it answered with."""
    try:
        with urllib.request.urlopen(options.ask, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code


def quota(options):
    """Asks the other service, again and again with longer and longer pauses, and passes on what it says."""
    status, pause = ask(options), 0.05
    for _ in range(options.retries):
        if status < 400:
            break
        time.sleep(pause)
        status, pause = ask(options), 2 * pause
    return {404: 200, 429: 503, 500: 502, 503: 502}.get(status, status)


def check_name(length):
    """A pattern that takes twice as long for each further letter of what does not match."""
    return NAME.match("a" * length + "!")


NAME = re.compile(r"(\w+\s?)*$")


def work(options):
    turn = next(count)
    if options.regex:
        check_name(options.regex)
    if options.transfers and turn % options.transfers == 0:
        transfer(HERE, THERE)
    if options.transfers and turn % options.transfers == 1:
        transfer(THERE, HERE) if options.opposite else transfer(HERE, THERE)
    if options.lock_us:
        book(options)
    if options.long and turn % options.long_every == 0:
        price_of_route(options.long)
    if options.work_us:
        time.sleep(options.work_us / 1e6)
    if options.hot:
        price_of_route(options.hot)
    if options.mixed:
        for part in MIX:
            part(options.mixed)
    if options.ask:
        return quota(options)
    return options.refuse or 200


def answer(status, keep):
    return ANSWER % (status, REASONS.get(status, b"-"), b"keep-alive" if keep else b"close")


def note(options):
    """Logs a request as it comes in: in an event loop, on its one thread."""
    if options.log:
        log.info("books a seat %s", "." * options.log)


def listener(options):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((options.address, options.port))
    s.listen(4096)
    return s


def secured(options):
    """How connections speak TLS; None where they do not."""
    if not options.tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.tls)
    return context


def spoken(conn, secure):
    """The connection as its bytes are to be read: handshakes are up to the first read."""
    return secure.wrap_socket(conn, server_side=True, do_handshake_on_connect=False) if secure else conn


def serve_one_by_one(options, listening):
    secure = secured(options)
    while True:
        conn, _ = listening.accept()
        with spoken(conn, secure) as conn:
            if conn.recv(8192):
                note(options)
                conn.sendall(answer(work(options), False))


def serve_connection(options, conn):
    with conn:
        while data := conn.recv(8192):
            note(options)
            status = work(options)
            keep = b"Connection: close" not in data
            conn.sendall(answer(status, keep))
            if not keep:
                return


def serve_in_threads(options, listening):
    secure = secured(options)
    while True:
        conn, _ = listening.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve_connection, args=(options, spoken(conn, secure)), daemon=True).start()


class Connection(asyncio.Protocol):
    def __init__(self, options, pool):
        self.options, self.pool = options, pool

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        keep = b"Connection: close" not in data
        note(self.options)
        if self.pool is None:
            self.answer(work(self.options), keep)
            return
        done = asyncio.get_running_loop().run_in_executor(self.pool, work, self.options)
        done.add_done_callback(lambda status: self.answer(status.result(), keep))

    def answer(self, status, keep):
        self.transport.write(answer(status, keep))
        if not keep:
            self.transport.close()


async def serve_loop(options, listening):
    pool = None
    if not options.inline:
        pool = concurrent.futures.ThreadPoolExecutor(options.threads, "request")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(options, pool), sock=listening, ssl=secured(options))
    await server.serve_forever()


def watch_files():
    """Auto-reload as development servers have it: stat() of each module, all the time."""
    while True:
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path:
                for _ in range(4):
                    os.stat(path)
        time.sleep(0.1)


CATALOGUE = json.dumps([{"seat": n, "price": [1, 2, 3]} for n in range(40_000)])


def refresh_catalogue(options):
    """Reads a large document over and over, as a cache of it is kept fresh: in one call that never lets go."""
    while True:
        json.loads(CATALOGUE)
        time.sleep(options.rest_us / 1e6) if options.rest_us else None


def rebuild_index(options):
    """Counts, in code that is nothing but Python."""
    while True:
        total = 0
        for n in range(20_000 if options.rest_us else 1_000_000):
            total += n * n % 97
        time.sleep(options.rest_us / 1e6) if options.rest_us else None


def idle_pool(threads):
    """A pool whose threads have all had something to do once."""
    pool = concurrent.futures.ThreadPoolExecutor(threads, "export")
    ready = threading.Barrier(threads)
    for _ in range(threads):
        pool.submit(ready.wait)
    return pool


def main():
    p = argparse.ArgumentParser()
    p.add_argument("address")
    p.add_argument("port", type=int)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--loop", action="store_true")
    p.add_argument("--inline", action="store_true")
    p.add_argument("--threaded", action="store_true")
    p.add_argument("--opposite", action="store_true")
    for name in ("--work-us", "--lock-us", "--transfers", "--long", "--long-every"):
        p.add_argument(name, type=int, default=0)
    for name in ("--ask", "--tls"):
        p.add_argument(name, default="")
    for name in ("--retries", "--refuse", "--regex"):
        p.add_argument(name, type=int, default=0)
    p.add_argument("--threads", type=int, default=8)
    for name in ("--idle", "--refresh", "--index", "--rest-us"):
        p.add_argument(name, type=int, default=0)
    p.add_argument("--reload", action="store_true")
    p.add_argument("--hot", type=int, default=0)
    p.add_argument("--mixed", type=int, default=0)
    p.add_argument("--log", type=int, default=0)
    options = p.parse_args()
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    listening = listener(options)
    for _ in range(options.workers - 1):
        if os.fork() == 0:
            break
    if options.reload:
        threading.Thread(target=watch_files, name="autoreload", daemon=True).start()
    for run in [refresh_catalogue] * options.refresh + [rebuild_index] * options.index:
        threading.Thread(target=run, args=(options,), name="refresh", daemon=True).start()
    pool = idle_pool(options.idle) if options.idle else None
    if options.loop:
        asyncio.run(serve_loop(options, listening))
    if options.threaded:
        serve_in_threads(options, listening)
    serve_one_by_one(options, listening)
    del pool


main()
