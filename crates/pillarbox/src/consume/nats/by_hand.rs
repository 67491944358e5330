//! Messages that the client can't read, because their headers break the rules of NATS: they are not UTF-8,
//! for example. The client closes its connection whenever it receives one.
//!
//! The server returns such a message when it is requested by its sequence, with the headers in base64. The
//! durable consumer's delivery of it can't be read either, so it is acknowledged without one.

use async_nats::{
    HeaderName, Subject,
    jetstream::{self, stream::Stream},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::LANE;
use crate::consume::message::Message;

/// The first message of these subjects from this sequence on, if the client can't read it.
pub(super) async fn unreadable(
    context: &jetstream::Context,
    stream: &Stream,
    subjects: &[String],
    from: u64,
) -> Result<Option<Message>, async_nats::Error> {
    let name = &stream.cached_info().config.name;
    let every = [">".to_owned()];
    let subjects = if subjects.is_empty() { &every } else { subjects };
    let mut first: Option<Value> = None;
    for subject in subjects {
        let wanted = json!({ "seq": from, "next_by_subj": subject });
        let mut answer: Value = context.request(format!("STREAM.MSG.GET.{name}"), &wanted).await?;
        let message = answer["message"].take();
        let Some(sequence) = message["seq"].as_u64() else {
            const NOTHING_THERE: u64 = 404;
            match answer["error"]["code"].as_u64() {
                Some(NOTHING_THERE) => continue,
                _ => {
                    return Err(format!("the server did not return the message: {}", answer["error"]).into());
                }
            }
        };
        if first
            .as_ref()
            .and_then(|first| first["seq"].as_u64())
            .is_none_or(|first| sequence < first)
        {
            first = Some(message);
        }
    }
    let Some(message) = first else { return Ok(None) };
    let part = |name: &str| STANDARD.decode(message[name].as_str().unwrap_or_default());
    let (headers, body) = (part("hdrs")?, part("data")?);
    if is_readable(&headers) {
        return Ok(None);
    }
    Ok(Some(Message {
        lane: LANE,
        position: message["seq"].as_u64().unwrap_or(from),
        topic: message["subject"].as_str().unwrap_or_default().to_owned(),
        partition: None,
        key: None,
        headers: fields(&headers),
        body: body.into(),
        room: None,
    }))
}

/// The subject that acknowledges a delivery which was not received. With explicit acknowledgements the server
/// uses only the stream sequence of it.
pub(super) fn acknowledgement(stream: &str, durable: &str, sequence: u64) -> Subject {
    format!("$JS.ACK.{stream}.{durable}.1.{sequence}.{sequence}.0.0").into()
}

/// Whether the client can read these headers.
fn is_readable(headers: &[u8]) -> bool {
    if headers.is_empty() {
        return true;
    }
    let Ok(text) = std::str::from_utf8(headers) else {
        return false;
    };
    let mut lines = text.lines();
    let version = lines.next().is_some_and(|line| line.starts_with("NATS/1.0"));
    let field = |line: &str| {
        let continued = line.starts_with(char::is_whitespace);
        let name = line.split_once(':').map(|(name, _)| name);
        continued || name.is_some_and(|name| name.parse::<HeaderName>().is_ok())
    };
    version && lines.filter(|line| !line.is_empty()).all(field)
}

/// The headers as far as they can be read. Values keep their bytes.
fn fields(headers: &[u8]) -> Vec<(String, Bytes)> {
    let lines = headers.split(|byte| *byte == b'\n').skip(1);
    lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = String::from_utf8_lossy(&line[..colon]).trim().to_owned();
            Some((name, Bytes::copy_from_slice(line[colon + 1..].trim_ascii())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_the_client_cannot_read_are_recognised() {
        for fine in [
            &b""[..],
            b"NATS/1.0\r\n\r\n",
            "NATS/1.0\r\nPillarbox-Id: 1\r\nGröße: ü\r\n\r\n".as_bytes(),
            b"NATS/1.0 503\r\n\r\n",
        ] {
            // The client's own rule for header names decides.
            let odd =
                std::str::from_utf8(fine).unwrap().contains("Gr") && "Größe".parse::<HeaderName>().is_err();
            assert_eq!(is_readable(fine), !odd, "{:?}", String::from_utf8_lossy(fine));
        }
        for broken in [
            &b"NATS/1.0\r\nA: \xff\r\n\r\n"[..],
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"HTTP/1.1\r\nA: b\r\n\r\n",
        ] {
            assert!(!is_readable(broken), "{:?}", String::from_utf8_lossy(broken));
        }
    }

    #[test]
    fn fields_keep_their_bytes() {
        let read = fields(b"NATS/1.0\r\nA: b: c \r\nB:\xff\xfe\r\nnonsense\r\n\r\n");
        let expected = [("A", &b"b: c"[..]), ("B", b"\xff\xfe")];
        let read: Vec<_> = read.iter().map(|(name, value)| (&**name, &value[..])).collect();
        assert_eq!(read, expected);
    }
}
