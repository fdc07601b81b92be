use std::ffi::OsString;

use tidegate::Rate;

use super::{Guard, SettingError, Settings};

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
    let find = |name: &str| variables.iter().find(|variable| variable.0 == name);
    Settings::from_env(|name| find(name).map(|variable| OsString::from(variable.1)))
}

fn with(name: &str, value: &str) -> Result<Settings, SettingError> {
    read(&[("PINCH_RELAY_PUBLIC_HOST", "relay.example"), (name, value)])
}

#[test]
fn unset_variables_have_defaults() {
    let settings = with("UNRELATED", "x").unwrap();
    assert_eq!(settings.listen.to_string(), "0.0.0.0:8080");
    assert_eq!(settings.public_host, "relay.example");
    assert_eq!(settings.limit.rate(), Rate::per_second(1));
    assert_eq!(settings.limit.capacity(), 10);
    assert_eq!(settings.guard, Guard::On);
}

#[test]
fn empty_values_count_as_unset() {
    let names = super::VARIABLES.map(|variable| variable.name);
    let empty = |host: &'static str| {
        Settings::from_env(|name| {
            assert!(names.contains(&name), "{name}");
            Some(OsString::from(if name == "PINCH_RELAY_PUBLIC_HOST" { host } else { "" }))
        })
    };
    let settings = empty("relay.example").unwrap();
    assert_eq!(settings.listen.to_string(), "0.0.0.0:8080");
    assert_eq!((settings.limit.capacity(), settings.data_folder), (10, None));
    assert_eq!(settings.trusted_proxies.len(), 0);
    let error = empty("").unwrap_err().to_string();
    assert!(error.starts_with("PINCH_RELAY_PUBLIC_HOST is not set: expected "), "{error}");
}

#[test]
fn the_other_host_is_the_name_too() {
    let settings = read(&[("PINCH_RELAY_HOST", "old.example")]).unwrap();
    assert_eq!(settings.public_host, "old.example");
    assert_eq!(settings.listen.to_string(), "0.0.0.0:8080", "never an address to listen on");
    assert_eq!(with("PINCH_RELAY_HOST", "old.example").unwrap().public_host, "relay.example");
}

#[test]
fn variables_without_an_effect_are_found() {
    let set = ["PINCH_RELAY_QUEUE_MAX", "PATH", "PINCH_RELAY_PORT", "PINCH_RELAY_DB", "PINCH_X"];
    let unknown = super::unknown_variables(set.map(OsString::from));
    assert_eq!(unknown, ["PINCH_RELAY_DB", "PINCH_RELAY_QUEUE_MAX"]);
}

#[test]
fn rates_are_exact() {
    let settings = with("PINCH_RELAY_RATE_LIMIT", "1.5").unwrap();
    assert_eq!(settings.limit.rate().to_string(), "3 per 2s");
    for value in ["0.1", "1e-3", "1000000000", "1e9", ".5"] {
        assert!(with("PINCH_RELAY_RATE_LIMIT", value).is_ok(), "{value}");
    }
}

#[test]
fn public_host_is_required() {
    let error = read(&[]).unwrap_err();
    assert_eq!(error.name(), "PINCH_RELAY_PUBLIC_HOST");
    assert!(error.to_string().starts_with("PINCH_RELAY_PUBLIC_HOST is not set: expected "));
}

#[test]
fn invalid_values_are_reported_with_their_variable() {
    let cases: [(&str, &[&str]); 13] = [
        (
            "PINCH_RELAY_RATE_LIMIT",
            &[
                " ",
                "0",
                "0.0",
                "-1",
                "-0.5",
                "inf",
                "-inf",
                "Infinity",
                "nan",
                "NaN",
                "abc",
                "1,5",
                "1e300",
                "1e-300",
                "1000000001",
                "1000000000.5",
                "1e10",
                "1 ",
                "+1",
                "0x1",
                "1.0000000000001",
                "999999999.999999",
            ],
        ),
        (
            "PINCH_RELAY_RATE_BURST",
            &["0", "-1", "1.5", "1e3", "ten", "+1", " 1", "1000000001", "99999999999999999999"],
        ),
        ("PINCH_RELAY_PORT", &["-1", "65536", "http", "80 ", "1e3"]),
        ("PINCH_RELAY_LISTEN", &["localhost", "127.0.0.1:80", "::g"]),
        ("PINCH_RELAY_HOST", &[" ", "https://relay.example"]),
        (
            "PINCH_RELAY_PUBLIC_HOST",
            &[" ", "a b", "https://relay.example", "a@b", "relay.example/ws", "a\nb", "ä"],
        ),
        ("PINCH_RELAY_MAX_CONNECTIONS", &["0", "-5", "1000001"]),
        ("PINCH_RELAY_MAX_CONNECTIONS_PER_ADDRESS", &["0", "-5", "a quarter"]),
        ("PINCH_RELAY_RATE_LIMIT_PER", &["Identity", "address", "both"]),
        ("PINCH_RELAY_FORWARDED_HEADER", &["x-client-ip"]),
        ("PINCH_RELAY_ALLOWED_ORIGINS", &["https://app.example/", "a b"]),
        ("PINCH_RELAY_GUARD", &["yes", "ON", "0"]),
        ("PINCH_RELAY_TRUSTED_PROXIES", &["proxy", "10.0.0.1/8", "10.0.0.0/8,", "10.0.0.0/8;::1"]),
    ];
    for (name, values) in cases {
        for value in values {
            let error = with_overridden(name, value).unwrap_err();
            assert_eq!(error.name(), name, "{value:?}");
            let start = format!("{name} is {value:?}: expected ");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }
}

/// An empty bucket of the largest burst at the lowest rate still fills within the range of ticks.
#[test]
fn any_burst_is_valid_with_any_rate() {
    for rate in ["1e-9", "1e9", "4.294967295", "0.999999937"] {
        for burst in ["1", "1000000000"] {
            let settings = read(&[
                ("PINCH_RELAY_PUBLIC_HOST", "relay.example"),
                ("PINCH_RELAY_RATE_LIMIT", rate),
                ("PINCH_RELAY_RATE_BURST", burst),
            ]);
            assert_eq!(settings.unwrap().limit.capacity().to_string(), burst, "{rate}");
        }
    }
}

#[cfg(unix)]
#[test]
fn values_that_are_not_utf8_are_reported_too() {
    use std::os::unix::ffi::OsStringExt;
    let error = Settings::from_env(|_| Some(OsString::from_vec(vec![0xff]))).unwrap_err();
    assert_eq!(error.name(), "PINCH_RELAY_LISTEN");
}

fn with_overridden(name: &str, value: &str) -> Result<Settings, SettingError> {
    if name == "PINCH_RELAY_PUBLIC_HOST" { read(&[(name, value)]) } else { with(name, value) }
}
