//! Where each envelope has the event's id.

use pillarbox::{EventId, wire};
use serde::Deserialize;

use super::{Binding, Envelope, Mode};

#[derive(Deserialize)]
struct WithId {
    id: EventId,
}

/// The id in a message of this envelope. `header` finds a header by its name.
pub(crate) fn id_in<'a>(
    envelope: &Envelope,
    binding: Binding,
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
) -> Option<EventId> {
    match envelope {
        Envelope::Raw => header(wire::ID).map(EventId::from),
        Envelope::CloudEvents {
            mode: Mode::Binary, ..
        } => header(&format!("{}{}", binding.prefix, wire::cloudevents::ID)).map(EventId::from),
        Envelope::CloudEvents {
            mode: Mode::Structured,
            ..
        }
        | Envelope::Pillarbox => serde_json::from_slice::<WithId>(body).ok().map(|it| it.id),
        Envelope::Debezium => header(wire::debezium::ID).map(EventId::from),
        Envelope::Shape(shape) => shape.id_in(header, body),
    }
}
