"""The service: POST /my/projects/{project_id}/chat/{session_id}/message."""

import os
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel, Field
from sqlalchemy import create_engine, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from chat import outbox
from chat.messages import Base, Message, send

URL = os.environ["PILLARBOX_OUTBOX__DATABASE__URL"].replace("postgres://", "postgresql+psycopg://", 1)
engine = create_engine(URL, pool_pre_ping=True)
Base.metadata.create_all(engine)
app = FastAPI(title="Chat")


class Sent(BaseModel):
    text: Annotated[str, Field(min_length=1, max_length=10_000)]
    # A client that may have to repeat a request sends its own id.
    id: Annotated[UUID, Field(default_factory=uuid4)]
    reply_to: UUID | None = None


@app.post("/my/projects/{project_id}/chat/{session_id}/message", status_code=201)
def send_message(
    project_id: str,
    session_id: str,
    sent: Sent,
    response: Response,
    x_user_id: Annotated[str, Header()],
    x_correlation_id: Annotated[str | None, Header()] = None,
    traceparent: Annotated[str | None, Header()] = None,
) -> dict[str, str]:
    message = sent.model_dump() | {"project_id": project_id, "session_id": session_id, "user_id": x_user_id}
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


@app.get("/my/projects/{project_id}/chat/{session_id}/messages")
def history(project_id: str, session_id: str) -> list[dict[str, str]]:
    wanted = select(Message).filter_by(project_id=project_id, session_id=session_id).order_by(Message.created_at)
    with Session(engine) as session:
        return [{"id": str(m.id), "user_id": m.user_id, "text": m.text} for m in session.scalars(wanted.limit(1_000))]
