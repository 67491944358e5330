//! The page at `/`.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{Html, IntoResponse},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::digest::{SHA256, digest};

const PAGE: &str = include_str!("page.html");

/// The only script that a browser may run is that of the page itself, so text that gets into the page can do nothing.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let script = STANDARD.encode(digest(&SHA256, script().as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    );
    // It consists of ASCII. A browser runs no script with the other policy.
    HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
});

/// What is between the tags, to the byte.
fn script() -> &'static str {
    let (_, after) = PAGE.split_once("<script>").unwrap_or_default();
    after.split_once("</script>").unwrap_or_default().0
}

/// A page that shows the state and the latest events
#[utoipa::path(get, path = "/", security(()), responses((status = 200, description = "The page", content_type = "text/html", body = String)))]
pub(super) async fn handler() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, POLICY.clone())], Html(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_the_script_of_the_page_and_no_other() {
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(script().contains("\"use strict\""));
        // An event handler in an attribute would need 'unsafe-inline'.
        assert!(!PAGE.contains(" onclick=") && !PAGE.contains(" onload=") && !PAGE.contains("javascript:"));
        let policy = POLICY.to_str().unwrap();
        assert!(
            policy.contains("script-src 'sha256-") && !policy.contains("script-src 'unsafe"),
            "{policy}"
        );
    }
}
