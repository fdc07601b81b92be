use super::*;

#[test]
fn attributes_are_found_by_position_and_by_name() {
    let list = [("plan", "free"), ("path", "/a"), ("plan", "pro")];
    let attributes = Attributes::new(&list);
    for (name, value) in [
        (Attributes::COUNT, Some("3")),
        ("1.plan", Some("free")),
        ("2.path", Some("/a")),
        ("3.plan", Some("pro")),
        ("plan", Some("free")),
        ("path", Some("/a")),
        ("2.plan", None),
        ("4.plan", None),
        ("0.plan", None),
        ("99999999999999999999.plan", None),
        (Attributes::NUMBER, None),
    ] {
        assert_eq!(attributes.get(name), value, "{name}");
    }
    assert_eq!(attributes.with_number(1).get(Attributes::NUMBER), Some("1"));
}

#[test]
fn names_of_a_client_stand_for_no_position_and_no_number() {
    let (count, number) = (Attributes::COUNT, Attributes::NUMBER);
    let forged = [(count, "1"), (number, "3"), ("1.user", "eve"), ("user", "ada"), ("5.x", "y")];
    let attributes = Attributes::new(&forged);
    assert_eq!(attributes.get(count), Some("5"));
    for name in [number, "1.user", "5.x"] {
        assert_eq!(attributes.get(name), None, "{name}");
    }
    assert_eq!((attributes.get("user"), attributes.get("4.user")), (Some("ada"), Some("ada")));
    assert_eq!(attributes.get("3.1.user"), Some("eve"));
}

#[test]
fn attributes_without_a_position_are_found_by_name_first() {
    let list = [("path", "/a"), ("path", "/./a"), ("user", "ada")];
    let attributes = Attributes::new(&list).with_unordered(1);
    assert_eq!((attributes.get("path"), attributes.get("1.path")), (Some("/a"), Some("/./a")));
    assert_eq!((attributes.get("user"), attributes.get("2.user")), (Some("ada"), Some("ada")));
    assert_eq!(attributes.get(Attributes::COUNT), Some("2"));
    assert!(attributes.iter().eq([("path", "/./a"), ("user", "ada")]));
}

#[test]
fn numbers_above_those_that_rules_distinguish_are_the_same() {
    for (count, expected) in [(0, "0"), (16, "16"), (17, "more"), (40, "more")] {
        let list = vec![("k", "v"); count];
        let attributes = Attributes::new(&list).with_number(count);
        assert_eq!(attributes.get(Attributes::COUNT), Some(expected));
        assert_eq!(attributes.get(Attributes::NUMBER), Some(expected).filter(|_| count > 0));
    }
}

#[test]
fn each_name_that_rules_find_is_listed_once_with_its_value() {
    let list =
        [("path", "/a"), ("path", "/./a"), ("1.user", "eve"), ("user", "ada"), ("user", "bob")];
    let attributes = Attributes::new(&list).with_unordered(1).with_number(2);
    let mut listed = Vec::new();
    attributes.each(|name, value| listed.push((name.to_owned(), value)));
    for (name, value) in &listed {
        assert_eq!(attributes.get(name), Some(*value), "{name}");
    }
    let mut names: Vec<_> = listed.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    let expected = [
        "1.path",
        "2.1.user",
        "3.user",
        "4.user",
        Attributes::COUNT,
        Attributes::NUMBER,
        "path",
        "user",
    ];
    assert_eq!(names, expected);
}

#[test]
fn named_attributes_are_found_by_their_names() {
    let (count, number) = (Attributes::COUNT, Attributes::NUMBER);
    for named in [
        &[("user", "ada"), ("plan", "free")][..],
        &[("2.user", "ada"), ("1.plan", "free")],
        &[("3.user", "ada"), ("plan", "free")],
        &[(count, "4"), ("2.user", "ada"), ("user", "bob"), (number, "3")],
        &[],
    ] {
        let attributes = NamedAttributes::new(named.iter().copied());
        for (name, value) in named {
            assert_eq!(attributes.attributes().get(name), Some(*value), "{name} of {named:?}");
        }
    }
    let far = NamedAttributes::new([("4000000000.x", "y"), (count, "4000000000")]);
    assert_eq!(far.attributes().get("4000000000.x"), None);
}

#[test]
fn names_of_positions_and_numbers_are_known() {
    for name in [Attributes::COUNT, Attributes::NUMBER, "1.plan", "16.a.b", "7.", "123.x"] {
        assert!(!Attributes::is_name(name), "{name}");
    }
    for name in ["", "plan", "2fa", "1", ".x", "0.x", "01.x", "1a.x", "+1.x", "req.method"] {
        assert!(Attributes::is_name(name), "{name}");
    }
}
