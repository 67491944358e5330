"""Follows the event log of an outbox: each delivered event once, in the order of the log, from a position."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import httpx

# A relay sends at least a heartbeat every 15 seconds.
SILENCE_MAX = 40.0
AGAIN_FIRST, AGAIN_MAX = 0.1, 5.0


class Refused(Exception):
    """The relay does not allow it: no token, an expired one, not the right scope, or it has no event log."""


class PositionGone(Exception):
    """Events after the position have expired, or the log was restored. Read the data itself, and start anew."""


class Away(Exception):
    """The relay does not answer, or not now."""


async def follow(
    relays: list[str], after: int | None = None, token: str | None = None, **filters: str
) -> AsyncGenerator[dict[str, Any]]:
    """Yields events (and heartbeats, which have the key `heartbeat`), each with its `position`. After the last one that
    was processed, the next start continues with `after=position`. Without it, it starts with the next event.

    A lost connection, a relay that restarts, and a reader that was too slow are no errors: the follower connects again,
    to the next relay if there are several, and continues where it was. When the token expires, the relay ends the
    stream, and the next connection raises `Refused`."""
    failures = 0
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=httpx.Timeout(10, read=SILENCE_MAX)) as client:
        while True:
            relay = relays[failures % len(relays)]
            try:
                async for line in _lines(client, relay, filters if after is None else filters | {"after": str(after)}):
                    failures = 0
                    after = line["position"]
                    yield line
            except (httpx.TransportError, httpx.StreamError, Away):
                pass
            failures += 1
            longest = min(AGAIN_FIRST * 2**failures, AGAIN_MAX)
            await asyncio.sleep(random.uniform(longest / 2, longest))


async def _lines(client: httpx.AsyncClient, relay: str, query: dict[str, str]) -> AsyncGenerator[dict[str, Any]]:
    async with client.stream("GET", f"{relay}/v1/stream", params=query) as answer:
        if answer.status_code in (409, 410):
            raise PositionGone
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Away
        if answer.status_code != 200:
            await answer.aread()
            raise Refused(f"the relay answered {answer.status_code}: {answer.text}")
        async for text in _cut(answer.aiter_bytes()):
            line = json.loads(text)
            if line.get("end") == "replaced":
                raise PositionGone
            if "end" in line:
                return
            yield line


async def _cut(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Cuts bytes into lines. Only a line feed ends one: texts also contain U+2028 and others that end a line elsewhere. The
    rest without one was cut off with the connection."""
    rest = bytearray()
    async for chunk in chunks:
        begin = len(rest)
        rest += chunk
        # A long line comes in many chunks: only the new ones are searched.
        while (end := rest.find(b"\n", begin)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            begin = 0
