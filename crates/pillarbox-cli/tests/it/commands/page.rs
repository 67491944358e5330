//! The page at `/`, in headless Chromium.

use serde_json::json;

use super::{
    dead_http::{Served, enqueue},
    http_access::new_token,
    *,
};

/// Opens the page without a token, asks until the relay limits it, and then gives the token.
const STORY: &str = r##"
import os, sys
from playwright.sync_api import sync_playwright
address, chromium = sys.argv[1:]
flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
with sync_playwright() as playwright, playwright.chromium.launch(executable_path=chromium, args=flags) as browser:
    page = browser.new_page()
    page.set_default_timeout(60_000)
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
    page.goto(f"http://{address}/")
    form = page.locator("#login")
    form.wait_for(state="visible")
    hidden = page.evaluate("""async () => {
        for (;;) {
            const answer = await ask("/v1/status");
            if (answer.status === 429) return at("login").hidden;
        }
    }""")
    assert not hidden, "the form has gone"
    page.fill("#token", os.environ["TOKEN"])
    page.click("#login button")
    page.get_by_text("running", exact=True).wait_for()
    form.wait_for(state="hidden")
    page.get_by_text("kept.x", exact=True).wait_for()
    # Another script does not run.
    page.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.injected = true";
        document.body.append(script);
    }""")
    assert page.evaluate("() => window.injected") is None
    assert len(errors) == 1 and "Content Security Policy" in errors[0], errors
    print("the page works")
"##;

#[test]
fn the_page_runs_its_own_script_only_and_keeps_the_form_while_it_is_limited() {
    let Some((chromium, python)) = servers::browser() else {
        return;
    };
    let folder = migrated();
    let (token, entry) = new_token(folder.path(), &["--name", "page", "--role", "read"]);
    let config = json!({ "outbox": {
        "sinks": { "out": { "url": "http-stream:" } },
        "http": { "listen": "127.0.0.1:0", "tokens": [entry] },
    } });
    std::fs::write(folder.path().join("pillarbox.yaml"), config.to_string()).unwrap();
    enqueue(folder.path(), &line(1).replace("t.x", "kept.x"));
    let served = Served::start(folder.path(), &["run"]);
    let output = Command::new(python)
        .args(["-c", STORY, &served.address])
        .arg(chromium)
        .env("TOKEN", token)
        .output()
        .unwrap();
    assert!(
        stdout(&output).contains("the page works"),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
}
