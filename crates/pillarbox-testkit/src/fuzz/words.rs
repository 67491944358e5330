//! Unusual texts, numbers and JSON.

use rand::RngExt;

use super::Fuzz;

/// Texts that have broken programs before.
const ODD: &[&str] = &[
    "",
    " ",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{a0}",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "\u{ffff}",
    "\u{10ffff}",
    "e\u{301}",
    "👩‍👩‍👧",
    "ß",
    "İ",
    "Ω≈ç√",
    "\\",
    "\\u0000",
    "\\ud800",
    "'",
    "\"",
    "`",
    "--",
    ";",
    "%s%n",
    "${x}",
    "$1",
    "{0}",
    "../..",
    "*",
    ">",
    ".",
    "..",
    "a.*.>",
    "null",
    "true",
    "NaN",
    "-inf",
    "~",
    "!!binary",
    "&a",
    "*a",
    "<<",
    "0x10",
    "1e999",
    "'; drop table outbox_events; --",
    "infinity",
    "1970-01-01",
    "9999-12-31T23:59:59Z",
    "-262144-01-01",
    "00000000-0000-0000-0000-000000000000",
];

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "255",
    "256",
    "32767",
    "32768",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e309",
    "-1e400",
    "5e-324",
    "0.1",
    "1.0",
    "00",
    "1_000",
    "123456789012345678901234567890123456789012345678901234567890",
];

impl Fuzz {
    /// A short unusual text, sometimes a long one.
    pub fn text(&mut self) -> String {
        match self.below(20) {
            0 => self.odd().repeat(1 + self.below(500)),
            1 => "x".repeat(self.below(5_000)),
            2..6 => self.odd().to_owned(),
            6 => self.number().to_owned(),
            _ => (0..self.below(8)).map(|_| self.piece()).collect(),
        }
    }

    pub fn odd(&mut self) -> &'static str {
        self.pick(ODD)
    }

    /// As text, because the number need not fit any type.
    pub fn number(&mut self) -> &'static str {
        self.pick(NUMBERS)
    }

    pub fn integer(&mut self) -> i64 {
        match self.below(4) {
            0 => self.rng.random(),
            1 => self.below(100) as i64 - 10,
            _ => self.number().parse().unwrap_or(i64::MAX),
        }
    }

    pub fn float(&mut self) -> f64 {
        match self.below(4) {
            0 => f64::from_bits(self.rng.random()),
            1 => self.below(100) as f64 / 10.0,
            _ => self.number().parse().unwrap_or(f64::NAN),
        }
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(200)).map(|_| self.rng.random()).collect()
    }

    /// JSON, or almost JSON, of any depth.
    pub fn json(&mut self) -> String {
        if self.one_in(50) {
            let depth = 1 + self.below(3_000);
            let (open, close) = self.pick(&[&("[", "]"), &("{\"a\":", "}")]);
            return open.repeat(depth) + "1" + &close.repeat(depth);
        }
        self.json_within(3)
    }

    fn json_within(&mut self, depth: usize) -> String {
        let kinds = if depth == 0 { 4 } else { 6 };
        match self.below(kinds) {
            0 => self.number().to_owned(),
            1 => self.pick(&["null", "true", "false"]).to_owned(),
            2 | 3 => quoted(&self.text()),
            4 => {
                let items: Vec<_> = (0..self.below(4)).map(|_| self.json_within(depth - 1)).collect();
                format!("[{}]", items.join(","))
            }
            _ => {
                let entries: Vec<_> = (0..self.below(4))
                    .map(|_| format!("{}:{}", quoted(&self.text()), self.json_within(depth - 1)))
                    .collect();
                format!("{{{}}}", entries.join(","))
            }
        }
    }

    fn piece(&mut self) -> String {
        match self.below(3) {
            0 => self.odd().to_owned(),
            1 => char::from_u32(self.rng.random_range(0..0x11_0000))
                .unwrap_or('\u{fffd}')
                .to_string(),
            _ => char::from(self.rng.random_range(b' '..=b'~')).to_string(),
        }
    }
}

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
