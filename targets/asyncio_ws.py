"""A WebSocket echo server as one would write it after reading the package's first page.

usage: asyncio_ws.py PORT
"""

import asyncio
import http
import signal
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


def health(connection, request):
    """Answers /healthz in plain HTTP, and lets everything else become a WebSocket."""
    if request.path == "/healthz":
        return connection.respond(http.HTTPStatus.OK, "ok\n")
    return None


async def main(port):
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # a backlog of 100 would be the first thing to break under a ramp; everything else is the package's default
    async with serve(echo, "127.0.0.1", port, process_request=health, backlog=4096):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
