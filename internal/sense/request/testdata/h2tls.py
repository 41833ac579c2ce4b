"""A server of HTTP/2 under TLS 1.2 or 1.3 by OpenSSL, which says what it did and when.

h2tls.py MODE CERTIFICATE KEY [VERSION]

MODE: direct, OpenSSL reads and writes the socket; memory, the server does, and hands
over what came, as node and Python's asyncio do. It prints its port, then a line for each
stream that is over: the port of its caller, its number, ns (CLOCK_MONOTONIC) at which its HEADERS were read and its
answer began and ended. It does not read packed headers: what to do is in the first bytes
of a HEADERS frame's payload,

  delay in ms (2 bytes), then
  "a" answer after it; "n" never; "r" reset the stream after it; "c" close the connection
  after it; "l" begin to answer at once, go on every 20 ms, end after it; "k" answer after
  it with new keys; "b" answer with 300,000 bytes; "x" 404; "s" answer
  after it, in which nothing else is done
"""
import ctypes, ctypes.util, heapq, select, socket, struct, sys, time

MODE, CERT, KEY = sys.argv[1:4]
VERSION = sys.argv[4] if len(sys.argv) > 4 else "1.3"
ssl = ctypes.CDLL("libssl.so.3")
crypto = ctypes.CDLL("libcrypto.so.3")
P, I = ctypes.c_void_p, ctypes.c_int
for lib, name, result, args in (
    (ssl, "TLS_server_method", P, []), (ssl, "SSL_CTX_new", P, [P]), (ssl, "SSL_new", P, [P]), (ssl, "SSL_free", None, [P]),
    (ssl, "SSL_CTX_use_certificate_file", I, [P, ctypes.c_char_p, I]), (ssl, "SSL_CTX_use_PrivateKey_file", I, [P, ctypes.c_char_p, I]),
    (ssl, "SSL_CTX_ctrl", ctypes.c_long, [P, I, ctypes.c_long, P]), (ssl, "SSL_set_accept_state", None, [P]), (ssl, "SSL_set_fd", I, [P, I]),
    (ssl, "SSL_set_bio", None, [P, P, P]), (ssl, "SSL_do_handshake", I, [P]), (ssl, "SSL_get_error", I, [P, I]),
    (ssl, "SSL_read", I, [P, P, I]), (ssl, "SSL_write", I, [P, P, I]), (ssl, "SSL_key_update", I, [P, I]),
    (ssl, "SSL_read_ex", I, [P, P, ctypes.c_size_t, P]), (ssl, "SSL_write_ex", I, [P, P, ctypes.c_size_t, P]),
    (ssl, "SSL_get0_alpn_selected", None, [P, P, P]), (ssl, "SSL_CTX_set_alpn_select_cb", None, [P, P, P]),
    (crypto, "BIO_new", P, [P]), (crypto, "BIO_s_mem", P, []), (crypto, "BIO_read", I, [P, P, I]), (crypto, "BIO_write", I, [P, P, I]),
):
    f = getattr(lib, name)
    f.restype, f.argtypes = result, args

H2 = ctypes.create_string_buffer(b"h2")
SELECT = ctypes.CFUNCTYPE(I, P, ctypes.POINTER(P), ctypes.POINTER(ctypes.c_ubyte), P, ctypes.c_uint, P)


@SELECT
def select_h2(_ssl, out, length, _in, _inlen, _arg):
    out[0], length[0] = ctypes.addressof(H2), 2
    return 0


ctx = ssl.SSL_CTX_new(ssl.TLS_server_method())
number = {"1.2": 0x303, "1.3": 0x304}[VERSION]
for ctrl in (123, 124):  # SSL_CTX_set_min_proto_version, …max…
    ssl.SSL_CTX_ctrl(ctx, ctrl, number, None)
ssl.SSL_CTX_ctrl(ctx, 33, 3, None)  # SSL_MODE_ENABLE_PARTIAL_WRITE, …MOVING_WRITE_BUFFER
assert ssl.SSL_CTX_use_certificate_file(ctx, CERT.encode(), 1) == 1
assert ssl.SSL_CTX_use_PrivateKey_file(ctx, KEY.encode(), 1) == 1
ssl.SSL_CTX_set_alpn_select_cb(ctx, ctypes.cast(select_h2, P), None)

now = time.monotonic_ns
BUF = ctypes.create_string_buffer(1 << 16)
N = ctypes.c_size_t()


class Connection:
    def __init__(self, sock):
        self.sock, self.ssl = sock, ssl.SSL_new(ctx)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ssl.SSL_set_accept_state(self.ssl)
        self.rin = self.rout = None
        if MODE == "memory":
            self.rin, self.rout = crypto.BIO_new(crypto.BIO_s_mem()), crypto.BIO_new(crypto.BIO_s_mem())
            ssl.SSL_set_bio(self.ssl, self.rin, self.rout)
        else:
            ssl.SSL_set_fd(self.ssl, sock.fileno())
        self.ready, self.bytes, self.out, self.streams, self.turn = False, b"", b"", {}, 0

    def flush(self):
        """Memory: sends what OpenSSL has encrypted."""
        while self.rout:
            n = crypto.BIO_read(self.rout, BUF, len(BUF))
            if n <= 0:
                return
            data = BUF.raw[:n]
            while data:
                try:
                    data = data[self.sock.send(data):]
                except BlockingIOError:
                    select.select([], [self.sock], [])

    def readable(self):
        if self.rin:
            data = self.sock.recv(1 << 16)
            if not data:
                raise EOFError
            crypto.BIO_write(self.rin, data, len(data))
        if not self.ready:
            r = ssl.SSL_do_handshake(self.ssl)
            self.flush()
            if r != 1:
                if ssl.SSL_get_error(self.ssl, r) != 2:
                    raise EOFError
                return
            self.ready = True
            name, length = P(), ctypes.c_uint()
            ssl.SSL_get0_alpn_selected(self.ssl, ctypes.byref(name), ctypes.byref(length))
            self.send(frame(4, 0, 0, b""))
        while True:
            self.turn += 1
            if self.turn % 2:  # both forms
                n = ssl.SSL_read(self.ssl, BUF, 16384)
            else:
                n = N.value if ssl.SSL_read_ex(self.ssl, BUF, 16384, ctypes.byref(N)) == 1 else 0
            when = now()
            if n <= 0:
                if ssl.SSL_get_error(self.ssl, n) == 2:
                    return
                raise EOFError
            self.take(BUF.raw[:n], when)

    def send(self, data):
        """Frames, at once; says when."""
        when = now()
        while data:
            if self.turn % 3:
                n = ssl.SSL_write(self.ssl, data, len(data))
            else:
                n = N.value if ssl.SSL_write_ex(self.ssl, data, len(data), ctypes.byref(N)) == 1 else 0
            self.flush()
            if n > 0:
                data = data[n:]
            else:
                select.select([], [self.sock], [])
        return when

    def take(self, data, when):
        self.bytes += data
        if self.bytes[:3] == b"PRI":
            self.bytes = self.bytes[24:]
        while len(self.bytes) >= 9:
            length = int.from_bytes(self.bytes[:3], "big")
            kind, flags, sid = self.bytes[3], self.bytes[4], int.from_bytes(self.bytes[5:9], "big")
            if len(self.bytes) < 9 + length:
                return
            payload, self.bytes = self.bytes[9:9 + length], self.bytes[9 + length:]
            if kind == 1:
                ms, what = struct.unpack(">Hc", payload[:3])
                self.streams[sid] = [when, 0, what]
                if what == b"l":
                    self.streams[sid][1] = self.send(frame(1, 4, sid, b"\x88"))
                    later(0.02, self.go_on, sid, now() + ms * 1000000)
                elif what == b"s":
                    time.sleep(ms / 1000)
                    self.act(sid)
                elif what != b"n":
                    later(ms / 1000, self.act, sid)
            elif kind == 3:
                self.streams.pop(sid, None)

    def go_on(self, sid, until):
        if now() < until:
            self.send(frame(0, 0, sid, b"x" * 100))
            later(0.02, self.go_on, sid, until)
        else:
            self.over(sid, self.send(frame(0, 1, sid, b"x")))

    def act(self, sid):
        what = self.streams[sid][2]
        if what == b"c":
            raise EOFError
        if what == b"r":
            self.over(sid, self.send(frame(3, 0, sid, b"\0\0\0\2")))
            return
        if what == b"k":
            ssl.SSL_key_update(self.ssl, 1)
        if what == b"b":
            self.streams[sid][1] = self.send(frame(1, 4, sid, b"\x88"))
            body = b"".join(frame(0, 0, sid, b"x" * 15000) for _ in range(20))
            self.over(sid, self.send(body + frame(0, 1, sid, b"")))
            return
        status = b"\x8d" if what == b"x" else b"\x88"
        # One call, as nginx and others do; and the body in another.
        self.streams[sid][1] = self.send(frame(1, 4, sid, status))
        self.over(sid, self.send(frame(0, 1, sid, b"hello")))

    def over(self, sid, when):
        asked, answered, what = self.streams.pop(sid)
        print(self.sock.getpeername()[1], sid, asked, answered, when, what.decode(), flush=True)

    def close(self):
        ssl.SSL_free(self.ssl)
        self.sock.close()


def frame(kind, flags, sid, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + sid.to_bytes(4, "big") + payload


todo = []


def later(seconds, do, *args):
    heapq.heappush(todo, (now() + int(seconds * 1e9), id(args), do, args))


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connections = {}


def attempt(c, do, *args):
    try:
        do(*args)
    except (EOFError, OSError):
        if connections.pop(c.sock, None):
            c.close()


while True:
    wait = max(0, (todo[0][0] - now()) / 1e9) if todo else None
    for sock in select.select([listener, *connections], [], [], wait)[0]:
        if sock is listener:
            s, _ = sock.accept()
            connections[s] = Connection(s)
        elif sock in connections:
            attempt(connections[sock], connections[sock].readable)
    while todo and todo[0][0] <= now():
        _, _, do, args = heapq.heappop(todo)
        if do.__self__.sock in connections:
            attempt(do.__self__, do, *args)
