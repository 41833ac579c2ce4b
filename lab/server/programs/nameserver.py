"""A nameserver that knows one address for every name, and reads its queries one
after the other, as a small one of its own making does. With a fourth argument it takes
its time for each by itself, as one does that asks others.
"""

import socket
import sys
import threading
import time

address, buffer, turn = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if buffer:
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
listening.bind((address, 53))
while True:
    query, client = listening.recvfrom(512)
    if turn == "never":
        continue
    if len(sys.argv) == 4:
        time.sleep(float(turn))
    end = query.index(b"\0", 12) + 5
    asks_v4 = query[end - 4 : end - 2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4\xc0\0\2\7" if asks_v4 else b""
    head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if answer else b"\0\0") + b"\0\0\0\0"
    answer = head + query[12:end] + answer
    if len(sys.argv) == 4:
        listening.sendto(answer, client)
    else:
        threading.Timer(float(turn), listening.sendto, (answer, client)).start()
