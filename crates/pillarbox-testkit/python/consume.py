"""Reads a whole JetStream stream with nats-py, a client Pillarbox has no part in, and judges what is there.

    consume.py URL STREAM EXPECTED [SECONDS]

Every event must be there once (by Nats-Msg-Id), carry its headers, and be in order per Pillarbox-Key by the number `n`
in its JSON payload. Prints the verdict as one JSON object; exits 0 when it is whole and 1 when it is not.
"""

import asyncio
import json
import sys
import time

import nats

HEADERS = (
    "Nats-Msg-Id",
    "Pillarbox-Event-Type",
    "Pillarbox-Key",
    "Pillarbox-Aggregate-Id",
    "Pillarbox-Schema-Version",
)
EXAMPLES_MAX = 5
BATCH = 500


class Judge:
    def __init__(self, expected):
        self.verdict = {
            "expected": expected,
            "messages": 0,
            "events": 0,
            "duplicated": 0,
            "without_headers": 0,
            "unreadable": 0,
            "order_violations": 0,
            "examples": [],
        }
        self.ids = set()
        self.latest = {}

    def fault(self, kind, words):
        self.verdict[kind] += 1
        if len(self.verdict["examples"]) < EXAMPLES_MAX:
            self.verdict["examples"].append(f"{kind}: {words}")

    def see(self, headers, payload, position):
        self.verdict["messages"] += 1
        missing = [name for name in HEADERS if not headers.get(name)]
        if missing:
            self.fault("without_headers", f"message {position} lacks {', '.join(missing)}")
            return
        event, key = headers["Nats-Msg-Id"], headers["Pillarbox-Key"]
        if event in self.ids:
            self.fault("duplicated", f"{event}, message {position}")
            return
        self.ids.add(event)
        self.verdict["events"] += 1
        try:
            n = int(json.loads(payload)["n"])
        except (ValueError, KeyError, TypeError) as error:
            self.fault("unreadable", f"message {position}: {error!r}")
            return
        if n <= self.latest.get(key, n - 1):
            self.fault("order_violations", f"{n} of key {key} after {self.latest[key]}, message {position}")
        self.latest[key] = max(n, self.latest.get(key, n))

    def is_whole(self):
        faults = ("duplicated", "without_headers", "unreadable", "order_violations")
        return self.verdict["events"] == self.verdict["expected"] and not any(self.verdict[kind] for kind in faults)


async def read(url, stream, judge, seconds):
    deadline = time.monotonic() + seconds
    client = await nats.connect(url, connect_timeout=5, allow_reconnect=True)
    try:
        subscription = await client.jetstream().pull_subscribe("", stream=stream)
        pending = None
        # Goes on until the stream is empty, so that what should not be there is found as well.
        while (pending != 0 or judge.verdict["events"] < judge.verdict["expected"]) and time.monotonic() < deadline:
            try:
                messages = await subscription.fetch(BATCH, timeout=1)
            except asyncio.TimeoutError:  # nats-py's own is one of these
                pending = 0
                continue
            for message in messages:
                judge.see(message.headers or {}, message.data, message.metadata.sequence.stream)
                pending = message.metadata.num_pending
                await message.ack()
    finally:
        await client.close()


def main():
    url, stream, expected = sys.argv[1:4]
    seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 60
    judge = Judge(int(expected))
    asyncio.run(read(url, stream, judge, seconds))
    judge.verdict["whole"] = judge.is_whole()
    print(json.dumps(judge.verdict))
    sys.exit(0 if judge.is_whole() else 1)


if __name__ == "__main__":
    main()
