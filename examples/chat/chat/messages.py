"""The history of a chat: the canonical state. Each message and its event are written in one transaction."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import DateTime, ForeignKey, String, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from chat import outbox


class Base(DeclarativeBase):
    pass


class Message(Base):
    __tablename__ = "messages"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(String)
    session_id: Mapped[str] = mapped_column(String, index=True)
    user_id: Mapped[str] = mapped_column(String)
    text: Mapped[str] = mapped_column(String)
    # Checked at the commit, so that messages of one transaction may reply to each other in any order. A reply to a
    # message that does not exist fails at the commit, after the message and its event were written.
    reply_to: Mapped[UUID | None] = mapped_column(
        ForeignKey("messages.id", deferrable=True, initially="DEFERRED")
    )
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


def send(session: Session, message: dict[str, object], correlation_id: str | None, traceparent: str | None) -> bool:
    """Writes a message and its event. False: a message with this id and its event already exist."""
    write = insert(Message).values(message).on_conflict_do_nothing(index_elements=["id"])
    new = session.execute(write.returning(Message.id)).first()
    outbox.enqueue(
        session,
        topic="chat.message",
        key=str(message["session_id"]),  # messages of one session arrive in order
        event_type="message_created",
        payload={name: str(value) for name, value in message.items() if value is not None},
        aggregate_type="chat_session",
        id=message["id"],  # the same at every attempt: a repeated request writes no second event
        project_id=message["project_id"],
        user_id=message["user_id"],
        correlation_id=correlation_id,
        traceparent=traceparent,
    )
    return new is not None
