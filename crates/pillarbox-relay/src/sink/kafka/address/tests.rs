use super::*;

fn set(address: &Address, name: &str) -> Option<String> {
    let mut config = ClientConfig::new();
    address.connect(&mut config);
    config.get(name).map(str::to_owned)
}

#[test]
fn secrets_leave_the_address() {
    let address = Address::parse("kafka://app:s%40cret+@a:9093,b?sasl=scram-sha-512").unwrap();
    assert_eq!(address.brokers, "a:9093,b:9092");
    assert_eq!(set(&address, "sasl.username").as_deref(), Some("app"));
    assert_eq!(set(&address, "sasl.password").as_deref(), Some("s@cret+"));
    assert_eq!(set(&address, "sasl.mechanism").as_deref(), Some("SCRAM-SHA-512"));
    assert_eq!(
        set(&address, "security.protocol").as_deref(),
        Some("sasl_plaintext")
    );
    let six = Address::parse("kafka://[::1]:9092").unwrap();
    assert_eq!(six.brokers, "[::1]:9092");
}

#[test]
fn the_defaults_are_the_safe_and_fast_ones() {
    let address = Address::parse("kafka://a").unwrap();
    assert_eq!(address.compression, Compression::Lz4);
    assert_eq!(address.transactional_id, None);
    assert_eq!(set(&address, "security.protocol").as_deref(), Some("plaintext"));
    let tls = Address::parse("kafka://a?tls=true&compression=zstd&linger_ms=0").unwrap();
    assert_eq!(set(&tls, "security.protocol").as_deref(), Some("ssl"));
    assert_eq!(set(&tls, "ssl.ca.location").as_deref(), Some("probe"));
    assert_eq!((tls.compression, tls.linger_ms), (Compression::Zstd, 0));
}

#[test]
fn transactions_have_an_id_of_their_own_unless_one_is_given() {
    let one = Address::parse("kafka://a?transactions=true")
        .unwrap()
        .transactional_id;
    let two = Address::parse("kafka://a?transactions=true")
        .unwrap()
        .transactional_id;
    assert!(one.is_some() && one != two);
    let named = Address::parse("kafka://a?transactional_id=shop").unwrap();
    assert_eq!(named.transactional_id.as_deref(), Some("shop"));
}

#[test]
fn a_bad_address_says_what_to_write_and_keeps_the_secret() {
    for bad in [
        "kafka://",
        "kafka://app:secret@:x",
        "kafka://a:secret@h?colour=secret",
        "kafka://a:secret@h?sasl=secret",
        "kafka://a:secret@h?compression=secret",
        "kafka://a:secret@h?linger_ms=secret",
        "kafka://a:secret@h?tls=secret",
        "kafka://a:secret@h?password_file=Cargo.toml",
        "kafka://a@h",
        "kafka://h?sasl=plain",
        "kafka://h/path",
        "kafka://h?ca=/none",
        "kafka://h?cert=Cargo.toml",
        "kafka://a:secret@h,b:geheim@i",
        "kafka://h?transactional_id=",
    ] {
        let error = Address::parse(bad)
            .err()
            .unwrap_or_else(|| panic!("{bad} was taken"));
        assert!(!error.message.contains("secret"), "{error}");
    }
}

#[test]
fn a_password_comes_from_its_file_without_the_line_break() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("password");
    std::fs::write(&path, "gehe im\n").unwrap();
    let address = Address::parse(&format!("kafka://app@h?password_file={}", path.display())).unwrap();
    assert_eq!(set(&address, "sasl.password").as_deref(), Some("gehe im"));
    assert_eq!(set(&address, "sasl.mechanism").as_deref(), Some("PLAIN"));
}
