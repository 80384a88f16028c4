"""A member in a process of its own: `python -m tests.clustered.member KEY URL NAME FILE JSON`.

What it processes it writes to its file, a line for each message, before it goes on: `body token marked name`; and to
another, `FILE.told`, its number when it hears its own word that it is done, as the others do by then. It
leaves in order when told to terminate. In the transacted mode the line goes to a queue instead, in the
transaction.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from heliograph.clustered import Acknowledge, ClusteredConsumer, ClusteredMessage, Terms
from heliograph.clustered.adapter import Adapter
from heliograph.clustered.words import Done, decoded
from tests.clustered.middleware import ALL


async def main(key: str, url: str, name: str, path: str, options: dict[str, object]) -> None:
    middleware = ALL[key]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    told = os.open(path + ".told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers: dict[str, bytes] = {}
    pause = float(str(options.get("pause", 0)))

    async def handle(message: ClusteredMessage) -> bytes | None:
        line = b"%s %d %d %s\n" % (message.body, message.token, message.redelivered, name.encode())
        if pause:
            await asyncio.sleep(pause)
        if message.session is not None:
            producer = await message.session.producer("queue:effects")
            await producer.send(line)
        else:
            os.write(file, line)
            numbers[message.id] = b"%s\n" % message.body[2:]
        return b"done by " + name.encode()

    def adapter() -> Adapter:
        made = middleware.adapter(url)
        honest = made.hear

        async def hear() -> bytes:
            raw = await honest()
            word = decoded(raw)
            if isinstance(word, Done) and word.name == name:
                os.write(told, b"".join(numbers.pop(each, b"") for each in word.ids))
            return raw

        made.hear = hear  # type: ignore[method-assign]
        return made

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with ClusteredConsumer(
        adapter,
        cluster="billing",
        name=name,
        handler=handle,
        fields=tuple(options.get("fields", ("id",))),  # type: ignore[arg-type]
        acknowledge=Acknowledge(options.get("acknowledge", middleware.acknowledge.value)),
        terms=Terms(lease_seconds=float(str(options.get("lease", 3.0))), skew_seconds=0.2),
    ) as consumer:
        print("ready", flush=True)
        while not stop.is_set():
            view = consumer.view
            status = {
                "members": [] if view is None else [m.name for m in view.members],
                "complete": view is not None and all(m.is_complete for m in view.members),
                "acting": consumer.ranges.size,
                "held": consumer.held,
                "processed": consumer.figures.processed,
                "incarnations": consumer.figures.incarnations,
            }
            with open(path + ".status.tmp", "w", encoding="utf-8") as out:
                json.dump(status, out)
            os.replace(path + ".status.tmp", path + ".status")
            try:
                await asyncio.wait_for(stop.wait(), 0.1)
            except TimeoutError:
                continue


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=os.environ.get("CLUSTERED_LOG", "WARNING"), format="%(asctime)s %(message)s")
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], json.loads(sys.argv[5])))
