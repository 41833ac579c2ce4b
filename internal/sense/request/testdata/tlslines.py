"""Says lines back under TLS, 30 ms after each has come; and when it did what.

tlslines.py CERTIFICATE KEY

It prints its port, then for each line ns (CLOCK_MONOTONIC) at which it was read and at which its
answer was written. Clients may negotiate anew.
"""
import socket, ssl, sys, time

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:3])
context.options |= 1 << 8  # SSL_OP_ALLOW_CLIENT_RENEGOTIATION
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    plain, _ = listener.accept()
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with context.wrap_socket(plain, server_side=True) as c:
        while line := c.recv(4096):
            asked = time.monotonic_ns()
            time.sleep(0.03)
            answered = time.monotonic_ns()
            c.sendall(line)
            print(asked, answered, flush=True)
