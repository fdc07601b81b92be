use std::ffi::OsString;
use std::time::Duration;

use tidegate::policy::{Grant, Limit};

use super::{SettingError, Settings, VARIABLES};
use crate::storage::Storage;

const REQUIRED: [(&str, &str); 3] = [
    ("TELEGRAM_WEBHOOK_SECRET", "s3cret"),
    ("TELEGRAM_BOT_TOKEN", "123456:ABC-DEF_g"),
    ("AGENT_URL", "http://127.0.0.1:9000/message"),
];

fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
    let find = |name: &str| variables.iter().find(|variable| variable.0 == name);
    Settings::from_env(|name| find(name).map(|variable| OsString::from(variable.1)))
}

/// The required settings, after these.
fn with(variables: &[(&str, &str)]) -> Result<Settings, SettingError> {
    read(&[variables, &REQUIRED].concat())
}

#[test]
fn unset_variables_have_defaults() {
    let settings = with(&[]).unwrap();
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
    let Limit::Window(window) = settings.policy.rules()[0].limit() else { panic!("a window") };
    assert_eq!((window.max(), window.per()), (20, Duration::from_secs(3_600)));
    assert!(settings.access.secret.as_ref().unwrap().is(b"s3cret"));
    assert_eq!(settings.access.users, None);
    assert_eq!(settings.storage, Storage::InFolder("./webhook-state".into()));
    let address = "https://api.telegram.org/bot123456:ABC-DEF_g/sendMessage";
    assert_eq!(settings.send_message().to_string(), address);
    assert!(!settings.is_token_in_the_clear());
    assert_eq!((settings.agent_calls, settings.agent_queue), (4, 1_000));
    assert_eq!(settings.reply_longest, Duration::from_secs(5));
}

#[test]
fn defaults_match_the_help() {
    let explicit: Vec<_> =
        VARIABLES.iter().filter_map(|variable| Some((variable.name, variable.default?))).collect();
    let (explicit, implicit) = (with(&explicit).unwrap(), with(&[]).unwrap());
    assert_eq!(format!("{explicit:?}"), format!("{implicit:?}"));
}

#[test]
fn three_variables_are_required() {
    for missing in REQUIRED {
        let others: Vec<_> = REQUIRED.into_iter().filter(|other| *other != missing).collect();
        let error = read(&others).unwrap_err();
        assert_eq!(error.name(), missing.0);
        assert!(error.to_string().starts_with(&format!("{} is not set: expected ", missing.0)));
    }
}

#[test]
fn secret_can_only_be_disabled_explicitly() {
    let others = &REQUIRED[1..];
    let error = read(others).unwrap_err().to_string();
    assert!(error.contains("set TELEGRAM_WEBHOOK_AUTH=off"), "{error}");
    let off = [("TELEGRAM_WEBHOOK_AUTH", "off")];
    assert!(read(&[&off, others].concat()).unwrap().access.secret.is_none());
    assert_eq!(with(&off).unwrap_err().name(), "TELEGRAM_WEBHOOK_AUTH", "a secret is set");
    let empty = [("TELEGRAM_WEBHOOK_SECRET", "")];
    assert_eq!(with(&empty).unwrap_err().name(), "TELEGRAM_WEBHOOK_SECRET");
}

#[test]
fn lists_of_users() {
    let settings = with(&[
        ("ALLOWED_USER_IDS", "123, 456,123"),
        ("RATE_LIMIT_USERS", "123=100, 456 = unlimited"),
    ]);
    let settings = settings.unwrap();
    assert_eq!(settings.access.users, Some([123, 456].into()));
    let [own, unlimited] = settings.policy.rules()[0].overrides() else { panic!("two") };
    let Grant::Limit(Limit::Window(own)) = own.grant() else { panic!("a window") };
    assert_eq!((own.max(), own.is_aligned()), (100, true));
    assert_eq!(unlimited.grant(), &Grant::Unlimited);
}

#[test]
fn chat_api_can_be_elsewhere() {
    for (base, address) in [
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/bot123456:ABC-DEF_g/sendMessage"),
        ("http://[::1]:1/a/b", "http://[::1]:1/a/b/bot123456:ABC-DEF_g/sendMessage"),
    ] {
        let settings = with(&[("TELEGRAM_API_BASE", base)]).unwrap();
        assert_eq!(settings.send_message().to_string(), address);
        assert!(settings.is_token_in_the_clear());
    }
}

#[test]
fn invalid_values_are_reported_with_their_variable() {
    let numbers = &["", " ", "0", "-1", "1.5", "1e3", "ten", "+1", " 1", "99999999999999999999"];
    let urls = &["", "localhost", "/x", "ftp://x/", "http://", "http://u:p@x/", "http://a b/"];
    let cases: [(&str, &[&str]); 18] = [
        ("RATE_LIMIT_MAX", numbers),
        ("RATE_LIMIT_MAX", &["4294967296"]),
        ("RATE_LIMIT_WINDOW_MS", numbers),
        ("RATE_LIMIT_WINDOW_MS", &["31622400001"]),
        ("RATE_LIMIT_ALGORITHM", &["", "Window", "fixed", "token bucket"]),
        (
            "RATE_LIMIT_USERS",
            &["", "1", "1=", "=1", "1=0", "1=-1", "a=1", "1=1,", "1=1,1=2", "1=Unlimited"],
        ),
        ("ALLOWED_USER_IDS", &["", " ", "0", "-5", "ada", "1;2", "1,", "1,,2"]),
        ("RATE_LIMIT_STORE", &["", "file", "file:", "Memory", "redis://x", "./state"]),
        ("AGENT_URL", urls),
        ("TELEGRAM_API_BASE", urls),
        ("TELEGRAM_API_BASE", &["https://x/?a=b", "https://x/#a"]),
        ("AGENT_CONCURRENCY", numbers),
        ("AGENT_QUEUE", numbers),
        ("AGENT_QUEUE_BYTES", &["", "0", "524287", "1099511627777", "1k"]),
        ("AGENT_TIMEOUT_MS", numbers),
        ("REPLY_TIMEOUT_MS", numbers),
        ("STOP_GRACE_MS", numbers),
        ("WEBHOOK_LISTEN", &["", "8080", "localhost:8080", "127.0.0.1", "127.0.0.1:65536"]),
    ];
    for (name, values) in cases {
        for value in values {
            let error = with(&[(name, value)]).unwrap_err();
            assert_eq!(error.name(), name, "{value:?}");
            let start = format!("{name} is {value:?}: expected ");
            assert!(error.to_string().starts_with(&start), "{error}");
        }
    }
}

#[test]
fn secrets_are_never_printed() {
    for name in ["TELEGRAM_WEBHOOK_SECRET", "TELEGRAM_BOT_TOKEN"] {
        let error = with(&[(name, "hush hush")]).unwrap_err();
        assert_eq!(error.name(), name);
        assert!(error.to_string().starts_with(&format!("{name} is invalid: expected ")));
    }
    let settings = format!("{:?}", with(&[]).unwrap());
    assert!(!settings.contains("s3cret") && !settings.contains("ABC-DEF"), "{settings}");
}

#[test]
fn any_maximum_is_valid_with_any_window_and_algorithm() {
    for algorithm in ["window", "sliding", "bucket"] {
        for max in ["1", "7", "4294967295"] {
            for window in ["1", "3600000", "31622400000"] {
                let settings = with(&[
                    ("RATE_LIMIT_ALGORITHM", algorithm),
                    ("RATE_LIMIT_MAX", max),
                    ("RATE_LIMIT_WINDOW_MS", window),
                    ("RATE_LIMIT_USERS", "1=4294967295,2=1"),
                ]);
                assert!(settings.is_ok(), "{algorithm} {max} {window}: {settings:?}");
            }
        }
    }
}

#[cfg(unix)]
#[test]
fn values_that_are_not_utf8_are_reported_too() {
    use std::os::unix::ffi::OsStringExt;
    let error = Settings::from_env(|_| Some(OsString::from_vec(vec![0xff]))).unwrap_err();
    assert_eq!(error.name(), "TELEGRAM_BOT_TOKEN");
}
