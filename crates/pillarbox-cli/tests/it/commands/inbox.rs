//! `migrate --inbox`

use super::*;

#[test]
fn an_inbox_is_made_where_it_is_wanted_and_its_sql_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let database = ["--database", "sqlite:inbox.db"];
    for _ in 0..2 {
        let made = run(folder.path(), &[&database[..], &["migrate", "--inbox"]].concat());
        assert_eq!(code(&made), 0, "{}", stderr(&made));
        assert!(stdout(&made).contains("processed_events"), "{}", stdout(&made));
    }
    assert!(folder.path().join("inbox.db").exists());
    let shown = |url: &str| {
        let shown = run(
            folder.path(),
            &["--database", url, "migrate", "--inbox", "--print"],
        );
        assert_eq!(code(&shown), 0, "{}", stderr(&shown));
        stdout(&shown)
    };
    for sql in [shown("postgres://app@127.0.0.1:1/shop"), shown("sqlite:other.db")] {
        for table in [
            r#"create table if not exists "processed_events""#,
            r#""processed_versions""#,
            r#""processed_events_attempts""#,
        ] {
            assert!(sql.contains(table), "{sql}");
        }
    }
    assert!(
        !folder.path().join("other.db").exists(),
        "`--print` must not create the file"
    );
}
