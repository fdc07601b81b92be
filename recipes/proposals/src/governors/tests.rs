use super::{Caller, Governors};

fn governors(list: &str, host: &str) -> Result<Governors, String> {
    Governors::from_text(list, host)
}

#[test]
fn secret_identifies_the_caller() {
    let governors = governors("ada:one, bob:two:three", "four").unwrap();
    assert_eq!(governors.caller("one"), Some(Caller::Governor("ada".into())));
    assert_eq!(governors.caller("two:three"), Some(Caller::Governor("bob".into())));
    assert_eq!(governors.caller("four"), Some(Caller::Host));
    for wrong in ["", "on", "one ", "ada", "two"] {
        assert_eq!(governors.caller(wrong), None, "{wrong:?}");
    }
    assert!(!format!("{governors:?}").contains("one"), "secrets are not printed");
}

#[test]
fn invalid_lists_are_errors_without_secrets() {
    for (list, host, why) in [
        ("", "h", "entry 1 has no colon"),
        ("s3cret", "h", "entry 1 has no colon"),
        ("ada:s3cret,", "h", "entry 2 has no colon"),
        (":s3cret", "h", "the name of entry 1"),
        ("a b:s3cret", "h", "the name of entry 1"),
        ("ada:", "h", "the secret of `ada`"),
        ("ada:s3cret,ada:b", "h", "`ada` is listed twice"),
        ("ada:s3cret,bob:s3cret", "h", "`bob` has the secret of another governor"),
        ("ada:s3cret", "s3cret", "the host has the secret of a governor"),
    ] {
        let error = governors(list, host).unwrap_err();
        assert!(error.starts_with(why) && !error.contains("s3cret"), "{list:?}: {error}");
    }
}
