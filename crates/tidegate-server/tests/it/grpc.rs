//! Envoy's rate limit service, with the responses of envoyproxy/ratelimit.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use tidegate::policy::Policy;
use tidegate_proto::rls::rate_limit_descriptor::RateLimitOverride;
use tidegate_proto::rls::rate_limit_response::rate_limit::Unit;
use tidegate_proto::rls::rate_limit_response::{Code, DescriptorStatus};
use tidegate_proto::rls::{RateLimitResponse, RateLimitUnit, SHOULD_RATE_LIMIT};
use tidegate_server::{Server, Settings};

use crate::grpc_client::{Client, call, daemon, framed};
use crate::running::Folder;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 3}
  - key: user
    value: root
    rate_limit: {unlimited: true}
  - key: user
    value: mallory
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: plan
    value: free
    descriptors:
      - key: path
        value: /api*
        rate_limit: {unit: year, requests_per_unit: 2, name: free-api}
";

/// The code, limit, unit and remaining hits of a status.
fn summary(status: &DescriptorStatus) -> (Code, Option<(u32, Unit)>, u32) {
    let limit = status.current_limit.as_ref().map(|it| (it.requests_per_unit, it.unit()));
    (status.code(), limit, status.limit_remaining)
}

/// The code, the limit with its unit, and the remaining hits.
type Summary = (Code, Option<(u32, Unit)>, u32);

fn summaries(response: &RateLimitResponse) -> Vec<Summary> {
    response.statuses.iter().map(summary).collect()
}

#[tokio::test]
async fn every_descriptor_gets_its_status_in_order() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let request = call(
        "edge",
        &[
            &[("unknown", "x")],
            &[("user", "ada")],
            &[("user", "root")],
            &[("watched", "x")],
            &[("plan", "free"), ("path", "/api/a")],
            &[("plan", "free")],
        ],
    );
    let response = client.ask(&request).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
    assert!(response.response_headers_to_add.is_empty());
    let day = |max| Some((max, Unit::Day));
    assert_eq!(
        summaries(&response),
        [
            (Code::Ok, None, 0),
            (Code::Ok, day(3), 2),
            (Code::Ok, None, u32::MAX),
            (Code::Ok, day(1), 0),
            (Code::Ok, Some((2, Unit::Year)), 1),
            (Code::Ok, None, 0),
        ]
    );
    let named = response.statuses[4].current_limit.as_ref().unwrap();
    assert_eq!(named.name, "free-api");
    let until = response.statuses[1].duration_until_reset.unwrap();
    assert!((1..=86_400).contains(&until.seconds) && until.nanos == 0, "{until:?}");
    client.ask(&request).await.unwrap();
    let denied = client.ask(&request).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    let codes: Vec<_> = denied.statuses.iter().map(DescriptorStatus::code).collect();
    let over = Code::OverLimit;
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::Ok, over, Code::Ok]);
    // A denied call is charged all the same, as by envoyproxy/ratelimit.
    assert_eq!(summary(&denied.statuses[1]), (Code::Ok, day(3), 0));
    let headers: Vec<_> =
        denied.response_headers_to_add.iter().map(|header| header.key.as_str()).collect();
    assert_eq!(headers, ["retry-after", "ratelimit-policy", "ratelimit"]);
    server.stop().await;
}

#[tokio::test]
async fn hits_are_charged_refunded_and_peeked_at() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let mut request = call("edge", &[&[("user", "ada")], &[("user", "bob")]]);
    request.hits_addend = 2;
    request.descriptors[1].hits_addend = Some(0);
    let left = |response: &RateLimitResponse| {
        response.statuses.iter().map(|it| it.limit_remaining).collect::<Vec<_>>()
    };
    assert_eq!(left(&client.ask(&request).await.unwrap()), [1, 3]);
    request.descriptors[0].hits_addend = Some(1);
    assert_eq!(left(&client.ask(&request).await.unwrap()), [0, 3]);
    assert_eq!(client.ask(&request).await.unwrap().overall_code(), Code::OverLimit);
    request.descriptors[0].is_negative_hits = true;
    request.descriptors[0].hits_addend = Some(3);
    let refunded = client.ask(&request).await.unwrap();
    assert_eq!((refunded.overall_code(), left(&refunded)), (Code::Ok, vec![2, 3]));
    request.descriptors[0].is_negative_hits = false;
    request.descriptors[0].hits_addend = Some(2);
    assert_eq!(left(&client.ask(&request).await.unwrap()), [0, 3]);
    server.stop().await;
}

#[tokio::test]
async fn a_descriptor_may_carry_its_limit() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let with = |domain: &str, max, unit: RateLimitUnit| {
        let mut request = call(domain, &[&[("user", "ada")]]);
        let limit = RateLimitOverride { requests_per_unit: max, unit: unit.into() };
        request.descriptors[0].limit = Some(limit);
        request
    };
    let month = RateLimitUnit::Month;
    let response = client.ask(&with("edge", 2, month)).await.unwrap();
    assert_eq!(summaries(&response), [(Code::Ok, Some((2, Unit::Month)), 1)]);
    client.ask(&with("edge", 2, month)).await.unwrap();
    let denied = client.ask(&with("edge", 2, month)).await.unwrap();
    assert_eq!(summaries(&denied), [(Code::OverLimit, Some((2, Unit::Month)), 0)]);
    let more = client.ask(&with("edge", 9, month)).await.unwrap();
    assert_eq!(summaries(&more), [(Code::Ok, Some((9, Unit::Month)), 5)], "all three count");
    let nothing = client.ask(&with("edge", 0, month)).await.unwrap();
    assert_eq!(summaries(&nothing), [(Code::OverLimit, Some((0, Unit::Month)), 0)]);
    let elsewhere = client.ask(&with("elsewhere", 0, month)).await.unwrap();
    assert_eq!(summaries(&elsewhere), [(Code::Ok, None, 0)]);
    let of_no_unit = client.ask(&with("edge", 0, RateLimitUnit::Unknown)).await.unwrap();
    assert_eq!(summaries(&of_no_unit), [(Code::Ok, Some((3, Unit::Day)), 2)]);
    server.stop().await;
}

#[tokio::test]
async fn a_carried_limit_counts_the_same_at_every_index() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let limit = RateLimitOverride { requests_per_unit: 2, unit: RateLimitUnit::Day.into() };
    let mut codes = Vec::new();
    for index in 0..3 {
        let mut request = call("edge", &[&[("a", "x")], &[("b", "x")], &[("c", "x")]]);
        request.descriptors[index] = call("edge", &[&[("own", "x")]]).descriptors.remove(0);
        request.descriptors[index].limit = Some(limit);
        codes.push(client.ask(&request).await.unwrap().statuses[index].code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
    server.stop().await;
}

#[tokio::test]
async fn denied_hits_count_so_a_peek_is_over_the_limit() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let mut ask = async |hits, is_negative| {
        let mut request = call("edge", &[&[("user", "ada")]]);
        request.descriptors[0].hits_addend = Some(hits);
        request.descriptors[0].is_negative_hits = is_negative;
        summary(&client.ask(&request).await.unwrap().statuses[0])
    };
    let day = Some((3, Unit::Day));
    assert_eq!(ask(0, false).await, (Code::Ok, day, 3));
    assert_eq!(ask(2, false).await, (Code::Ok, day, 1));
    assert_eq!(ask(0, false).await, (Code::Ok, day, 1));
    assert_eq!(ask(2, false).await, (Code::OverLimit, day, 0));
    assert_eq!(ask(0, false).await, (Code::OverLimit, day, 0), "4 of 3 are used");
    assert_eq!(ask(1, true).await, (Code::Ok, day, 0));
    assert_eq!(ask(0, false).await, (Code::Ok, day, 0));
    assert_eq!(ask(1, false).await, (Code::OverLimit, day, 0));
    server.stop().await;
}

#[tokio::test]
async fn refunds_before_charges_make_room() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let mut request = call("edge", &[&[("user", "ada")], &[("user", "ada")]]);
    request.descriptors.truncate(1);
    request.hits_addend = 3;
    client.ask(&request).await.unwrap();
    request.hits_addend = 2;
    request.descriptors.push(request.descriptors[0].clone());
    request.descriptors[0].is_negative_hits = true;
    let both = client.ask(&request).await.unwrap();
    let day = Some((3, Unit::Day));
    assert_eq!(summaries(&both), [(Code::Ok, day, 2), (Code::Ok, day, 0)]);
    request.descriptors.swap(0, 1);
    let both = client.ask(&request).await.unwrap();
    assert_eq!(summaries(&both), [(Code::OverLimit, day, 0), (Code::Ok, day, 0)]);
    server.stop().await;
}

#[tokio::test]
async fn keys_and_values_may_be_any_bytes() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    for (domain, value) in [
        (&b"edge"[..], &b"\xff\xfe"[..]),
        (b"edge", b"\xff"),
        (b"edge", b"\xfe"),
        (b"edge", b"a\xc3"),
    ] {
        let mut request = call("edge", &[&[("user", "")], &[("user", "known")]]);
        request.domain = domain.into();
        request.descriptors[0].entries[0].value = value.into();
        request.descriptors[1].hits_addend = Some(0);
        for left in [2, 1, 0] {
            let response = client.ask(&request).await.unwrap();
            assert_eq!(summary(&response.statuses[0]), (Code::Ok, Some((3, Unit::Day)), left));
        }
        assert_eq!(client.ask(&request).await.unwrap().overall_code(), Code::OverLimit);
    }
    let mut nowhere = call("edge", &[&[("user", "ada")]]);
    nowhere.domain = b"\xff".into();
    nowhere.descriptors[0].entries[0].key = b"\xff".into();
    assert_eq!(summaries(&client.ask(&nowhere).await.unwrap()), [(Code::Ok, None, 0)]);
    server.stop().await;
}

#[tokio::test]
async fn the_end_of_a_window_is_always_reported() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    for (user, hits, is_negative) in [
        ("ada", 0, false),
        ("ada", 1, false),
        ("ada", 1, true),
        ("bob", 9, false),
        ("mallory", 1, false),
    ] {
        let mut request = call("edge", &[&[("user", user)]]);
        request.descriptors[0].hits_addend = Some(hits);
        request.descriptors[0].is_negative_hits = is_negative;
        let response = client.ask(&request).await.unwrap();
        let until = response.statuses[0].duration_until_reset.unwrap();
        assert!((1..=86_400).contains(&until.seconds), "{user} {hits}: {until:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn headers_describe_enforced_rules() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let mut headers = async |user: &str, hits| {
        let mut request = call("edge", &[&[("watched", "x")], &[("user", user)]]);
        request.hits_addend = hits;
        let response = client.ask(&request).await.unwrap();
        assert_eq!(response.overall_code(), Code::OverLimit);
        let headers = response.response_headers_to_add.iter();
        let headers = headers.filter(|it| it.key.starts_with("ratelimit"));
        headers.map(|it| it.value.split(";t=").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(headers("ada", 4).await, ["\"user\";q=3;w=86400", "\"user\";r=0"]);
    let nothing = ["\"user_mallory\";q=0;w=86400", "\"user_mallory\";r=0"];
    assert_eq!(headers("mallory", 1).await, nothing);
    server.stop().await;
}

#[tokio::test]
async fn keys_that_look_like_indexed_names_are_kept_apart() {
    let server = daemon(
        "d.yaml",
        "
domain: d
descriptors:
  - key: 2.b
    descriptors:
      - key: b
        value: q
        rate_limit: {unit: day, requests_per_unit: 1}
",
    )
    .await;
    let mut client = Client::new(&server).await;
    let met = client.ask(&call("d", &[&[("2.b", "zz"), ("b", "q")]])).await.unwrap();
    assert_eq!(summaries(&met), [(Code::Ok, Some((1, Unit::Day)), 0)]);
    let not_met = client.ask(&call("d", &[&[("2.b", "q"), ("b", "zz")]])).await.unwrap();
    assert_eq!(summaries(&not_met), [(Code::Ok, None, 0)]);
    server.stop().await;
}

#[tokio::test]
async fn the_last_of_entries_with_the_same_key_counts() {
    let limits = "
- namespace: d
  max_value: 1
  seconds: 86400
  conditions: [\"descriptors[0]['plan'] == 'free'\"]
  variables: [\"descriptors[0]['user']\"]
";
    let limits = Policy::limitador_to_toml("limits.yaml", limits.as_bytes()).unwrap();
    let server = daemon("policy.toml", &limits).await;
    let mut client = Client::new(&server).await;
    let paid = &[("plan", "free"), ("plan", "paid"), ("user", "ada")];
    assert_eq!(summaries(&client.ask(&call("d", &[paid])).await.unwrap())[0].1, None);
    let free = &[("plan", "paid"), ("plan", "free"), ("user", "bob"), ("user", "ada")];
    assert_eq!(client.ask(&call("d", &[free])).await.unwrap().overall_code(), Code::Ok);
    let ada = &[("plan", "free"), ("user", "ada")];
    assert_eq!(client.ask(&call("d", &[ada])).await.unwrap().overall_code(), Code::OverLimit);
    server.stop().await;
}

#[tokio::test]
async fn limits_of_the_second_descriptor_of_a_call() {
    let limits = "
- namespace: d
  max_value: 1
  seconds: 86400
  conditions: [\"descriptors[1]['plan'] == 'free'\"]
  variables: [\"descriptors[1]['user']\"]
";
    let limits = Policy::limitador_to_toml("limits.yaml", limits.as_bytes()).unwrap();
    let server = daemon("policy.toml", &limits).await;
    let mut client = Client::new(&server).await;
    let (free, other) = (&[("plan", "free"), ("user", "ada")], &[("plan", "paid")]);
    for _ in 0..3 {
        let first = client.ask(&call("d", &[free, other])).await.unwrap();
        assert_eq!(first.overall_code(), Code::Ok, "it is about the second");
    }
    assert_eq!(client.ask(&call("d", &[other, free])).await.unwrap().overall_code(), Code::Ok);
    let again = client.ask(&call("d", &[other, free])).await.unwrap();
    assert_eq!(again.overall_code(), Code::OverLimit);
    let codes: Vec<_> = summaries(&again).iter().map(|it| it.0).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    server.stop().await;
}

#[tokio::test]
async fn zero_limits_unknown_domains_and_long_keys() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let mallory = client.ask(&call("edge", &[&[("user", "mallory")]])).await.unwrap();
    assert_eq!(summaries(&mallory), [(Code::OverLimit, Some((0, Unit::Day)), 0)]);
    let unknown = client.ask(&call("no such domain", &[&[("user", "mallory")]])).await.unwrap();
    assert_eq!(summaries(&unknown), [(Code::Ok, None, 0)]);
    let empty = client.ask(&call("edge", &[&[]])).await.unwrap();
    assert_eq!(summaries(&empty), [(Code::Ok, None, 0)]);
    let long = "x".repeat(100_000);
    for left in [2, 1, 0] {
        let long = client.ask(&call("edge", &[&[("user", &long)]])).await.unwrap();
        assert_eq!(summary(&long.statuses[0]).2, left, "a long key is a key");
    }
    server.stop().await;
}

#[tokio::test]
async fn invalid_calls_are_rejected() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let many = vec![&[("user", "ada")][..]; 33];
    for (request, message) in [
        (call("", &[&[("user", "ada")]]), "rate limit domain must not be empty"),
        (call("edge", &[]), "rate limit descriptor list must not be empty"),
        (call("edge", &many), "33 descriptors are too many: at most 32 in one call"),
        (
            call("edge", &[&[("user", "ada"); 1_025]]),
            "1025 entries are too many: at most 1024 in one call",
        ),
    ] {
        assert_eq!(client.ask(&request).await, Err((3, message.into())));
    }
    let fits = client.ask(&call("edge", &many[1..])).await.unwrap();
    assert_eq!(fits.statuses.len(), 32);
    let nowhere = client.call("/some.Service/Method", b"").await;
    assert_eq!(nowhere, Err((12, "no such method".into())));
    let (response, _) = client.send(SHOULD_RATE_LIMIT, "application/json", Bytes::new()).await;
    assert_eq!(response.status(), 415);
    server.stop().await;
}

#[tokio::test]
async fn native_rules_find_entries_by_their_keys() {
    let policy = r#"
        [[rule]]
        name   = "user"
        domain = "edge"
        key    = ["user"]
        bucket = { rate = "2/1m", burst = 2 }
    "#;
    let server = daemon("policy.toml", policy).await;
    let mut client = Client::new(&server).await;
    let ada = call("edge", &[&[("path", "/"), ("user", "ada")], &[("user", "bob")]]);
    let response = client.ask(&ada).await.unwrap();
    assert_eq!(summaries(&response), vec![(Code::Ok, Some((2, Unit::Minute)), 1); 2]);
    client.ask(&call("edge", &[&[("user", "ada")]])).await.unwrap();
    let denied = client.ask(&ada).await.unwrap();
    let codes: Vec<_> = denied.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok]);
    let bob = client.ask(&call("edge", &[&[("user", "bob")]])).await.unwrap();
    assert_eq!(summary(&bob.statuses[0]).2, 0, "bob was not charged for the denial of ada");
    // A missing attribute is a denial, not an error.
    let missing = client.ask(&call("edge", &[&[("user", "eve")], &[("path", "/")]])).await.unwrap();
    assert_eq!(missing.overall_code(), Code::OverLimit);
    let codes: Vec<_> = missing.statuses.iter().map(DescriptorStatus::code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    server.stop().await;
}

#[tokio::test]
async fn calls_that_cannot_be_decided_are_over_the_limit() {
    let policy = r#"
        [[rule]]
        name   = "address"
        domain = "edge"
        key    = ["address"]
        missing = "skip"
        window = { max = 2, per = "1h" }

        [[rule]]
        name   = "tier"
        domain = "edge"
        match  = { tier = "*" }
        key    = ["tier"]
        window = { max = 9, per = "1h" }
        cost   = { by = "tier", "1..=4" = 1, "5.." = 2 }

        [[rule]]
        name   = "uploads"
        domain = "edge"
        match  = { path = "/upload*" }
        slots  = { max = 1 }
    "#;
    let server = daemon("policy.toml", policy).await;
    let mut client = Client::new(&server).await;
    for evil in [("tier", "x"), ("path", "/upload")] {
        let denied = client.ask(&call("edge", &[&[("address", "a")], &[evil]])).await.unwrap();
        assert_eq!(denied.overall_code(), Code::OverLimit);
        let codes: Vec<_> = denied.statuses.iter().map(DescriptorStatus::code).collect();
        assert_eq!(codes, [Code::Ok, Code::OverLimit], "{evil:?}");
        let alone = client.ask(&call("edge", &[&[evil]])).await.unwrap();
        assert_eq!(alone.overall_code(), Code::OverLimit);
    }
    let left = client.ask(&call("edge", &[&[("address", "a")], &[("tier", "7")]])).await.unwrap();
    let codes: Vec<_> = left.statuses.iter().map(|it| it.limit_remaining).collect();
    assert_eq!(codes, [1, 7], "nothing was charged before");
    server.stop().await;
}

#[tokio::test]
async fn health_and_reflection() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    for service in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        let mut message = vec![0x0a, u8::try_from(service.len()).unwrap()];
        message.extend_from_slice(service.as_bytes());
        let healthy = client.call("/grpc.health.v1.Health/Check", &message).await.unwrap();
        assert_eq!(&healthy[..], [0x08, 1], "{service} is serving");
    }
    let unknown = client.call("/grpc.health.v1.Health/Check", b"\x0a\x01x").await;
    assert_eq!(unknown.unwrap_err().0, 5);
    for version in ["v1", "v1alpha"] {
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let services = client.call(&path, b"\x3a\x01*").await.unwrap();
        let services = String::from_utf8_lossy(&services);
        assert!(services.contains("envoy.service.ratelimit.v3.RateLimitService"), "{services}");
        assert!(services.contains("grpc.health.v1.Health"), "{services}");
    }
    server.stop().await;
}

#[tokio::test]
async fn health_watchers_get_not_serving_at_shutdown() {
    let server = daemon("edge.yaml", EDGE).await;
    let mut client = Client::new(&server).await;
    let nothing = Full::new(framed(b"")).boxed();
    let path = "/grpc.health.v1.Health/Watch";
    let mut watched = client.begin(path, "application/grpc", nothing).await.into_body();
    let first = watched.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, framed(&[0x08, 1]), "serving");
    let (rest, ()) = tokio::join!(watched.collect(), server.stop());
    let rest = rest.unwrap();
    assert_eq!(rest.trailers().unwrap()["grpc-status"], "14");
    assert_eq!(rest.to_bytes(), framed(&[0x08, 2]), "not serving");
}

#[tokio::test]
async fn a_path_is_normalised_for_native_rules_only() {
    let native = "[[rule]]\nname = 'sign-ups'\ndomain = 'edge'\nmatch = { path = '/sign-up' }\n\
                  window = { max = 1, per = '1h' }\n\
                  [[rule]]\nname = 'users'\ndomain = 'users'\nkey = ['user']\nmissing = 'skip'\n\
                  window = { max = 9, per = '1h' }\n";
    let server = daemon("policy.toml", native).await;
    let mut client = Client::new(&server).await;
    let codes = async |client: &mut Client, domain: &str, path: &str| {
        let entries: &[&[(&str, &str)]] = &[&[("user", "ada")], &[("path", path)]];
        let response = client.ask(&call(domain, entries)).await.unwrap();
        let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
        (response.overall_code(), codes[0], codes[1])
    };
    let over = (Code::OverLimit, Code::Ok, Code::OverLimit);
    assert_eq!(codes(&mut client, "edge", "/sign-up?x").await, (Code::Ok, Code::Ok, Code::Ok));
    for path in ["/sign-up", "/%73ign-up", "/x/../sign-up", "//sign-up", "/sign-up%00", "/%zz"] {
        assert_eq!(codes(&mut client, "edge", path).await, over, "{path}");
    }
    let unread = codes(&mut client, "users", "/%00").await;
    assert_eq!(unread, (Code::Ok, Code::Ok, Code::Ok), "no rule of the domain uses the path");
    server.stop().await;
    // Files of envoyproxy/ratelimit match as they do there.
    let imported = "{domain: edge, descriptors: [{key: path, value: /sign-up, \
                    rate_limit: {unit: day, requests_per_unit: 1}}]}";
    let server = daemon("edge.yaml", imported).await;
    let mut client = Client::new(&server).await;
    for path in ["/sign-up", "/%73ign-up", "//sign-up", "/%00"] {
        assert_eq!(codes(&mut client, "edge", path).await.0, Code::Ok, "{path}");
    }
    assert_eq!(codes(&mut client, "edge", "/sign-up").await, over);
    server.stop().await;
}

#[tokio::test]
async fn the_busiest_keys_are_those_of_the_decisive_descriptor() {
    let limits = "
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: address, rate_limit: {unit: day, requests_per_unit: 400}}
";
    let server = daemon("edge.yaml", limits).await;
    let mut client = Client::new(&server).await;
    let request = call("edge", &[&[("user", "ada")], &[("address", "192.0.2.1")]]);
    for _ in 0..300 {
        client.ask(&request).await.unwrap();
    }
    let address = server.address(tidegate_server::Listener::Admin).unwrap();
    let text = tokio::task::spawn_blocking(move || {
        crate::running::ask(address, "GET", "/admin/v1/top", &[], "").json()
    });
    let top = text.await.unwrap();
    let busiest = top["busiest"].as_array().unwrap();
    assert!(!busiest.is_empty());
    for it in busiest {
        assert_eq!(it["rule"], "address", "{top}");
        assert_eq!(it["key"], serde_json::json!([["1.address", "192.0.2.1"]]), "{top}");
    }
    server.stop().await;
}

/// A call whose charges are synced waits for the disk, and its request is prepared again after that.
#[tokio::test]
async fn calls_that_wait_for_the_disk_are_answered_and_counted_as_others() {
    let folder = Folder::new();
    let state = folder.path().join("state");
    let rules = "
[[rule]]
name   = \"user\"
domain = \"edge\"
match  = { user = \"*\" }
key    = [\"user\"]
quota  = { max = 400, per = \"day\" }

[[rule]]
name   = \"address\"
domain = \"edge\"
match  = { address = \"*\" }
key    = [\"address\"]
bucket = { rate = \"1/s\", burst = 1000 }
";
    for store in [None, Some(&*state)] {
        let file = Policy::parse("edge.toml", rules.as_bytes()).unwrap();
        let settings = Settings::on_free_ports(file).store_folder(store);
        let server = Server::start(settings).await.unwrap();
        let mut client = Client::new(&server).await;
        let request = call("edge", &[&[("address", "192.0.2.1")], &[("user", "ada")]]);
        for number in 1..=300 {
            let response = client.ask(&request).await.unwrap();
            assert_eq!(response.overall_code(), Code::Ok, "{store:?}");
            assert_eq!(response.statuses[1].limit_remaining, 400 - number, "{store:?}");
        }
        let address = server.address(tidegate_server::Listener::Admin).unwrap();
        let text = tokio::task::spawn_blocking(move || {
            crate::running::ask(address, "GET", "/admin/v1/top", &[], "").json()
        });
        let top = text.await.unwrap();
        assert_eq!(top["busiest"][0]["rule"], "user", "{store:?}: {top}");
        assert_eq!(
            top["busiest"][0]["key"],
            serde_json::json!([["user", "ada"]]),
            "{store:?}: {top}"
        );
        let mut costly = call("edge", &[&[("user", "ada")]]);
        costly.hits_addend = 101;
        let response = client.ask(&costly).await.unwrap();
        assert_eq!(response.overall_code(), Code::OverLimit, "{store:?}");
        server.stop().await;
    }
}

/// Keys and values of descriptors.
type Descriptors<'a> = &'a [&'a [(&'a str, &'a str)]];

/// A call is over the limit if an ordinary descriptor is, or if all in quota mode are.
#[tokio::test]
async fn descriptors_in_quota_mode_deny_together() {
    let limits = "
domain: edge
descriptors:
  - {key: small, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: large, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 6}}
  - {key: silent, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let server = daemon("edge.yaml", limits).await;
    let mut client = Client::new(&server).await;
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let both: Descriptors<'_> = &[&[("small", "x")], &[("large", "x")], &[("plain", "x")]];
    let steps: [(Descriptors<'_>, Code, &[Code]); 8] = [
        (both, ok, &[ok, ok, ok]),
        (both, ok, &[over, ok, ok]),
        (both, ok, &[over, ok, ok]),
        (both, over, &[over, over, ok]),
        (&[&[("small", "x")], &[("plain", "x")]], over, &[over, ok]),
        (&[&[("large", "y")], &[("plain", "x")]], ok, &[ok, ok]),
        (&[&[("large", "y")], &[("plain", "x")]], over, &[ok, over]),
        (&[&[("silent", "x")], &[("unknown", "x")]], ok, &[ok, ok]),
    ];
    for (number, (descriptors, overall, expected)) in steps.into_iter().enumerate() {
        let response = client.ask(&call("edge", descriptors)).await.unwrap();
        let codes: Vec<_> = response.statuses.iter().map(DescriptorStatus::code).collect();
        assert_eq!((response.overall_code(), &*codes), (overall, expected), "step {number}");
    }
    let silent = client.ask(&call("edge", &[&[("silent", "x")]])).await.unwrap();
    assert_eq!(silent.overall_code(), ok, "shadow mode wins");
    let alone = client.ask(&call("edge", &[&[("small", "x")]])).await.unwrap();
    assert_eq!(alone.overall_code(), over);
    server.stop().await;
}
