"""Asks a server again and again, each time on a connection of its own, and writes down what became of it: when it was
sent, when it ended, and the answer, or a dash where there was none in time."""

import asyncio
import sys
import time

host, port, pause, patience = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def answer():
    reader, writer = await asyncio.open_connection(host, port)
    try:
        return (await reader.readline()).decode().strip()
    finally:
        writer.transport.abort()


async def request():
    sent = now()
    try:
        said = await asyncio.wait_for(answer(), patience)
    except (OSError, asyncio.TimeoutError):
        said = ""
    print("%.6f %.6f %s" % (sent, now(), said or "-"), flush=True)


async def main():
    print("requesting", flush=True)
    open_ones, due = set(), now()
    while True:
        task = asyncio.ensure_future(request())
        open_ones.add(task)
        task.add_done_callback(open_ones.discard)
        # Late ones are left out: a burst would measure the server, not the way to it.
        due = max(due + pause, now())
        await asyncio.sleep(due - now())


asyncio.run(main())
