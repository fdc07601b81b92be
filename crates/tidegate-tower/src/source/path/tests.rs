use super::{captured, decoded};

#[test]
fn parameter_is_found_by_the_pattern() {
    let cases = [
        ("/rooms/{room}", "/rooms/red", "room", Some("red")),
        ("/rooms/{room}/say", "/rooms/red/say", "room", Some("red")),
        ("/{a}/{b}", "/x/y", "b", Some("y")),
        ("/files/{*rest}", "/files/a/b/c", "rest", Some("a/b/c")),
        ("/{user}/files/{*rest}", "/ada/files/a", "user", Some("ada")),
        ("/user-{name}.json", "/user-ada.json", "name", Some("ada")),
        ("/user-{name}.json", "/user-.json", "name", None),
        ("/user-{name}.json", "/ada.json", "name", None),
        ("/rooms/{room}", "/rooms/red/", "room", None),
        ("/rooms/{room}", "/rooms/", "room", None),
        ("/rooms/{room}", "/rooms", "room", None),
        ("/rooms/{room}", "/halls/red", "room", None),
        ("/rooms/{room}", "/rooms/red/more", "room", None),
        ("/rooms/{room}", "/rooms/red", "other", None),
        ("/rooms/{room}", "*", "room", None),
    ];
    for (pattern, path, name, expected) in cases {
        assert_eq!(captured(pattern, path, name), expected, "{pattern} {path}");
    }
}

#[test]
fn values_are_decoded() {
    for (raw, text) in [("a%2Fb%20%C3%AB", "a/b ë"), ("%FF%25", "%ff%"), ("plain", "plain")] {
        assert_eq!(decoded(raw), text);
    }
}
