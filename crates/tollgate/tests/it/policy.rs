//! Policy files: what they say, and what is said about them when they are wrong.

use tollgate::policy::{
    Cycle, Durability, Effective, Grant, KeyPart, Limit, Listen, Missing, Mode, Policy, Unmatched,
};
use tollgate::{Bucket, Carry, Cooldown, Quota, Rate, Sliding, WhenFull, Window};

use crate::seconds;

pub(crate) const SAMPLE: &str = include_str!("policy/sample.toml");

#[test]
fn the_sample_says_what_it_says() {
    let parsed = Policy::parse("sample.toml", SAMPLE.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parsed.warnings, []);
    let rules = parsed.policy.rules();
    let limits: Vec<_> = rules.iter().map(|rule| (rule.name(), rule.limit().clone())).collect();
    let Limit::Slots(slots) = &limits[5].1 else { panic!("{:?}", limits[5]) };
    assert_eq!((slots.max(), slots.queue_len()), (3, 100));
    assert_eq!((slots.longest_wait(), slots.expiry()), (None, seconds(300)));
    let bucket = Bucket::new(Rate::per_second(1).unwrap(), 10).unwrap();
    let Limit::Bucket(read) = &limits[0].1 else { panic!("{:?}", limits[0]) };
    assert_eq!((read.rate(), read.burst()), (bucket.rate(), bucket.burst()));
    assert_eq!(limits[1].1, Limit::Window(Window::new(10, seconds(10)).unwrap()));
    assert_eq!(limits[2].1, Limit::Sliding(Sliding::new(100, seconds(60), 10).unwrap()));
    assert_eq!(limits[3].1, Limit::Quota(Quota::new(2, Carry::All).unwrap(), Cycle::Round));
    assert_eq!(limits[4].1, Limit::Cooldown(Cooldown::new(seconds(60)).unwrap()));
    let month = "month in Europe/Helsinki".parse().unwrap();
    let monthly = Quota::new(1_000_000, Carry::UpTo(500)).unwrap();
    assert_eq!(limits[6].1, Limit::Quota(monthly, Cycle::Calendar(month)));
}

#[test]
fn the_sample_has_its_details() {
    let policy = Policy::from_toml(SAMPLE).unwrap();
    let [relay, _, search, propose, _, _, rest] = policy.rules() else { panic!() };
    assert_eq!(relay.deny_reason(), Some("per-connection rate limit exceeded"));
    assert_eq!((search.group_name(), search.is_shadow()), (Some("search"), true));
    assert_eq!(search.conditions().len(), 5);
    let [first, second] = search.overrides() else { panic!() };
    let thousand = Sliding::new(1_000, seconds(60), 10).unwrap();
    assert_eq!(first.grant(), &Grant::Limit(Limit::Sliding(thousand)));
    assert_eq!(second.grant(), &Grant::Unlimited);
    assert_eq!(second.until_ns(), Some(1_798_761_600_000_000_000));
    let costs = propose.cost_table().unwrap();
    assert_eq!(
        ["0", "1", "5", "7", "x"].map(|tier| costs.cost(tier)),
        [None, Some(1), Some(2), Some(3), None]
    );
    let address = KeyPart::Address { attribute: "ip".into(), v4_bits: 24, v6_bits: 56 };
    assert_eq!(rest.key_parts().parts(), [address, KeyPart::Text("tenant".into())]);
    assert_eq!(rest.domain_name(), "default");
    assert_eq!(rest.cost_table().unwrap().cost("anything"), Some(5));
    assert_eq!(
        (rest.missing_attribute(), rest.how_durable()),
        (Missing::Share, Some(Durability::Flush))
    );
    assert_eq!((rest.held_for(), rest.effective_from()), (seconds(5_400), Effective::Next));
    assert!(rest.charges_refused());
}

#[test]
fn the_server_table_says_what_it_says() {
    let policy = Policy::from_toml(SAMPLE).unwrap();
    let server = policy.server();
    assert_eq!(server.http(), Some(&Listen::At("127.0.0.1:8080".into())));
    assert_eq!(server.grpc(), Some(&Listen::Off));
    assert_eq!(server.admin_token().unwrap().reveal(), "correct horse battery staple");
    assert!(!format!("{server:?}").contains("horse"));
    assert_eq!(server.store(), Some("file:/var/lib/tollgate"));
    assert_eq!(server.trusted_proxies().len(), 3);
    assert_eq!((server.max_keys(), server.enforce_ppm()), (1_000_000, 100_000));
    assert_eq!((server.when_full(), server.unmatched()), (WhenFull::Deny, Unmatched::Deny));
    let none = Policy::from_toml("rule = [{ name = 'a', cooldown = '1s' }]").unwrap();
    assert_eq!((none.server().max_keys(), none.server().enforce_ppm()), (1 << 24, 1_000_000));
    assert_eq!(none.rules()[0].mode_of(), Mode::Enforce);
}
