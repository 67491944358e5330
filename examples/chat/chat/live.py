"""The service's own stream for browsers: the events of one session, as server-sent events.

The service knows who the user is and asks the relay for that user's events only. The browser's `EventSource` connects
again by itself and sends the position of the last event that it has, so it misses nothing and gets nothing twice,
whichever process of the service and whichever relay answers."""

import json
import os
from collections.abc import AsyncGenerator

from chat.follow import PositionGone, follow

RELAYS = os.environ.get("CHAT_RELAYS", "http://127.0.0.1:7420").split(",")
TOKEN = os.environ.get("CHAT_RELAY_TOKEN")


async def live(project_id: str, user_id: str, session_id: str, after: int | None) -> AsyncGenerator[str]:
    scope = {"project_id": project_id, "user_id": user_id, "aggregate_id": session_id, "topic": "chat.>"}
    # Answers at once, so that the browser knows that the connection is open.
    yield ": \n\n"
    try:
        async for line in follow(RELAYS, after, TOKEN, **scope):
            yield as_sse(line)
    except PositionGone:
        # The empty id makes the browser connect without a position.
        yield "id:\nevent: reload\ndata: {}\n\n"


def as_sse(line: dict[str, object]) -> str:
    if "heartbeat" in line:
        return f"id: {line['position']}\nevent: position\ndata: {line['position']}\n\n"
    data = json.dumps(line["payload"], ensure_ascii=False)
    return f"id: {line['position']}\nevent: {line['event_type']}\ndata: {data}\n\n"
