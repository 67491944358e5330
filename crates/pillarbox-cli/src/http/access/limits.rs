//! How many requests each caller may send. Callers have a bucket each that fills at a constant rate.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::config::Rate;

/// More callers than this at once share a bucket, so that memory stays bounded.
const BUCKETS_MAX: usize = 10_000;
const OTHERS: &str = "";
/// For each address, requests whose caller is not known.
pub(super) const REFUSED: Rate = Rate {
    per_second: 5,
    burst: 50,
};

pub(super) struct Limiter {
    rate: Rate,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    /// Requests that may come at once.
    left: f64,
    at: Instant,
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            rate,
            buckets: Mutex::default(),
        }
    }

    /// Counts a request. If there were too many, returns how long to wait.
    pub(super) fn take(&self, who: &str, now: Instant) -> Result<(), Duration> {
        let (per_second, burst) = (f64::from(self.rate.per_second), f64::from(self.rate.burst));
        let filled = |bucket: &Bucket| {
            let since = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.left + since * per_second).min(burst)
        };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(who) {
            // A full bucket is like none.
            buckets.retain(|_, bucket| filled(bucket) < burst);
        }
        let full = buckets.len() >= BUCKETS_MAX && !buckets.contains_key(who);
        let who = if full { OTHERS } else { who };
        let left = buckets.get(who).map_or(burst, filled);
        let taken = if left >= 1.0 { left - 1.0 } else { left };
        let bucket = Bucket { left: taken, at: now };
        buckets.insert(who.to_owned(), bucket);
        match left >= 1.0 {
            true => Ok(()),
            false => Err(Duration::from_secs_f64((1.0 - left) / per_second)),
        }
    }
}

/// The name of an address. A client of IPv6 has a whole network of them.
pub(super) fn network(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            match address.is_loopback() {
                true => address.to_string(),
                false => format!("{}/64", Ipv6Addr::from(network)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate {
        per_second: 2,
        burst: 3,
    };

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let (limiter, start) = (Limiter::new(RATE), Instant::now());
        for _ in 0..3 {
            assert_eq!(limiter.take("a", start), Ok(()));
        }
        assert_eq!(limiter.take("a", start), Err(Duration::from_millis(500)));
        assert_eq!(limiter.take("b", start), Ok(()), "each caller has its own");
        let later = start + Duration::from_millis(500);
        assert_eq!(limiter.take("a", later), Ok(()));
        assert!(
            limiter.take("a", later).is_err(),
            "a refused request costs nothing"
        );
        let much_later = start + Duration::from_secs(100);
        assert_eq!(
            (0..10).filter(|_| limiter.take("a", much_later).is_ok()).count(),
            3
        );
    }

    #[test]
    fn a_flood_of_callers_keeps_memory_bounded() {
        let (limiter, start) = (Limiter::new(RATE), Instant::now());
        let allowed = (0..2 * BUCKETS_MAX).filter(|n| limiter.take(&n.to_string(), start).is_ok());
        assert_eq!(allowed.count(), BUCKETS_MAX + 3, "the others share a bucket");
        assert!(limiter.buckets.lock().unwrap().len() <= BUCKETS_MAX + 1);
        let later = start + Duration::from_secs(2);
        assert_eq!(limiter.take("new", later), Ok(()), "full buckets make room");
        assert!(limiter.buckets.lock().unwrap().len() < 10);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_client() {
        let named = |address: &str| network(address.parse().unwrap());
        assert_eq!(named("10.0.0.1"), "10.0.0.1");
        assert_eq!(named("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(named("2001:db8::1"), named("2001:db8::2"));
        assert_ne!(named("2001:db8::1"), named("2001:db8:0:1::1"));
    }
}
