"""Serves the engine of chdb as ClickHouse's HTTP interface does, as far as slowray
uses it: a query in the parameter "query" and data in the body, or all in the body;
the parameters database, query_id (in use: refused) and decompress (LZ4 frames)."""

import http.server
import os
import re
import struct
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

port, path = int(sys.argv[1]), sys.argv[2]
engine = session.Session(path)
lock = threading.Lock()


def unlz4(b, size):
    """Decodes a block of LZ4."""
    out, i = bytearray(), 0
    while i < len(b):
        token = b[i]
        i += 1
        n = token >> 4
        if n == 15:
            while True:
                n += b[i]
                i += 1
                if b[i - 1] != 255:
                    break
        out += b[i : i + n]
        i += n
        if i >= len(b):
            break
        offset = b[i] | b[i + 1] << 8
        i += 2
        n = token & 15
        if n == 15:
            while True:
                n += b[i]
                i += 1
                if b[i - 1] != 255:
                    break
        n += 4
        start = len(out) - offset
        if offset >= n:
            out += out[start : start + n]
        else:
            piece = bytes(out[start:])
            out += (piece * (n // offset + 1))[:n]
    if len(out) != size:
        raise ValueError("LZ4 block has %d bytes instead of %d" % (len(out), size))
    return bytes(out)


def frames(b):
    """Decodes ClickHouse's frames: checksum (16), method, sizes, data."""
    out, i = [], 0
    while i < len(b):
        method, packed, size = struct.unpack_from("<BII", b, i + 16)
        data = b[i + 25 : i + 16 + packed]
        out.append(unlz4(data, size) if method == 0x82 else bytes(data))
        i += 16 + packed
    return b"".join(out)


def run(database, query, data):
    with lock:
        if database:
            try:
                engine.query("USE `%s`" % database.replace("`", "``"))
            except Exception:
                # A database that is not there yet is reported by what needs it.
                engine.query("USE default")
        insert = re.match(r"(?is)^\s*INSERT\s+INTO\s+.*FORMAT\s+(\w+)\s*$", query)
        if insert:
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), suffix=".data") as f:
                f.write(data)
                f.flush()
                into = re.sub(r"(?is)\s+FORMAT\s+\w+\s*$", "", query)
                engine.query("%s SELECT * FROM file('%s', '%s')" % (into, f.name, insert.group(1)))
            return b""
        query += data.decode()
        form = re.search(r"(?is)\bFORMAT\s+(\w+)\s*;?\s*$", query)
        if form:
            query = query[: form.start()]
        return engine.query(query, form.group(1) if form else "TabSeparated").bytes() or b""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, b"Ok.\n")

    def do_POST(self):
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            parts = []
            while True:
                n = int(self.rfile.readline().split(b";")[0], 16)
                parts.append(self.rfile.read(n))
                self.rfile.readline()
                if n == 0:
                    break
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        p = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
        try:
            if p.get("decompress") == "1":
                body = frames(body)
            self.answer(200, run(p.get("database", ""), p.get("query", ""), body))
        except Exception as e:
            self.answer(500, str(e).encode())

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


Server(("127.0.0.1", port), Handler).serve_forever()
