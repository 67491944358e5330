//! What explains that a message is not in its stream.

use serde_json::Value;

use crate::sink::audit::Fate;

/// A stream's limits and its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    first: u64,
    last: u64,
    /// Its limits remove the oldest messages.
    drops_oldest: bool,
    /// They can also remove a message between others.
    drops_any: bool,
}

impl Extent {
    pub(super) fn read(info: &Value) -> Self {
        let (config, state) = (&info["config"], &info["state"]);
        let sequence = |name: &str| state[name].as_u64().unwrap_or_default();
        // Without a limit, a number is 0 or -1.
        let limited = |name: &str| config[name].as_i64().is_some_and(|limit| limit > 0);
        let retention = config["retention"].as_str().unwrap_or("limits");
        // A publisher can remove all earlier messages of a subject with a roll-up, and set the time to live of one.
        let allowed = |name: &str| config[name] == true;
        let drops_any = limited("max_msgs_per_subject")
            || retention != "limits"
            || allowed("allow_msg_ttl")
            || allowed("allow_rollup_hdrs");
        Self {
            first: sequence("first_seq"),
            last: sequence("last_seq"),
            drops_oldest: drops_any || ["max_age", "max_msgs", "max_bytes"].into_iter().any(limited),
            drops_any,
        }
    }
}

/// What became of an event that is not at its place. A stream that was created again can't be told from one that has
/// lost its data.
pub(super) fn gone(seq: u64, extent: Option<Extent>) -> Fate {
    match extent {
        Some(extent) if seq > extent.last => Fate::Lost,
        Some(extent) if extent.drops_any => Fate::Expired,
        Some(extent) if extent.drops_oldest && seq < extent.first => Fate::Expired,
        _ => Fate::Lost,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn extent(config: Value) -> Option<Extent> {
        let state = json!({ "first_seq": 10, "last_seq": 20 });
        Some(Extent::read(&json!({ "config": config, "state": state })))
    }

    #[test]
    fn what_a_limit_explains_has_expired_and_the_rest_is_lost() {
        let none = extent(json!({ "retention": "limits", "max_age": 0, "max_msgs": -1, "max_bytes": -1 }));
        for seq in [5, 15, 25] {
            assert_eq!(gone(seq, none), Fate::Lost, "{seq}");
        }
        for limit in ["max_age", "max_msgs", "max_bytes"] {
            let limited = extent(json!({ "retention": "limits", limit: 1_000 }));
            let fates = [5, 15, 25].map(|seq| gone(seq, limited));
            assert_eq!(fates, [Fate::Expired, Fate::Lost, Fate::Lost], "{limit}");
        }
        for config in [
            json!({ "max_msgs_per_subject": 1 }),
            json!({ "retention": "workqueue" }),
            json!({ "retention": "interest" }),
            json!({ "allow_msg_ttl": true }),
            json!({ "allow_rollup_hdrs": true }),
        ] {
            let fates = [5, 15, 25].map(|seq| gone(seq, extent(config.clone())));
            assert_eq!(fates, [Fate::Expired, Fate::Expired, Fate::Lost], "{config}");
        }
        assert_eq!(gone(15, None), Fate::Lost, "the stream is gone");
    }
}
