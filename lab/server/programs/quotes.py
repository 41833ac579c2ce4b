"""An HTTP service as people write it in Python with threads: each connection has
one, and keeps it. For each answer it looks up a name, calls another service by
its name, or logs to a socket of the system's log, as asked.
"""

import argparse
import logging.handlers
import socket
import socketserver
import sys

ANSWER = b"HTTP/1.1 %s\r\nContent-Length: 12\r\nConnection: %s\r\n\r\nHello World\n"
log = logging.getLogger("quotes")


def call(options):
    """A call over a connection of its own, as a client library without a pool makes it."""
    with socket.create_connection((options.call, options.call_port), timeout=options.timeout) as conn:
        conn.sendall(b"GET / HTTP/1.1\r\nHost: quotes\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := conn.recv(4096):
            answer += chunk
    if b" 200 " not in answer[:20]:
        raise OSError("call: " + repr(answer[:40]))


def work(options):
    if options.lookup:
        socket.getaddrinfo(options.lookup, 80, type=socket.SOCK_STREAM)
    if options.call:
        call(options)
    if options.syslog:
        log.info("a quote was asked for")


class Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while True:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline(8192)
                if not line:
                    return
                head += line
            status = b"200 OK"
            try:
                work(self.server.options)
            except OSError as err:
                status = b"502 Bad Gateway"
                print(err, file=sys.stderr)
            last = b"connection: close" in head.lower()
            self.wfile.write(ANSWER % (status, b"close" if last else b"keep-alive"))
            if last:
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 4096

    def handle_error(self, request, client_address):
        pass  # a client that is gone


def main():
    p = argparse.ArgumentParser()
    p.add_argument("address")
    p.add_argument("port", type=int)
    p.add_argument("--lookup")
    p.add_argument("--call")
    p.add_argument("--call-port", type=int)
    p.add_argument("--timeout", type=float, default=5)
    p.add_argument("--syslog")
    options = p.parse_args()
    if options.syslog:
        log.addHandler(logging.handlers.SysLogHandler(options.syslog))
        log.setLevel(logging.INFO)
    with Server((options.address, options.port), Connection) as server:
        server.options = options
        server.serve_forever()


main()
