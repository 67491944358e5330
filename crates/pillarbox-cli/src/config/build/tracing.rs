//! Whether the relay's spans are exported, and where to.

use pillarbox_relay::{
    driver,
    trace::{Options, TraceError},
};

use super::{NamedSink, Problems, schema};

const HEADERS_MAX: usize = 20;
const SERVICE_NAME_CHARS_MAX: usize = 255;

/// `None`: there are no traces. The messages never show the address or the value of a header.
pub(super) fn options(
    outbox: &schema::Outbox,
    sinks: &[NamedSink],
    relay: &str,
    problems: &mut Problems,
) -> Option<Options> {
    let given = &outbox.monitoring.tracing;
    let key = |name: &str| format!("outbox.monitoring.tracing.{name}");
    let before = problems.len();
    if !(0.0..=1.0).contains(&given.sample_ratio) {
        let text = "it must be between 0 and 1: 0.1 means every tenth event";
        problems.push((key("sample_ratio"), text.into()));
    }
    let name = given.service_name.chars().count();
    if !(1..=SERVICE_NAME_CHARS_MAX).contains(&name) {
        let text = format!("a name has 1 to {SERVICE_NAME_CHARS_MAX} characters");
        problems.push((key("service_name"), text));
    }
    if given.headers.len() > HEADERS_MAX {
        problems.push((key("headers"), format!("the maximum is {HEADERS_MAX} headers")));
    }
    let endpoint = given.otlp_endpoint.as_deref()?;
    let mut options = match Options::new(endpoint, &given.headers) {
        Ok(options) => options,
        Err(error) => {
            let key = match error {
                TraceError::Header(_) => key("headers"),
                _ => key("otlp_endpoint"),
            };
            problems.push((key, error.to_string()));
            return None;
        }
    };
    options.service_name.clone_from(&given.service_name);
    options.sample_ratio = given.sample_ratio;
    relay.clone_into(&mut options.relay);
    let systems = sinks.iter().filter_map(|sink| {
        let driver = driver::sink(&sink.options.url)?;
        Some((sink.name.clone(), driver.about.kind))
    });
    options.systems = systems.collect();
    (problems.len() == before).then_some(options)
}
