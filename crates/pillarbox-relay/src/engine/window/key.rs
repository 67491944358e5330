//! Keys are known to the window by their hash.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::event::Lane;

/// A key within its lane. Two keys with the same hash would only wait for each other.
pub(super) type KeyId = (Lane, u64);

/// A hasher that does not hash the key's hash again. SipHash took 2 % of a relay's time while it drained a full outbox.
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
