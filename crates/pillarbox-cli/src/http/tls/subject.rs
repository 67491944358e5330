//! The common name of a client's certificate. TLS has verified the certificate before.

use rustls::pki_types::CertificateDer;

use crate::http::access::names;

/// The object identifier 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;

/// The last common name of the subject: the most specific one. `None` if there is none that can be read.
pub(in crate::http) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    in_subject(certificate.subject())
}

/// A name is a list of sets of pairs: an object identifier and a text.
fn in_subject(mut sets: &[u8]) -> Option<String> {
    let mut name = None;
    while let Some((SET, mut pairs, rest)) = next(sets) {
        sets = rest;
        while let Some((SEQUENCE, pair, rest)) = next(pairs) {
            pairs = rest;
            let Some((OBJECT_IDENTIFIER, COMMON_NAME, value)) = next(pair) else {
                continue;
            };
            if let Some((UTF8 | PRINTABLE, text, _)) = next(value) {
                let text = std::str::from_utf8(text).ok();
                name = text.filter(|text| names::is_plain(text)).map(str::to_owned);
            }
        }
    }
    name
}

/// The tag and the contents of the first DER value, and what follows it.
fn next(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // The number of bytes of the length. A name needs no more than two.
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => (
            usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])),
            &rest[2..],
        ),
        _ => return None,
    };
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let length = contents.len();
        let length = match length {
            0..=0x7f => vec![length as u8],
            _ => vec![0x82, (length >> 8) as u8, length as u8],
        };
        [&[tag], length.as_slice(), contents].concat()
    }

    fn part(id: &[u8], tag: u8, text: &str) -> Vec<u8> {
        let pair = [der(OBJECT_IDENTIFIER, id), der(tag, text.as_bytes())].concat();
        der(SET, &der(SEQUENCE, &pair))
    }

    #[test]
    fn the_most_specific_common_name_is_the_name() {
        let organisation = part(&[0x55, 0x04, 0x0a], UTF8, "Example");
        let subject = [
            organisation.clone(),
            part(COMMON_NAME, PRINTABLE, "people"),
            part(COMMON_NAME, UTF8, "Zoë"),
        ];
        assert_eq!(in_subject(&subject.concat()).as_deref(), Some("Zoë"));
        assert_eq!(in_subject(&organisation), None);
    }

    #[test]
    fn what_is_no_name_is_none_and_never_a_panic() {
        for text in ["", "a\nb", "a\u{202e}b", &"x".repeat(201)] {
            assert_eq!(in_subject(&part(COMMON_NAME, UTF8, text)), None, "{text:?}");
        }
        let whole = part(COMMON_NAME, UTF8, &"x".repeat(150));
        for end in 0..whole.len() {
            assert_eq!(in_subject(&whole[..end]), None);
        }
        for byte in 0..=255 {
            let _ = in_subject(&[SET, byte, byte, byte]);
            let _ = in_subject(&[SET, 3, SEQUENCE, byte, byte]);
        }
    }
}
