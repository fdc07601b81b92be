use super::{condition, variable};

/// Attribute, pattern, and whether it is excluded.
fn read(text: &str) -> Vec<(String, String, bool)> {
    let tests = condition(text).unwrap_or_else(|error| panic!("{text}: {}", error.message));
    let plain = |it: super::Test| (it.attribute, it.pattern.to_string(), it.is_excluded);
    tests.into_iter().map(plain).collect()
}

#[test]
fn comparisons_in_every_form() {
    for (text, attribute, pattern, is_excluded) in [
        ("descriptors[0]['req.method'] == 'GET'", "req.method", "GET", false),
        ("descriptors[0][\"a\"] == \"it's\"", "a", "it's", false),
        ("descriptors[0].user != 'root'", "user", "root", true),
        ("req_method == 'POST'", "req_method", "POST", false),
        ("req.method=='POST'", "req.method", "POST", false),
        ("'POST' == method", "method", "POST", false),
        ("int(descriptors[0].size) >= 10", "size", "10..", false),
        ("10 <= size", "size", "10..", false),
        ("size < 10", "size", "..=9", false),
        ("size > -5", "size", "-4..", false),
        ("size <= 9", "size", "..=9", false),
        ("int(size) == 7", "size", "7..=7", false),
        ("size != 7", "size", "7..=7", true),
    ] {
        assert_eq!(read(text), [(attribute.into(), pattern.into(), is_excluded)], "{text}");
    }
    assert_eq!(read("a == '1' && b != '2' && c > 3").len(), 3);
}

#[test]
fn unsupported_conditions_give_a_hint() {
    for text in [
        "",
        "a",
        "a ==",
        "a == b",
        "'x' == 'x'",
        "a == 'x' || b == 'y'",
        "!(a == 'x')",
        "descriptors[17].a == 'x'",
        "descriptors[-1].a == 'x'",
        "descriptors[0].a.b == 'x'",
        "a == 'x",
        "a == 'x\\'y'",
        "a == 1.5",
        "a.startsWith('x')",
        "a in ['x']",
        "a == 'x' &&",
        "a == 99999999999999999999",
    ] {
        let error = condition(text).expect_err(text);
        assert!(error.message.contains("not supported"), "{text}: {}", error.message);
        assert!(error.hint.is_some_and(|hint| hint.contains("&&")), "{text}");
    }
    assert!(condition("a < 'x'").expect_err("texts").hint.is_some_and(|it| it.contains("int(")));
}

#[test]
fn variables_name_attributes() {
    for text in ["descriptors[0]['user']", "descriptors[0].user", "user"] {
        assert_eq!(variable(text).expect(text), ("user".into(), 0));
    }
    assert_eq!(variable("descriptors[2].user").expect("the third"), ("user".into(), 2));
    for text in ["", "'user'", "user + 1", "descriptors[99].user", "a b"] {
        assert!(variable(text).is_err(), "{text}");
    }
}
