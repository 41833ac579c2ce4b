# planted.py MODE SECONDS: as planted.c.
import sys
import time


def burn(n):
    s = 0
    for i in range(n):
        s += i
    return s


def burn_most():
    return burn(90_000)


def burn_some():
    return burn(30_000)


def wait_on_db():
    time.sleep(0.02)


def handle_request(mode):
    if mode == "wait":
        began = time.monotonic_ns()
        wait_on_db()
        print(time.monotonic_ns() - began, flush=True)
    else:
        burn_most()
        burn_some()


end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    handle_request(sys.argv[1])
