//! How much of a row is fetched. What is beyond is not brought into memory: its size is known before.

use pillarbox::Limits;

/// Headers that are larger as the database stores them are surely over [`Limits::headers_bytes_max`]: written as JSON, a byte
/// takes six at most. What is fetched is held against the exact limit afterwards.
pub(super) fn headers_fetched_max() -> usize {
    8 * Limits::default().headers_bytes_max
}

/// Eight texts. When they are larger together, one of them is over [`Limits::name_bytes_max`].
pub(super) fn names_fetched_max() -> usize {
    8 * Limits::default().name_bytes_max
}

/// Whether headers and texts of these sizes were fetched; else what is wrong with them.
pub(super) fn fetched(names: usize, headers: usize) -> Result<(), String> {
    let limits = Limits::default();
    if headers > headers_fetched_max() {
        return Err(format!(
            "the headers have about {headers} bytes; {} are allowed",
            limits.headers_bytes_max
        ));
    }
    if names > names_fetched_max() {
        return Err(format!(
            "topic, types, ids and key have {names} bytes together; {} are allowed for each",
            limits.name_bytes_max
        ));
    }
    Ok(())
}

pub(super) fn payload_too_large(bytes: usize, most: usize) -> String {
    format!("the payload has {bytes} bytes; {most} are allowed")
}

/// What a row brings into memory at most.
pub(super) fn row_bytes_max(payload_bytes_max: usize) -> usize {
    payload_bytes_max
        .saturating_add(headers_fetched_max())
        .saturating_add(names_fetched_max())
}
