use super::*;

#[test]
fn a_filter_that_is_no_level_is_an_error() {
    for wrong in ["warning", "verbose", "tidegate=loud", "info,warning", "=", "a=b=c", "inf"] {
        let error = filter(Some(wrong.into())).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("RUST_LOG is "), "{error}");
    }
    for right in
        ["", " ", "warn", "WARN", "debug,hyper=off", "tidegate_tower::upgrade", "a::b=trace"]
    {
        assert!(filter(Some(right.into())).is_ok(), "{right}");
    }
    assert!(filter(None).is_ok());
}
