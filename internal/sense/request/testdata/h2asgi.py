"""Serves HTTP/2 under Python's TLS with hypercorn, and calls with httpx; says what it did and when.

h2asgi.py serve CERTIFICATE KEY
h2asgi.py call PORT CONNECTIONS AT-ONCE TURNS

The server prints its port. Either end prints a line for each request that is over: the port of
the caller, 0, ns (CLOCK_MONOTONIC) at which the application was called, at which it began to
answer (the caller: at which httpx told of the answer) and at which it ended, METHOD/path:status,
and ns at which it began. What is asked for is /WHAT/CONNECTION/NUMBER?ms=DELAY, WHAT as in
h2node.mjs; the number is that of the request on its connection, from 0.
"""
import asyncio, socket, ssl, sys, time
from urllib.parse import parse_qs

now = time.monotonic_ns
lines = []


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    asked, what = now(), scope["path"].split("/")[1]
    delay = int(parse_qs(scope["query_string"].decode())["ms"][0]) / 1000
    await asyncio.sleep(delay)
    status = 404 if what == "missing" else 200
    answered = now()
    await send({"type": "http.response.start", "status": status, "headers": []})
    if what == "many":
        for _ in range(10):
            await send({"type": "http.response.body", "body": b"piece", "more_body": True})
            await asyncio.sleep(delay)
    ended = now()
    await send({"type": "http.response.body", "body": bytes(300_000) if what == "big" else b"ok"})
    lines.append(f"{scope['client'][1]} 0 {asked} {answered} {ended} {scope['method']}{scope['path']}:{status} {asked}\n")


async def say():
    while True:
        await asyncio.sleep(0.01)
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        lines.clear()


async def serve(cert, key):
    from hypercorn.asyncio import serve as run
    from hypercorn.config import Config
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = Config()
    config.bind, config.certfile, config.keyfile = [f"fd://{listener.fileno()}"], cert, key
    config.errorlog = None
    task = asyncio.create_task(say())
    await run(app, config)
    task.cancel()


async def call(port, connections, at_once, turns):
    import httpx

    async def connection(c):
        numbers = iter(range(1 << 20))
        async with httpx.AsyncClient(http1=False, http2=True, verify=False, limits=httpx.Limits(max_connections=1), timeout=30) as client:
            async def ask(what, ms):
                path, first = f"/{what}/{c}/{next(numbers)}", now()
                async with client.stream("GET", f"https://127.0.0.1:{port}{path}?ms={ms}") as r:
                    answered = now()
                    me = r.extensions["network_stream"].get_extra_info("client_addr")[1]
                    async for _ in r.aiter_raw():
                        pass
                lines.append(f"{me} 0 {first} {answered} {now()} GET{path}:{r.status_code} {first}\n")

            async def work(i):
                for turn in range(turns):
                    await ask(("get", "get", "missing", "big", "many", "get", "get")[(i + turn) % 7], 3 + 2 * (i % 16) + turn)

            for _ in range(8):
                await ask("get", 0)
            await asyncio.gather(*map(work, range(at_once)))

    await asyncio.gather(*map(connection, range(connections)))
    sys.stdout.write("".join(lines))


if sys.argv[1] == "serve":
    asyncio.run(serve(*sys.argv[2:4]))
else:
    asyncio.run(call(*map(int, sys.argv[2:6])))
