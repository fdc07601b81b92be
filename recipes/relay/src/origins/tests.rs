use axum::http::{HeaderMap, header};

use super::AllowedOrigins;

fn is_allowed(list: &str, origins: &[&str]) -> bool {
    let mut headers = HeaderMap::new();
    for origin in origins {
        headers.append(header::ORIGIN, origin.parse().unwrap());
    }
    AllowedOrigins::from_list(list).unwrap().allow(&headers, "Relay.example:8080")
}

#[test]
fn clients_without_an_origin_and_the_relay_itself_may_connect() {
    assert!(is_allowed("", &[]));
    assert!(is_allowed("", &["https://relay.example"]));
    assert!(is_allowed("", &["http://RELAY.example:3000"]));
    for other in ["https://evil.example", "null", "", "relay.example", "https://relay.example.evil"]
    {
        assert!(!is_allowed("", &[other]), "{other}");
    }
    assert!(!is_allowed("*", &["https://relay.example", "https://relay.example"]), "ambiguous");
}

#[test]
fn listed_origins_may_connect() {
    let list = "https://app.example, other.example,*.wild.example , http://localhost:*";
    for right in [
        "https://app.example",
        "HTTPS://APP.example",
        "http://other.example:81",
        "https://a.b.wild.example",
        "http://localhost:5173",
    ] {
        assert!(is_allowed(list, &[right]), "{right}");
    }
    for wrong in [
        "http://app.example",
        "https://app.example:444",
        "https://another.example",
        "https://wild.example",
        "https://wild.example.evil",
        "https://localhost:5173",
        "null",
    ] {
        assert!(!is_allowed(list, &[wrong]), "{wrong}");
    }
    assert!(is_allowed("*", &["null"]));
}

#[test]
fn entries_that_match_nothing_are_rejected() {
    for wrong in ["https://", "https://app.example/", "app.example:80", "a b", "user@host"] {
        assert_eq!(AllowedOrigins::from_list(wrong), None, "{wrong}");
    }
}
