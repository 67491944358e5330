//! `/v1/scale`, for an autoscaler.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State, http::StatusCode};
use pillarbox_relay::{
    engine::progress::Drain,
    health::SAMPLE_AGE_MAX,
    scale::{Scale, ScaleLimits, scale},
    store::Sample,
};

use super::{
    Api,
    problem::{ErrorBody, Problem},
};

const UNKNOWN: &str = "the relay has not looked at the outbox yet";

/// How many relays the outbox wants
#[utoipa::path(
    get,
    path = "/v1/scale",
    security(("token" = ["read"])),
    responses(
        (status = 200, description = "For an autoscaler", body = Scale),
        (status = 503, description = "The relay has not looked at the outbox for a minute", body = ErrorBody),
    )
)]
pub(super) async fn handler(State(api): State<Arc<Api>>) -> Result<Json<Scale>, Problem> {
    let progress = api.relay.get().map(|relay| &relay.progress);
    let progress = progress.ok_or_else(|| unavailable(UNKNOWN))?;
    wanted(progress.sample(), progress.drain(), &api.scale_limits).map(Json)
}

/// An old sample would keep the number of relays as it was, whatever happens meanwhile.
fn wanted(sample: Option<(Sample, Duration)>, drain: Drain, limits: &ScaleLimits) -> Result<Scale, Problem> {
    match &sample {
        Some((_, age)) if *age > SAMPLE_AGE_MAX => Err(unavailable(&format!(
            "the relay has not been able to look at the outbox for {} seconds: /healthz says why",
            age.as_secs()
        ))),
        _ => scale(sample.as_ref(), drain, limits).ok_or_else(|| unavailable(UNKNOWN)),
    }
}

fn unavailable(text: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_a_minute_ago_is_too_old_to_answer_with() {
        let of_age = |age| {
            let sample = Sample {
                pending: 25_000,
                ..Sample::default()
            };
            let drain = Drain {
                delivered_per_second: 1.0,
            };
            wanted(Some((sample, age)), drain, &ScaleLimits::default())
        };
        assert_eq!(of_age(SAMPLE_AGE_MAX).unwrap().desired_relays, 3);
        let old = of_age(SAMPLE_AGE_MAX + Duration::from_secs(1)).unwrap_err();
        assert_eq!(old.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(format!("{old:?}").contains("61 seconds"), "{old:?}");
    }
}
