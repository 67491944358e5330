//! What this process has used so far, from `/proc/self`.

use serde::Serialize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Usage {
    /// Processor time, user and system together.
    pub cpu_seconds: Option<f64>,
    pub peak_bytes: Option<u64>,
}

/// Both are `None` where the system has no `/proc`.
pub(crate) fn usage() -> Usage {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/{name}")).ok();
    Usage {
        cpu_seconds: read("stat").and_then(|stat| cpu_seconds(&stat)),
        peak_bytes: read("status").and_then(|status| peak_bytes(&status)),
    }
}

/// Processor time of another process so far.
#[cfg(feature = "bench")]
pub(crate) fn cpu_seconds_of(pid: u32) -> Option<f64> {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| cpu_seconds(&stat))
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field is the program's name in parentheses and may contain anything; utime and stime are
    // fields 14 and 15. The kernel reports them to every program in hundredths of a second, whatever its own
    // clock.
    const TICKS_PER_SECOND: f64 = 100.0;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / TICKS_PER_SECOND)
}

fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_strange_name_is_still_measured() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(
            peak_bytes("VmPeak:\t 9 kB\nVmHWM:\t  2048 kB\n"),
            Some(2 * 1024 * 1024)
        );
    }
}
