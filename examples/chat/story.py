"""Runs the chat with Pillarbox and prints what happens. With --once it compares what was committed with what arrived, and
its exit code is the verdict."""

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import aclosing
from uuid import UUID, uuid4

from chat.follow import follow
from stage import PATIENCE, TRACE, Stage, expect


def told(stage: Stage) -> list[str]:
    """Sends messages, some of which are refused. Returns the ids of the committed messages, in order."""
    committed: list[str] = []
    for n in range(5):
        for session in ("s-1", "s-2"):
            # The second one ends a line in Unicode, and is no line break in JSON.
            status, answer = stage.send(session, f"message {n}: grüß\u2028dich")
            expect(status == 201, f"a message is taken: {status} {answer}")
            committed.append(str(answer["id"]))
    print(f"{len(committed)} messages were sent, in two sessions.")

    again = str(uuid4())
    statuses = [stage.send("s-1", "sent twice", id=again)[0] for _ in range(2)]
    expect(statuses == [201, 200], f"a request that is sent again is answered the same: {statuses}")
    committed.append(again)
    print("One request was sent twice, with the same id.")

    status, answer = stage.send("s-1", "a reply to nothing", reply_to=str(UUID(int=0)))
    expect(status == 409, f"the transaction is rolled back: {status} {answer}")
    print("One transaction was rolled back, after its message and its event were written.")

    status, answer = stage.send("s-1", "too long a name", project="p" * 300)
    expect(status == 422, f"an event that can't be sent is refused: {status} {answer}")
    expect(answer["detail"] == "project_id has 300 bytes; 255 are allowed", f"in words: {answer}")
    print(f"One was refused: {answer['detail']}.")
    return committed


def judge(stage: Stage, committed: list[str]) -> None:
    events = stage.arrived()
    count = Counter(str(event["id"]) for event in events)
    expect(count == Counter(committed), f"every committed message arrived once and nothing else did: {count}")
    for session in ("s-1", "s-2"):
        of_session = [event for event in events if event["aggregate_id"] == session]
        expect([e["id"] for e in of_session] == [m["id"] for m in stage.history(session)], f"in order: {session}")
    for event in events:
        payload = event["payload"]
        expect(payload["id"] == event["id"] and payload["session_id"] == event["aggregate_id"], f"the payload: {event}")
        expect((event["event_type"], event["aggregate_type"]) == ("message_created", "chat_session"), f"types: {event}")
        expect((event["project_id"], event["user_id"]) == ("p-1", "ada"), f"its scope: {event}")
        expect(event["headers"] == {"correlation-id": "c-7", "traceparent": TRACE}, f"its headers: {event}")
    print(f"{len(events)} events were committed, and each arrived once, in the order of its session.")
    followed = asyncio.run(first(stage.relay, len(events)))
    expect(followed == events, f"the service's follower gets the same: {followed}")


async def first(relay: str, count: int) -> list[dict[str, object]]:
    """What the service's own reader of the stream gets."""
    lines: list[dict[str, object]] = []
    async with asyncio.timeout(PATIENCE), aclosing(follow([relay], 0)) as stream:
        async for line in stream:
            if "heartbeat" not in line:
                lines.append(line)
            if len(lines) == count:
                break
    return lines


def end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pillarbox", default="pillarbox", help="the program")
    arguments.add_argument("--once", action="store_true", help="end with a verdict")
    arguments.add_argument("--until-stdin-ends", action="store_true", help="end when whoever started this has ended")
    given = arguments.parse_args()
    # So that the started processes end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if given.until_stdin_ends:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    with Stage(given.pillarbox) as stage:
        committed = told(stage)
        judge(stage, committed)
        if given.once:
            return
        print(f"The service: {stage.service} (open two windows; ?user=bob is somebody else; /docs)", flush=True)
        print(f"Its events: curl -N {stage.relay}/v1/stream (Ctrl-C ends all)", flush=True)
        try:
            while True:
                stage.send("s-1", time.strftime("it is %H:%M:%S"))
                time.sleep(1)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
