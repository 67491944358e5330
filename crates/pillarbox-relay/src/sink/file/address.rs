//! `file:path?rotate_bytes=N&keep=N`

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::sink::{SinkError, SinkErrorKind};

/// Where to write, and when to start a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub path: PathBuf,
    /// A file of this size is rotated before the next batch.
    pub rotate_bytes: u64,
    /// How many rotated files are kept. `None`: all.
    pub keep: Option<usize>,
}

const ROTATE_BYTES: u64 = 64 * 1024 * 1024;
const ROTATE_BYTES_MIN: u64 = 1_024;
const KEEP_MAX: usize = 1_000_000;

impl Address {
    pub fn parse(url: &str) -> Result<Self, SinkError> {
        let rest = url.strip_prefix("file:").unwrap_or(url);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        // `file:///var/x` and `file:/var/x` are the same. A host is refused.
        let path = match path.strip_prefix("//") {
            None => path,
            Some(path) if path.starts_with('/') => path,
            Some(_) => return Err(wrong("`file://` needs a third `/`: a file has no host")),
        };
        let path = percent_decode_str(path)
            .decode_utf8()
            .map_err(|_| wrong("the path is not UTF-8"))?;
        if path.is_empty() || path.ends_with('/') {
            return Err(wrong(
                "name the file, as in file:/var/lib/pillarbox/events.ndjson",
            ));
        }
        let mut address = Self {
            path: PathBuf::from(path.as_ref()),
            rotate_bytes: ROTATE_BYTES,
            keep: None,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            match (name, value.parse::<u64>()) {
                ("rotate_bytes", Ok(bytes)) if bytes >= ROTATE_BYTES_MIN => address.rotate_bytes = bytes,
                ("rotate_bytes", _) => {
                    return Err(wrong(&format!(
                        "`rotate_bytes` must be a number of at least {ROTATE_BYTES_MIN}"
                    )));
                }
                ("keep", Ok(files)) if (1..=KEEP_MAX as u64).contains(&files) => {
                    address.keep = usize::try_from(files).ok();
                }
                ("keep", _) => return Err(wrong(&format!("`keep` must be a number from 1 to {KEEP_MAX}"))),
                _ => return Err(wrong("the options of a file are `rotate_bytes` and `keep`")),
            }
        }
        Ok(address)
    }
}

fn wrong(message: &str) -> SinkError {
    SinkError::new(SinkErrorKind::Misconfigured, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_file_and_its_limits() {
        let parsed = Address::parse("file:///var/a%20b.ndjson?rotate_bytes=4096&keep=3").unwrap();
        assert_eq!(
            parsed,
            Address {
                path: "/var/a b.ndjson".into(),
                rotate_bytes: 4096,
                keep: Some(3),
            }
        );
        for (url, path) in [("file:x/y", "x/y"), ("file:/x", "/x"), ("file:///x", "/x")] {
            assert_eq!(Address::parse(url).unwrap().path, PathBuf::from(path), "{url}");
        }
    }

    #[test]
    fn a_bad_address_of_a_file_is_refused() {
        for url in [
            "file:",
            "file:a/",
            "file://host/a",
            "file:a?keep=0",
            "file:a?rotate_bytes=12",
            "file:a?kep=3",
            "file:%ff",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
    }
}
