//! The id of an event in a path.

use axum::extract::{Path, rejection::PathRejection};
use pillarbox::{EventId, Limits};

use super::problem::Problem;

/// An id that an event can have. A database may refuse others.
pub(super) fn event_id(given: Result<Path<String>, PathRejection>) -> Result<EventId, Problem> {
    let Path(id) = given.map_err(|rejection| Problem::bad(rejection.body_text()))?;
    let most = Limits::default().name_bytes_max;
    if id.is_empty() || id.len() > most || id.contains(char::is_control) {
        return Err(Problem::bad(format!(
            "this can't be the id of an event: an id has 1 to {most} bytes and no control characters"
        )));
    }
    Ok(id.into())
}
