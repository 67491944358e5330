"""Reads messages as CloudEvents with the SDK of the CloudEvents project, and tells what it understood.

On stdin a JSON list of {"mode": "binary" | "structured", "headers": {...}, "key": "...", "value": "..."}; on stdout a list of
{"attributes": {...}, "data": ...} in the same order. A message that is no CloudEvent ends it with an error.
"""

import json
import sys

from cloudevents.kafka import KafkaMessage, from_binary, from_structured

READERS = {"binary": from_binary, "structured": from_structured}


def understood(message):
    headers = {name: text.encode() for name, text in message["headers"].items()}
    event = READERS[message["mode"]](KafkaMessage(headers, message["key"], message["value"].encode()))
    return {"attributes": dict(event.get_attributes()), "data": event.get_data()}


json.dump([understood(message) for message in json.load(sys.stdin)], sys.stdout)
