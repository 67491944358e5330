//! Notices of dead letters, and reprocessing.

use super::*;

fn webhook(rest: &str) -> String {
    format!("outbox:\n  dlq:\n    notifications:\n      webhooks:\n        - {{ {rest} }}\n")
}

#[test]
fn a_webhook_that_cant_work_is_refused_without_being_shown() {
    let good = "secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    for (rest, part) in [
        (format!("url: 'ftp://h/geheim', {good}"), "use https://"),
        (format!("url: 'geheim', {good}"), "use https://"),
        ("url: 'https://h/geheim'".to_owned(), "give a `secret`"),
        (
            "url: 'https://h/geheim', secret: geheim".to_owned(),
            "begins with `whsec_`",
        ),
        (
            "url: 'https://h/x', secrets: [whsec_Z2VoZWlt]".to_owned(),
            "needs 24 to 64",
        ),
        (
            format!("url: 'https://h/geheim', timeout_seconds: 601, {good}"),
            "the maximum is 600",
        ),
    ] {
        let text = problems(&webhook(&rest));
        assert!(text.contains(part) && text.starts_with("a.yaml:5: "), "{text}");
        assert!(!text.contains("geheim") && !text.contains("Z2Vo"), "{text}");
    }
    let text = problems("outbox:\n  dlq:\n    notifications: { commands: [{ command: [] }] }\n");
    assert!(text.contains("name the program"), "{text}");
}

#[test]
fn a_webhooks_address_and_secrets_are_never_shown() {
    let rest = "url: 'https://geheim@h:8443/geheim?geheim', secret: whsec_geheim, secrets: [whsec_geheim]";
    let (shown, value) = in_force(&load_text(&webhook(rest), &[]).unwrap().config).unwrap();
    assert!(
        !shown.contains("geheim") && !value.to_string().contains("geheim"),
        "{shown}"
    );
    assert!(shown.contains("https://h:8443/***"), "{shown}");
}

#[test]
fn notices_are_off_by_default() {
    let channels = |text: &str| settings_of(text).unwrap().notices.channels.len();
    let rest = "url: 'https://h/x', secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let off = webhook(rest);
    assert_eq!(channels(""), 0);
    assert_eq!(channels(&off), 0);
    assert_eq!(settings_of(&off).unwrap().notices.configured.len(), 2);
    let on = off.replace(
        "    notifications:",
        "    dlq_notification_enabled: true\n    notifications:",
    );
    assert_eq!(channels(&on), 2, "the log as well");
    assert_eq!(
        channels(&on.replace("webhooks:", "log: false\n      webhooks:")),
        1
    );
    assert_eq!(
        channels(&format!("{off}  monitoring: {{ alert_on_dlq_events: true }}\n")),
        1,
        "the log only"
    );
}

#[test]
fn a_schedule_that_cant_be_kept_is_refused() {
    let schedule = |rest: &str| format!("outbox:\n  dlq:\n    reprocess:\n      - {{ name: a, {rest} }}\n");
    for (rest, part) in [
        ("topic: x", "either `every_seconds` or `at`"),
        ("every_seconds: 5, at: '03:00'", "either `every_seconds` or `at`"),
        ("every_seconds: 0", "1 second to 90 days"),
        ("at: '24:00'", "HH:MM"),
        ("at: '3:00'", "HH:MM"),
        ("at: noon", "HH:MM"),
        (
            "every_seconds: 5, reason: poison_mesage",
            "Did you mean `poison_message`?",
        ),
        ("every_seconds: 5, times_max: 0", "1 to 100"),
        ("every_seconds: 5, limit: 0", "1 to 100000"),
    ] {
        let text = problems(&schedule(rest));
        assert!(
            text.contains(part) && text.starts_with("a.yaml:4: "),
            "{rest}: {text}"
        );
    }
    let twice = format!(
        "{}      - {{ name: a, at: '23:59' }}\n",
        schedule("every_seconds: 5")
    );
    assert!(problems(&twice).contains("two schedules `a`"));
    let settings = settings_of(&schedule("at: '23:59', reason: poison_message")).unwrap();
    let schedule = &settings.reprocess[0];
    assert_eq!((schedule.times_max, schedule.limit), (3, 1_000));
    assert_eq!(format!("{:?}", schedule.when), "DailyAt { second: 86340 }");
}
