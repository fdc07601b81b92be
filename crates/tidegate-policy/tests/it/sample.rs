//! Policy files: what they contain, and the errors of invalid ones.

use tidegate::policy::{
    Charging, Condition, CostTable, Durability, Effective, Grant, KeyPart, Limit, Listen, Missing,
    Mode, Override, Parsed, Periods, Policy, Rule, Slots, Unmatched,
};
use tidegate::{
    Bucket, Cooldown, Rate, Request, Sliding, WhenFull, Window,
    policy::{Carry, Quota},
};

use crate::seconds;

pub(crate) const SAMPLE: &str = include_str!("sample.toml");

#[test]
fn the_sample_parses_into_its_limits() {
    let parsed = Policy::parse("sample.toml", SAMPLE.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(parsed.warnings, []);
    let rules = parsed.policy.rules();
    let limits: Vec<_> = rules.iter().map(|rule| (rule.name(), rule.limit().clone())).collect();
    let Limit::Slots(slots) = &limits[5].1 else { panic!("{:?}", limits[5]) };
    assert_eq!((slots.max(), slots.queue_len()), (3, 100));
    assert_eq!((slots.longest_wait(), slots.expiry()), (None, seconds(300)));
    let bucket = Bucket::per_second(1).burst(10);
    let Limit::Bucket(read) = &limits[0].1 else { panic!("{:?}", limits[0]) };
    assert_eq!((read.rate(), read.capacity()), (bucket.rate(), bucket.capacity()));
    assert_eq!(limits[1].1, Limit::Window(Window::new(10, seconds(10))));
    assert_eq!(limits[2].1, Limit::Sliding(Sliding::new(100, seconds(60), 10)));
    assert_eq!(limits[3].1, Limit::Quota(Quota::new(2, Carry::All), Periods::Round));
    assert_eq!(limits[4].1, Limit::Cooldown(Cooldown::new(seconds(60))));
    let month = "month in Europe/Helsinki".parse().unwrap();
    let monthly = Quota::new(1_000_000, Carry::UpTo(500));
    assert_eq!(limits[6].1, Limit::Quota(monthly, Periods::Calendar(month)));
}

#[test]
fn the_sample_parses_into_its_details() {
    let policy = Policy::from_toml(SAMPLE).unwrap();
    let [relay, _, search, propose, _, _, rest] = policy.rules() else { panic!() };
    assert_eq!(relay.deny_reason(), Some("per-connection rate limit exceeded"));
    assert_eq!((search.group(), search.is_shadow()), (Some("search"), true));
    assert_eq!(search.conditions().len(), 5);
    let [first, second] = search.overrides() else { panic!() };
    let thousand = Sliding::new(1_000, seconds(60), 10);
    assert_eq!(first.grant(), &Grant::Limit(Limit::Sliding(thousand)));
    assert_eq!(second.grant(), &Grant::Unlimited);
    assert_eq!(second.until_ns(), Some(1_798_761_600_000_000_000));
    let costs = propose.cost().unwrap();
    assert_eq!(
        ["0", "1", "5", "7", "x"].map(|tier| costs.cost(tier)),
        [None, Some(1), Some(2), Some(3), None]
    );
    let address = KeyPart::Address { attribute: "ip".into(), v4_bits: 24, v6_bits: 56 };
    assert_eq!(rest.key().parts(), [address, KeyPart::Text("tenant".into())]);
    assert_eq!(rest.domain(), "default");
    assert_eq!(rest.cost().unwrap().cost("anything"), Some(5));
    assert_eq!((rest.missing(), rest.durability()), (Missing::Share, Some(Durability::Flush)));
    assert_eq!((rest.reserve_for(), rest.effective()), (seconds(5_400), Effective::Next));
    assert_eq!(rest.charging(), Charging::Refused);
}

#[test]
fn the_server_table_parses_into_its_settings() {
    let Parsed { policy, server, .. } = Policy::parse("policy.toml", SAMPLE.as_bytes()).unwrap();
    assert_eq!(server.http(), Some(&Listen::At("127.0.0.1:8080".into())));
    assert_eq!(server.grpc(), Some(&Listen::Off));
    assert_eq!(server.tokens(), Some("/etc/tidegate/tokens.toml"));
    assert_eq!(server.store_secret().unwrap().reveal(), "correct horse battery staple");
    assert!(!format!("{server:?}").contains("horse"));
    assert_eq!(server.store(), Some("file:/var/lib/tidegate"));
    assert_eq!(server.trusted_proxies().len(), 3);
    let settings = policy.settings();
    assert_eq!((settings.max_keys(), settings.enforce_ppm()), (1_000_000, 100_000));
    assert_eq!((settings.when_full(), settings.unmatched()), (WhenFull::Deny, Unmatched::Deny));
    let none = Policy::from_toml("rule = [{ name = 'a', cooldown = '1s' }]").unwrap();
    assert_eq!((none.settings().max_keys(), none.settings().enforce_ppm()), (1 << 24, 1_000_000));
    assert_eq!(none.rules()[0].mode(), Mode::Enforce);
}

#[test]
fn rules_that_are_built_in_code_are_checked_as_well() {
    let cooldown = || Limit::Cooldown(Cooldown::new(seconds(1)));
    let rule = || Rule::builder("a", cooldown());
    let slots = |max| Rule::builder("a", Limit::Slots(Slots::new(max)));
    let ip = || vec![Condition::new("ip", ["10.0.0.0/8"]).unwrap()];
    for (rules, what) in [
        (vec![], "no rule"),
        (vec![rule(), rule()], "rule `a` of domain `default`: the name `a` is already used"),
        (vec![Rule::builder("", cooldown())], "empty"),
        (vec![rule().domain("")], "empty"),
        (vec![Rule::builder(&"x".repeat(129), cooldown())], "longer than 128 bytes"),
        (vec![rule().matching("a", [])], "has no patterns"),
        (vec![rule().matching("a", ["x"]).matching("a", ["y"])], "twice"),
        (vec![rule().cost(CostTable::fixed(0))], "at least 1"),
        (vec![rule().cost(CostTable::by("tier"))], "no rows"),
        (vec![slots(0)], "at least 1"),
        (vec![slots(1).cost(CostTable::fixed(2))], "one slot"),
        (vec![rule().reserve_for(seconds(0))], "above zero"),
        (vec![rule().overridden(Override::new(ip(), Grant::Unlimited))], "nothing to override"),
        (
            vec![rule().key(["user"]).overridden(Override::new(ip(), Grant::Unlimited))],
            "`ip` is not in the key",
        ),
        (
            vec![
                rule()
                    .key(["ip"])
                    .overridden(Override::new(ip(), Grant::Limit(Limit::Slots(Slots::new(1))))),
            ],
            "cannot be overridden by a `slots`",
        ),
    ] {
        let rules = rules.into_iter().map(|rule| rule.build().unwrap());
        let errors = Policy::new(rules).unwrap_err().to_string();
        assert!(errors.contains(what), "{what}: {errors}");
    }
    let both = [rule(), rule().domain("other")].map(|rule| rule.build().unwrap());
    assert!(Policy::new(both).is_ok());
    assert!(rule().matching("ip", ["10.0.0.1/8"]).build().is_err());
    assert!(rule().key(["ip", "ip"]).build().is_err());
    // The first error is reported, whatever follows.
    let twice = rule().matching("ip", ["10.0.0.1/8"]).key(["u", "u"]).key(["u"]).build();
    let alone = rule().matching("ip", ["10.0.0.1/8"]).build();
    assert_eq!(twice.unwrap_err(), alone.unwrap_err());
}

#[test]
fn an_override_keeps_the_numbers_that_it_does_not_give() {
    for (rule, exception, rate, burst) in [
        ("rate = '1/s', burst = 10", "burst = 20", 1, 20),
        ("rate = '1/s', burst = 10", "rate = '2/s'", 2, 10),
        ("rate = '1/s'", "rate = '7/s'", 7, 7),
    ] {
        let text = format!(
            "[[rule]]\nname = 'a'\nkey = ['ip']\nbucket = {{ {rule} }}\n\
             override = [{{ key = {{ ip = '10.0.0.1' }}, {exception} }}]"
        );
        let policy = Policy::from_toml(&text).unwrap();
        let grant = policy.rules()[0].overrides()[0].grant();
        let Grant::Limit(Limit::Bucket(bucket)) = grant else { panic!("{grant:?}") };
        assert_eq!((bucket.rate(), bucket.capacity()), (Rate::per_second(rate), burst));
    }
}

#[test]
fn an_override_ends() {
    let text = "[[rule]]\nname = 'a'\nkey = ['ip']\ncooldown = '1s'\n\
                override = [{ key = { ip = '10.*' }, unlimited = true, until = 1970-01-01T00:00:01Z }]";
    let policy = Policy::from_toml(text).unwrap();
    let exception = &policy.rules()[0].overrides()[0];
    let request = Request::new("default", &[("ip", "10.0.0.1")]);
    assert!(exception.applies(&request.attributes(), 999_999_999));
    assert!(!exception.applies(&request.attributes(), 1_000_000_000));
    assert!(!exception.applies(&Request::new("default", &[("ip", "11.0.0.1")]).attributes(), 0));
}
