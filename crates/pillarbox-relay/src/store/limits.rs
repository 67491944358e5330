//! How much of a row is fetched. Larger parts are not read into memory: the query returns their size first.

use pillarbox::Limits;

/// Headers that are stored with more bytes than this are certainly over [`Limits::headers_bytes_max`], because JSON
/// needs at most six bytes for one. Fetched headers are checked against the exact limit afterwards.
pub(super) fn headers_fetched_max() -> usize {
    8 * Limits::default().headers_bytes_max
}

/// For nine texts. If they are larger together, at least one of them is over [`Limits::name_bytes_max`].
pub(super) fn names_fetched_max() -> usize {
    9 * Limits::default().name_bytes_max
}

/// Whether headers and texts of these sizes were fetched. The error says which limit they exceed.
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

/// The largest number of bytes that one row can take in memory.
pub(super) fn row_bytes_max(payload_bytes_max: usize) -> usize {
    payload_bytes_max
        .saturating_add(headers_fetched_max())
        .saturating_add(names_fetched_max())
}
