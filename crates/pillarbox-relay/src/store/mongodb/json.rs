//! Writes a payload that was stored as a document as JSON text: numbers, strings and lists unchanged, and MongoDB's
//! own types in its relaxed extended JSON.

use mongodb::bson::{Bson, RawBsonRef};
use serde_json::json;

/// Deeper payloads are refused as events anyway. The limit bounds the stack.
const LEVELS_MAX: usize = 128;
/// From this year on, and before 1970, a date is written as a number.
const YEAR_10_000: i64 = 253_402_300_800_000;

pub(super) fn text(value: RawBsonRef<'_>) -> Result<Vec<u8>, String> {
    let value =
        Bson::try_from(value).map_err(|_| "the payload can't be read: the document is damaged".to_owned())?;
    let mut text = Vec::new();
    write(&value, &mut text, LEVELS_MAX)?;
    Ok(text)
}

/// Written piece by piece, so that fields keep their order.
fn write(value: &Bson, text: &mut Vec<u8>, levels: usize) -> Result<(), String> {
    let Some(levels) = levels.checked_sub(1) else {
        return Err(format!("the payload is nested deeper than {LEVELS_MAX} levels"));
    };
    match value {
        Bson::Null | Bson::Undefined => plain(&(), text),
        Bson::Boolean(truth) => plain(truth, text),
        Bson::Int32(number) => plain(number, text),
        Bson::Int64(number) => plain(number, text),
        Bson::Double(number) if number.is_finite() => plain(number, text),
        Bson::Double(number) => plain(&json!({ "$numberDouble": not_a_number(*number) }), text),
        Bson::String(value) => plain(value, text),
        Bson::DateTime(at) => match at.try_to_rfc3339_string() {
            Ok(readable) if (0..YEAR_10_000).contains(&at.timestamp_millis()) => {
                plain(&json!({ "$date": readable }), text)
            }
            _ => plain(
                &json!({ "$date": { "$numberLong": at.timestamp_millis().to_string() } }),
                text,
            ),
        },
        Bson::Array(values) => {
            text.push(b'[');
            for (n, value) in values.iter().enumerate() {
                if n > 0 {
                    text.push(b',');
                }
                write(value, text, levels)?;
            }
            text.push(b']');
            Ok(())
        }
        Bson::Document(fields) => {
            text.push(b'{');
            for (n, (name, value)) in fields.iter().enumerate() {
                if n > 0 {
                    text.push(b',');
                }
                plain(name, text)?;
                text.push(b':');
                write(value, text, levels)?;
            }
            text.push(b'}');
            Ok(())
        }
        // The other types have only one form.
        other => plain(other, text),
    }
}

fn plain<T: serde::Serialize + ?Sized>(value: &T, text: &mut Vec<u8>) -> Result<(), String> {
    serde_json::to_writer(text, value)
        .map_err(|_| "the payload has a value that JSON can't represent".to_owned())
}

fn not_a_number(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, RawDocumentBuf, Uuid, doc};

    use super::*;

    fn of(value: impl Into<Bson>) -> String {
        let document = RawDocumentBuf::try_from(&doc! { "v": value }).unwrap();
        String::from_utf8(text(document.get("v").unwrap().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn a_document_is_relaxed_extended_json() {
        let value = doc! {
            "b": 1, "a": 9_007_199_254_740_993_i64, "f": 0.5, "t": true, "n": Bson::Null, "s": "größe",
            "at": DateTime::from_millis(1_700_000_000_123), "far": DateTime::from_millis(-1),
            "list": [1, { "x": "y" }], "inf": f64::INFINITY,
        };
        assert_eq!(
            of(value),
            r#"{"b":1,"a":9007199254740993,"f":0.5,"t":true,"n":null,"s":"größe","#.to_owned()
                + r#""at":{"$date":"2023-11-14T22:13:20.123Z"},"far":{"$date":{"$numberLong":"-1"}},"#
                + r#""list":[1,{"x":"y"}],"inf":{"$numberDouble":"Infinity"}}"#
        );
        assert!(of(Uuid::from_bytes([7; 16])).contains("$"));
    }

    #[test]
    fn one_that_is_too_deep_is_refused() {
        let mut value = Bson::from(1);
        for _ in 0..150 {
            value = Bson::from(doc! { "v": value });
        }
        let document = RawDocumentBuf::try_from(&doc! { "v": value }).unwrap();
        assert!(
            text(document.get("v").unwrap().unwrap())
                .unwrap_err()
                .contains("128")
        );
    }
}
