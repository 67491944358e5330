//! The lane of a key. Relays lease lanes: only one relay publishes a lane at a time.

/// The number of lanes. The lane is stored on every row, so this never changes.
pub const LANES: u16 = 256;

/// The lane of a key in the stores where the application computes it (SQLite, MongoDB, memory). PostgreSQL
/// computes its own in a generated column, so that a plain `insert` from any language gets one. The two need
/// not agree: a row never moves between stores with its lane.
pub fn lane_of(key: &str) -> u8 {
    let hash = key_hash(key);
    // The low bits of FNV are the best ones, and folding adds the high ones.
    (hash ^ (hash >> 32)) as u8
}

/// FNV-1a, 64 bits: it will never change, needs no dependency and is fast on short keys.
pub fn key_hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_never_changes() {
        // Stored rows rely on these values.
        assert_eq!(key_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(key_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(
            [lane_of("order-1"), lane_of("order-2"), lane_of("")],
            [242, 203, 193]
        );
    }

    #[test]
    fn keys_spread_over_all_lanes() {
        let mut count = [0u32; LANES as usize];
        for n in 0..25_600 {
            count[usize::from(lane_of(&format!("key-{n}")))] += 1;
        }
        assert!(count.iter().all(|&n| (40..200).contains(&n)), "{count:?}");
    }
}
