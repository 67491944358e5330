"""Reads a whole Kafka topic with confluent-kafka, a client Pillarbox has no part in, and judges what is there.

    consume_kafka.py BOOTSTRAP TOPIC EXPECTED ISOLATION [SECONDS]

Every event must be there (by Pillarbox-Id), carry its headers, have its key as the message's key, lie with its key in one
partition, and be in order per key by the number `n` in its JSON payload, copies put aside. ISOLATION is read_committed or
read_uncommitted. Prints the verdict as one JSON object; exits 0 when it is whole and 1 when it is not.
"""

import json
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

HEADERS = (
    "Pillarbox-Id",
    "Pillarbox-Event-Type",
    "Pillarbox-Key",
    "Pillarbox-Aggregate-Id",
    "Pillarbox-Schema-Version",
)
EXAMPLES_MAX = 5


class Judge:
    def __init__(self, expected):
        self.verdict = {
            "expected": expected,
            "messages": 0,
            "events": 0,
            "keys": 0,
            "duplicated": 0,
            "without_headers": 0,
            "wrong_key": 0,
            "unreadable": 0,
            "order_violations": 0,
            "examples": [],
        }
        self.ids = set()
        self.latest = {}
        self.partitions = {}

    def fault(self, kind, words):
        self.verdict[kind] += 1
        if len(self.verdict["examples"]) < EXAMPLES_MAX:
            self.verdict["examples"].append(f"{kind}: {words}")

    def see(self, message):
        self.verdict["messages"] += 1
        place = f"message {message.offset()} of partition {message.partition()}"
        headers = {name: value.decode() for name, value in message.headers() or []}
        missing = [name for name in HEADERS if not headers.get(name)]
        if missing:
            self.fault("without_headers", f"{place} lacks {', '.join(missing)}")
            return
        event, key = headers["Pillarbox-Id"], headers["Pillarbox-Key"]
        partition = self.partitions.setdefault(key, message.partition())
        if (message.key() or b"").decode() != key or partition != message.partition():
            self.fault("wrong_key", f"{place}, key {key}")
            return
        if event in self.ids:
            self.verdict["duplicated"] += 1
            return
        self.ids.add(event)
        self.verdict["events"] += 1
        try:
            n = int(json.loads(message.value())["n"])
        except (ValueError, KeyError, TypeError) as error:
            self.fault("unreadable", f"{place}: {error!r}")
            return
        if n <= self.latest.get(key, n - 1):
            self.fault("order_violations", f"{n} of key {key} after {self.latest[key]}, {place}")
        self.latest[key] = max(n, self.latest.get(key, n))
        self.verdict["keys"] = len(self.latest)

    def is_whole(self):
        faults = ("without_headers", "wrong_key", "unreadable", "order_violations")
        return self.verdict["events"] == self.verdict["expected"] and not any(self.verdict[kind] for kind in faults)


def read(bootstrap, topic, isolation, judge, seconds):
    deadline = time.monotonic() + seconds
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "stranger",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=seconds).topics[topic]
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions])
        at_end = set()
        # Goes on until every partition is at its end, so that what should not be there is found as well.
        while time.monotonic() < deadline:
            if len(at_end) == len(found.partitions) and judge.verdict["events"] >= judge.verdict["expected"]:
                break
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is None:
                at_end.discard(message.partition())
                judge.see(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
    finally:
        consumer.close()


def main():
    bootstrap, topic, expected, isolation = sys.argv[1:5]
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 60
    judge = Judge(int(expected))
    read(bootstrap, topic, isolation, judge, seconds)
    judge.verdict["whole"] = judge.is_whole()
    print(json.dumps(judge.verdict))
    sys.exit(0 if judge.is_whole() else 1)


if __name__ == "__main__":
    main()
