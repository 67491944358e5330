//! Spans in the protobuf format of OTLP (`opentelemetry/proto/trace/v1/trace.proto`), written directly. The crates of
//! OpenTelemetry would add eleven crates to the build and copy each span twice. The tests read what is written here
//! with `opentelemetry-proto`.

/// A span that has ended.
pub(super) struct Span<'a> {
    pub(super) trace: u128,
    pub(super) id: u64,
    pub(super) parent: Parent,
    pub(super) flags: u8,
    pub(super) state: &'a str,
    /// In two parts: `publish ` and the topic.
    pub(super) name: [&'a str; 2],
    pub(super) kind: Kind,
    /// Nanoseconds since 1970.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) attributes: &'a [Attribute<'a>],
    /// Something that happened at the end of the span.
    pub(super) event: Option<(&'static str, &'a [Attribute<'a>])>,
    pub(super) error: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    None,
    /// A span of a relay.
    Local(u64),
    /// A span of the producer.
    Remote(u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Internal = 1,
    Producer = 4,
}

pub(super) type Attribute<'a> = (&'static str, Value<'a>);

#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
}

/// The text of an error is cut here.
const ERROR_BYTES_MAX: usize = 1_024;
const STATUS_ERROR: u64 = 2;
/// In a span's flags, above those of W3C: it is known whether the parent is remote, and it is.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// Encoded spans, as a `ScopeSpans` contains them.
#[derive(Debug, Default)]
pub(super) struct Spans {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
    /// For one span, whose length comes before it.
    scratch: Vec<u8>,
}

impl Spans {
    pub(super) fn push(&mut self, span: &Span<'_>) {
        self.scratch.clear();
        write_span(&mut self.scratch, span);
        bytes(&mut self.bytes, 2, &self.scratch);
        self.count += 1;
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.count += other.count;
    }
}

/// A `Resource`: what all spans of this process have in common.
pub(super) fn resource(attributes: &[Attribute<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    write_attributes(&mut out, 1, attributes);
    out
}

/// The body of a request: an `ExportTraceServiceRequest`.
pub(super) fn request(resource: &[u8], spans: &Spans) -> Vec<u8> {
    let mut scope = Vec::new();
    bytes(&mut scope, 1, b"pillarbox");
    bytes(&mut scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
    let scope_spans = field_length(scope.len()) + spans.bytes.len();
    let resource_spans = field_length(resource.len()) + field_length(scope_spans);
    let mut body = Vec::with_capacity(field_length(resource_spans));
    length(&mut body, 1, resource_spans);
    bytes(&mut body, 1, resource);
    length(&mut body, 2, scope_spans);
    bytes(&mut body, 1, &scope);
    body.extend_from_slice(&spans.bytes);
    body
}

fn write_span(out: &mut Vec<u8>, span: &Span<'_>) {
    let (parent, remote) = match span.parent {
        Parent::None => (None, false),
        Parent::Local(id) => (Some(id), false),
        Parent::Remote(id) => (Some(id), true),
    };
    bytes(out, 1, &span.trace.to_be_bytes());
    bytes(out, 2, &span.id.to_be_bytes());
    if !span.state.is_empty() {
        bytes(out, 3, span.state.as_bytes());
    }
    if let Some(parent) = parent {
        bytes(out, 4, &parent.to_be_bytes());
    }
    let [first, second] = span.name;
    length(out, 5, first.len() + second.len());
    out.extend_from_slice(first.as_bytes());
    out.extend_from_slice(second.as_bytes());
    number(out, 6, span.kind as u64);
    tag(out, 7, FIXED_64);
    out.extend_from_slice(&span.start.to_le_bytes());
    tag(out, 8, FIXED_64);
    out.extend_from_slice(&span.end.max(span.start).to_le_bytes());
    write_attributes(out, 9, span.attributes);
    if let Some((name, attributes)) = span.event {
        let mut event = Vec::new();
        tag(&mut event, 1, FIXED_64);
        event.extend_from_slice(&span.end.to_le_bytes());
        bytes(&mut event, 2, name.as_bytes());
        write_attributes(&mut event, 3, attributes);
        bytes(out, 11, &event);
    }
    if let Some(error) = span.error {
        let mut status = Vec::new();
        bytes(&mut status, 2, cut(error).as_bytes());
        number(&mut status, 3, STATUS_ERROR);
        bytes(out, 15, &status);
    }
    let remote = if remote { IS_REMOTE } else { 0 };
    tag(out, 16, FIXED_32);
    out.extend_from_slice(&(u32::from(span.flags) | HAS_IS_REMOTE | remote).to_le_bytes());
}

fn cut(error: &str) -> &str {
    let mut end = error.len().min(ERROR_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}

/// `KeyValue`s with an `AnyValue` each. Their lengths are known before they are written.
fn write_attributes(out: &mut Vec<u8>, field: u32, attributes: &[Attribute<'_>]) {
    for (name, value) in attributes {
        let value_length = match value {
            Value::Text(text) => field_length(text.len()),
            Value::Number(n) => 1 + varint_length(*n),
        };
        length(out, field, field_length(name.len()) + field_length(value_length));
        bytes(out, 1, name.as_bytes());
        length(out, 2, value_length);
        match value {
            Value::Text(text) => bytes(out, 1, text.as_bytes()),
            Value::Number(n) => number(out, 3, *n),
        }
    }
}

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

fn tag(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

fn number(out: &mut Vec<u8>, field: u32, n: u64) {
    tag(out, field, VARINT);
    varint(out, n);
}

fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    length(out, field, value.len());
    out.extend_from_slice(value);
}

/// The beginning of a field of this length.
fn length(out: &mut Vec<u8>, field: u32, length: usize) {
    tag(out, field, LENGTH_DELIMITED);
    varint(out, length as u64);
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A field with a length, of a number below 16: its tag is one byte.
fn field_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

fn varint_length(n: u64) -> usize {
    let bits = u64::BITS - (n | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{
        collector::trace::v1::ExportTraceServiceRequest,
        common::v1::{KeyValue, any_value::Value as AnyValue},
    };
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn read(attributes: &[KeyValue]) -> Vec<(&str, String)> {
        let text = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
            AnyValue::StringValue(text) => text,
            AnyValue::IntValue(n) => n.to_string(),
            other => panic!("{other:?}"),
        };
        attributes
            .iter()
            .map(|attribute| (attribute.key.as_str(), text(attribute)))
            .collect()
    }

    fn span<'a>(name: &'a str, attributes: &'a [Attribute<'a>]) -> Span<'a> {
        Span {
            trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c,
            id: 0xb7ad_6b71_6920_3331,
            parent: Parent::Remote(7),
            flags: 1,
            state: "a=b",
            name: ["publish ", name],
            kind: Kind::Producer,
            start: 5,
            end: 9,
            attributes,
            event: Some(("dead letter", attributes)),
            error: Some("refused"),
        }
    }

    #[test]
    fn the_published_format_reads_every_field() {
        let long = "x".repeat(300);
        let attributes = [
            ("messaging.system", Value::Text("nats")),
            ("long", Value::Text(&long)),
            ("attempt", Value::Number(300)),
        ];
        let mut spans = Spans::default();
        spans.push(&span("a", &attributes));
        let plain = Span {
            parent: Parent::None,
            event: None,
            error: None,
            state: "",
            end: 1,
            ..span("b", &[])
        };
        spans.push(&plain);
        let resource = resource(&[("service.name", Value::Text("relay"))]);
        let body = request(&resource, &spans);

        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        assert_eq!(request.encoded_len(), body.len());
        let [of_resource] = &request.resource_spans[..] else {
            panic!()
        };
        let attributes = &of_resource.resource.as_ref().unwrap().attributes;
        assert_eq!(read(attributes), [("service.name", "relay".to_owned())]);
        let [of_scope] = &of_resource.scope_spans[..] else {
            panic!()
        };
        assert_eq!(of_scope.scope.as_ref().unwrap().name, "pillarbox");
        let [first, second] = &of_scope.spans[..] else {
            panic!()
        };
        assert_eq!(
            first.trace_id,
            0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes()
        );
        assert_eq!(first.span_id, 0xb7ad_6b71_6920_3331_u64.to_be_bytes());
        assert_eq!(first.parent_span_id, 7_u64.to_be_bytes());
        assert_eq!(
            (&*first.name, first.kind, &*first.trace_state),
            ("publish a", 4, "a=b")
        );
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (5, 9));
        assert_eq!(first.flags, 0x301);
        let expected = [
            ("messaging.system", "nats".to_owned()),
            ("long", long.clone()),
            ("attempt", "300".to_owned()),
        ];
        assert_eq!(read(&first.attributes), expected);
        assert_eq!(
            (&*first.events[0].name, first.events[0].time_unix_nano),
            ("dead letter", 9)
        );
        assert_eq!(read(&first.events[0].attributes), expected);
        let status = first.status.clone().unwrap();
        assert_eq!((status.code, &*status.message), (2, "refused"));
        assert_eq!((second.parent_span_id.len(), second.flags), (0, 0x101));
        assert!(second.status.is_none() && second.events.is_empty());
        assert_eq!(second.end_time_unix_nano, 5, "a clock that went back");
    }

    #[test]
    fn a_long_error_is_cut_between_two_characters() {
        let error = "ä".repeat(ERROR_BYTES_MAX);
        let mut spans = Spans::default();
        let span = Span {
            error: Some(&error),
            ..span("a", &[])
        };
        spans.push(&span);
        let request = ExportTraceServiceRequest::decode(&*request(&[], &spans)).unwrap();
        let status = request.resource_spans[0].scope_spans[0].spans[0]
            .status
            .clone()
            .unwrap();
        assert_eq!(status.message, "ä".repeat(ERROR_BYTES_MAX / 2));
    }

    proptest! {
        #[test]
        fn a_length_is_the_number_of_bytes(n: u64) {
            let mut out = Vec::new();
            varint(&mut out, n);
            prop_assert_eq!(out.len(), varint_length(n));
        }

        #[test]
        fn any_text_reads_back(name in "(?s).{0,200}", text in "(?s).{0,200}", n in 0..=i64::MAX as u64) {
            let attributes = [("text", Value::Text(&text)), ("number", Value::Number(n))];
            let mut spans = Spans::default();
            spans.push(&span(&name, &attributes));
            let request = ExportTraceServiceRequest::decode(&*request(&[], &spans)).unwrap();
            let span = &request.resource_spans[0].scope_spans[0].spans[0];
            prop_assert_eq!(&span.name, &format!("publish {name}"));
            prop_assert_eq!(read(&span.attributes), [("text", text.clone()), ("number", n.to_string())]);
        }
    }
}
