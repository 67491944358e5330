//! Keys as the window knows them: by their hash.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::event::Lane;

/// A key within its lane. Two keys with one hash would merely wait for each other.
pub(super) type KeyId = (Lane, u64);

/// A key's hash needs no hashing again: SipHash took a fiftieth of a relay's time in a drain.
#[derive(Default)]
pub(super) struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u8(*byte));
    }

    fn write_u8(&mut self, lane: u8) {
        self.0 = self.0.rotate_left(8) ^ u64::from(lane);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 ^= hash;
    }
}

pub(super) type KeyMap<V> = HashMap<KeyId, V, BuildHasherDefault<Hashed>>;
