//! The text format of Prometheus, made from OpenMetrics.

use std::collections::HashSet;

/// In OpenMetrics the suffix `_total` belongs to the sample of a counter, in the older format to its name.
pub(super) fn plain(open_metrics: &str) -> String {
    let counters: HashSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(open_metrics.len() + counters.len() * 16);
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF"), ..) => continue,
            (Some("#"), Some(keyword), Some(name), Some(rest)) if counters.contains(name) => {
                out.push_str(&format!("# {keyword} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn a_counter_gets_its_suffix_and_nothing_else_changes() {
        let open = "# HELP o_dead Dead.\n# TYPE o_dead counter\no_dead_total{reason=\"x y\"} 1\n\
                    # HELP o_lanes Lanes.\n# TYPE o_lanes gauge\no_lanes 3\n# EOF\n";
        assert_eq!(
            plain(open),
            "# HELP o_dead_total Dead.\n# TYPE o_dead_total counter\no_dead_total{reason=\"x y\"} 1\n\
             # HELP o_lanes Lanes.\n# TYPE o_lanes gauge\no_lanes 3\n"
        );
    }
}
