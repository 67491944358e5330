"""The service: messages of users in sessions, their history, a live stream of them, and a page for browsers."""

import os
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote
from uuid import UUID, uuid4

from fastapi import Cookie, Depends, FastAPI, Header, HTTPException, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy import create_engine, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from chat import outbox
from chat.live import live
from chat.messages import Base, Message, send

URL = os.environ["PILLARBOX_OUTBOX__DATABASE__URL"].replace("postgres://", "postgresql+psycopg://", 1)
engine = create_engine(URL, pool_pre_ping=True)
Base.metadata.create_all(engine)
app = FastAPI(title="Chat")
CHAT = "/my/projects/{project_id}/chat/{session_id}"


def current_user(
    x_user_id: Annotated[str | None, Header()] = None, user: Annotated[str | None, Cookie()] = None
) -> str:
    """It stands for the login of a real service. Whatever a user writes or reads is theirs alone."""
    if x_user_id is None and user is None:
        raise HTTPException(401, "who are you? send x-user-id, or the cookie user")
    return x_user_id or unquote(user or "")


User = Annotated[str, Depends(current_user)]


class Sent(BaseModel):
    text: Annotated[str, Field(min_length=1, max_length=10_000)]
    # A client that may have to repeat a request sends its own id.
    id: Annotated[UUID, Field(default_factory=uuid4)]
    reply_to: UUID | None = None


@app.get("/", include_in_schema=False)
def page() -> FileResponse:
    return FileResponse(Path(__file__).parent / "page.html", media_type="text/html")


@app.post(f"{CHAT}/message", status_code=201)
def send_message(
    project_id: str,
    session_id: str,
    sent: Sent,
    response: Response,
    user_id: User,
    x_correlation_id: Annotated[str | None, Header()] = None,
    traceparent: Annotated[str | None, Header()] = None,
) -> dict[str, str]:
    message = sent.model_dump() | {"project_id": project_id, "session_id": session_id, "user_id": user_id}
    try:
        with Session(engine) as session, session.begin():
            if not send(session, message, x_correlation_id, traceparent):
                response.status_code = 200
    except IntegrityError as error:
        raise HTTPException(409, "there is no message to reply to") from error
    except DBAPIError as error:
        if why := outbox.refusal(error):
            raise HTTPException(422, why) from error
        if seconds := outbox.retry_after_seconds(error):
            headers = {"Retry-After": str(seconds)}
            raise HTTPException(429, "too many events are pending: try again later", headers) from error
        raise
    return {"id": str(sent.id)}


@app.get(f"{CHAT}/messages")
def history(project_id: str, session_id: str, user_id: User) -> list[dict[str, str]]:
    wanted = select(Message).filter_by(project_id=project_id, session_id=session_id, user_id=user_id)
    with Session(engine) as session:
        found = session.scalars(wanted.order_by(Message.created_at.desc()).limit(1_000))
        return [{"id": str(m.id), "user_id": m.user_id, "text": m.text} for m in found][::-1]


@app.get(f"{CHAT}/events")
async def events(
    project_id: str, session_id: str, user_id: User, last_event_id: Annotated[int | None, Header()] = None
) -> StreamingResponse:
    stream = live(project_id, user_id, session_id, last_event_id)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"cache-control": "no-store"})
