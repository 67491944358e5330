"""Writes events in the transaction that causes them. A Python service needs nothing else of Pillarbox."""

import json
import math
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

# Parameters without a type are sent as text. The payload is text, so it is delivered byte for byte. An id may be any text;
# the driver sends a UUID as such, so it needs the cast.
ENQUEUE = text(
    """
    select pillarbox.enqueue(
        topic => :topic, key => :key, event_type => :event_type, payload => :payload,
        aggregate_type => :aggregate_type, id => cast(:id as text), project_id => :project_id, user_id => :user_id,
        correlation_id => :correlation_id, traceparent => :traceparent)
    """
)
OPTIONAL = ("aggregate_type", "id", "project_id", "user_id", "correlation_id", "traceparent")


def enqueue(session: Session, topic: str, key: str, event_type: str, payload: Any, **more: Any) -> str:
    """Writes an event in the session's transaction and returns its id. It is delivered if and only if that commits."""
    event = dict.fromkeys(OPTIONAL) | more
    event |= {"topic": topic, "key": key, "event_type": event_type}
    event["payload"] = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return str(session.execute(ENQUEUE, event).scalar_one())


def refusal(error: DBAPIError) -> str | None:
    """Why the event itself was refused (SQLSTATE PB400). None: the error has another cause."""
    return error.orig.diag.message_primary if getattr(error.orig, "sqlstate", None) == "PB400" else None


def retry_after_seconds(error: DBAPIError) -> int | None:
    """If the outbox is full (SQLSTATE PB429): after how many seconds to retry the whole transaction."""
    if getattr(error.orig, "sqlstate", None) != "PB429":
        return None
    figures = json.loads(error.orig.diag.message_detail or "{}")
    return max(1, math.ceil(figures.get("retry_after_ms", 1000) / 1000))
