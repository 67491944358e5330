//! Mutations of a valid example.

use std::ops::Range;

use rand::RngExt;

use super::Fuzz;

/// Mutations never make an input larger than this.
const BYTES_MAX: usize = 200_000;

impl Fuzz {
    /// The example with one to four mutations; sometimes the example itself, or noise.
    pub fn mutated(&mut self, example: &[u8]) -> Vec<u8> {
        match self.below(40) {
            0 => return self.bytes(),
            1 => return example.to_vec(),
            _ => {}
        }
        let mut bytes = example.to_vec();
        for _ in 0..1 + self.below(4) {
            self.mutate(&mut bytes);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    /// As [`mutated`](Self::mutated), for text-only inputs.
    pub fn mutated_text(&mut self, example: &str) -> String {
        String::from_utf8_lossy(&self.mutated(example.as_bytes())).into_owned()
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        match self.below(14) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.rng.random(),
            2 => bytes.truncate(at),
            3 => {
                bytes.drain(self.part(bytes.len()));
            }
            4 => {
                let part = self.part(bytes.len());
                let copy = bytes[part].to_vec();
                splice(bytes, at..at, &copy);
            }
            5 => self.nest(bytes, at),
            6 | 7 => {
                let odd = self.odd();
                splice(bytes, at..at, odd.as_bytes());
            }
            8 | 9 => self.replace_a_word(bytes),
            10 | 11 => self.swap_words(bytes),
            12 => self.drop_a_line(bytes),
            _ => self.repeat_a_word(bytes),
        }
    }

    /// A short range within so many bytes.
    fn part(&mut self, len: usize) -> Range<usize> {
        let start = self.below(len + 1);
        start..(start + self.below(40)).min(len)
    }

    fn nest(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let (open, close) = self.pick(&[
            &("[", "]"),
            &("{\"a\":", "}"),
            &("{a: ", "}"),
            &("- ", ""),
            &("(", ")"),
        ]);
        let depth = if self.one_in(4) {
            1 + self.below(3_000)
        } else {
            1 + self.below(20)
        };
        let end = self.part(bytes.len() - at).end + at;
        splice(bytes, end..end, close.repeat(depth).as_bytes());
        splice(bytes, at..at, open.repeat(depth).as_bytes());
    }

    fn replace_a_word(&mut self, bytes: &mut Vec<u8>) {
        let words = words(bytes);
        if words.is_empty() {
            return;
        }
        let word = words[self.below(words.len())].clone();
        let is_number = bytes[word.clone()].iter().all(u8::is_ascii_digit);
        let by = match is_number || self.one_in(3) {
            true => self.number().to_owned(),
            false => self.text(),
        };
        splice(bytes, word, by.as_bytes());
    }

    fn swap_words(&mut self, bytes: &mut Vec<u8>) {
        let words = words(bytes);
        if words.len() < 2 {
            return;
        }
        let (one, other) = (self.below(words.len()), self.below(words.len()));
        let (first, second) = (words[one.min(other)].clone(), words[one.max(other)].clone());
        let (a, b) = (bytes[first.clone()].to_vec(), bytes[second.clone()].to_vec());
        splice(bytes, second, &a);
        splice(bytes, first, &b);
    }

    fn repeat_a_word(&mut self, bytes: &mut Vec<u8>) {
        let words = words(bytes);
        if words.is_empty() {
            return;
        }
        let word = words[self.below(words.len())].clone();
        let times = if self.one_in(10) {
            self.below(2_000)
        } else {
            self.below(4)
        };
        let many = bytes[word.clone()].repeat(times);
        splice(bytes, word, &many);
    }

    fn drop_a_line(&mut self, bytes: &mut Vec<u8>) {
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        lines.remove(self.below(lines.len()));
        *bytes = lines.join(&b'\n');
    }
}

fn splice(bytes: &mut Vec<u8>, at: Range<usize>, by: &[u8]) {
    if bytes.len() + by.len() <= BYTES_MAX {
        bytes.splice(at, by.iter().copied());
    }
}

/// Splits the text into runs of letters and digits, and runs of other characters.
fn words(bytes: &[u8]) -> Vec<Range<usize>> {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut words = Vec::new();
    let mut start = 0;
    for end in 1..=bytes.len() {
        if end == bytes.len() || in_word(bytes[end]) != in_word(bytes[start]) {
            words.push(start..end);
            start = end;
        }
    }
    words
}
