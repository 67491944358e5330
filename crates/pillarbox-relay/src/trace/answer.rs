//! The collector's answer: an `ExportTraceServiceResponse`, which can reject some spans of a request it accepts.

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const FIXED_32: u64 = 5;
/// The text of a rejection is cut here.
const MESSAGE_CHARS_MAX: usize = 200;

/// Spans of an accepted request that the collector dropped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rejected {
    pub(super) spans: u64,
    pub(super) why: String,
}

/// An answer that can't be read rejects nothing.
pub(super) fn rejected(body: &[u8]) -> Rejected {
    let mut rejected = Rejected::default();
    for (field, value) in Fields(body) {
        let (1, Value::Bytes(partial_success)) = (field, value) else {
            continue;
        };
        for (field, value) in Fields(partial_success) {
            match (field, value) {
                // Signed. A negative number makes no sense.
                (1, Value::Number(spans)) if spans <= i64::MAX as u64 => rejected.spans = spans,
                (2, Value::Bytes(why)) => {
                    let why = String::from_utf8_lossy(why);
                    rejected.why = why.chars().take(MESSAGE_CHARS_MAX).collect();
                }
                _ => {}
            }
        }
    }
    rejected
}

enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a protobuf message, up to the first that can't be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 0b111 {
            VARINT => Value::Number(self.varint()?),
            LENGTH_DELIMITED => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED_64 => self.take(8).map(|_| Value::Other)?,
            FIXED_32 => self.take(4).map(|_| Value::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take(1)?[0];
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(n);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceResponse,
    };
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn answer(rejected_spans: i64, error_message: &str) -> Vec<u8> {
        let partial_success = Some(ExportTracePartialSuccess {
            rejected_spans,
            error_message: error_message.into(),
        });
        ExportTraceServiceResponse { partial_success }.encode_to_vec()
    }

    #[test]
    fn rejected_spans_are_read_and_anything_else_rejects_none() {
        let some = rejected(&answer(300, "too old"));
        assert_eq!((some.spans, &*some.why), (300, "too old"));
        assert_eq!(
            rejected(&answer(1, &"ä".repeat(9_999))).why.chars().count(),
            MESSAGE_CHARS_MAX
        );
        for nothing in [
            Vec::new(),
            answer(0, ""),
            answer(-1, ""),
            b"{}".to_vec(),
            vec![0x0a, 0xff],
        ] {
            assert_eq!(rejected(&nothing).spans, 0, "{nothing:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(body: Vec<u8>) {
            let _ = rejected(&body);
        }

        #[test]
        fn a_cut_answer_is_no_more_than_the_whole(spans in 0..i64::MAX, cut in 0_usize..40) {
            let whole = answer(spans, "why");
            let found = rejected(&whole[..cut.min(whole.len())]).spans;
            prop_assert!(found == 0 || found == spans as u64);
        }
    }
}
