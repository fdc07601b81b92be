//! Any policy and any overlay that code can build is written and parsed again as the same.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tidegate::policy::{
    Charging, Condition, CostTable, Durability, Effective, Empty, Grant, Limit, Missing, Mode,
    OnError, Override, Pattern, Periods, Policy, Rule, RuleBuilder, Share, Slots,
};
use tidegate::{
    Bucket, Cooldown, Edit, Rate, Sliding, StoreEngine, Timestamp, Window,
    edit::{Ban, Overlay},
    limiter::Debt,
    policy::{Carry, Quota},
};

/// What an override shares with its rule.
#[derive(Clone, Debug)]
struct Fixed {
    algorithm: u8,
    is_aligned: bool,
    periods: Periods,
    priority: Option<String>,
}

/// Text with everything that has to be escaped, or looks like something else.
fn odd() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "\0",
        "\u{1b}",
        "\u{7f}",
        "\u{9f}",
        "\n",
        "\r\n",
        "\t",
        "\"",
        "\"\"\"",
        "'",
        "'''",
        "\\",
        "\\u0041",
        "\u{202e}",
        "\u{feff}",
        "\u{2028}",
        "\u{e0001}",
        "\u{10ffff}",
        "ä",
        "€",
        "😀",
        "#",
        "=",
        ",",
        "[",
        "]",
        "{",
        "}",
        ".",
        "..",
        "/",
        "*",
        " ",
        "a",
        "by",
        "5",
        "-1",
        "1..=9",
        "ip",
    ]);
    prop_oneof![3 => vec(piece, 0..5).prop_map(|pieces| pieces.concat()), 1 => ".{0,12}"]
}

fn not_blank() -> impl Strategy<Value = String> {
    odd().prop_map(|text| if text.trim().is_empty() { format!("x{text}") } else { text })
}

/// The name of a rule, a domain or an attribute.
fn name() -> impl Strategy<Value = String> {
    not_blank().prop_map(|text| text.chars().filter(|c| !c.is_control()).collect::<String>() + "n")
}

/// A whole number of a file, often a special one.
fn number() -> impl Strategy<Value = u64> {
    let special = select(vec![1, 2, 9, 10, 15, 1_024, 1 << 32, 1 << 63, u64::MAX]);
    prop_oneof![2 => special, 1 => 1..100_u64, 1 => 1..=u64::MAX]
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![1..20_u64, Just(u64::from(u32::MAX))]
}

fn duration() -> impl Strategy<Value = Duration> {
    let unit = select(vec![1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 86_400_000_000_000]);
    let some = (unit, 1..2_000_u64).prop_map(|(unit, count)| unit * count);
    let exact = select(vec![600_000_000_000, i64::MAX.cast_unsigned()]);
    prop_oneof![4 => some, 1 => exact, 1 => 1..=i64::MAX.cast_unsigned()]
        .prop_map(Duration::from_nanos)
}

fn pattern() -> impl Strategy<Value = String> {
    let range =
        (any::<i64>(), any::<i64>()).prop_map(|(a, b)| format!("{}..={}", a.min(b), a.max(b)));
    let special = select(vec![
        "",
        "..",
        "..=5",
        "7..",
        "-9223372036854775808..",
        "..=-9223372036854775808",
        "10.0.0.0/8",
        "::ffff:1.2.3.4",
        "::ffff:1.2.3.0/120",
        "2001:db8::/32",
        "::/0",
        "0.0.0.0/0",
        "::1.2.3.4",
        "*",
        "a*b",
        "1.2.3.4",
        "fe80::1",
        "by",
        "+5",
        "٣",
    ]);
    let text =
        odd().prop_filter("a text that is nearly a pattern", |it| it.parse::<Pattern>().is_ok());
    prop_oneof![2 => special.prop_map(str::to_owned), 1 => range, 3 => text]
}

/// Conditions about the given attributes, each with one pattern or more.
fn conditions(attributes: Vec<String>) -> impl Strategy<Value = Vec<Condition>> {
    let lists = vec(vec(pattern(), 1..4), attributes.len());
    lists.prop_map(move |lists| {
        let of = |(name, list): (&String, Vec<String>)| {
            Condition::new(name, list.iter().map(String::as_str)).unwrap()
        };
        attributes.iter().zip(lists).map(of).collect()
    })
}

fn attributes() -> impl Strategy<Value = Vec<String>> {
    vec(prop_oneof![Just("ip".to_owned()), name()], 0..4).prop_map(|mut names| {
        let all = names.clone();
        let mut at = 0;
        names.retain(|name| {
            at += 1;
            !all[..at - 1].contains(name)
        });
        names
    })
}

fn fixed() -> impl Strategy<Value = Fixed> {
    let calendar =
        select(vec!["minute", "day in UTC", "month in Europe/Helsinki", "year in Etc/GMT+5"]);
    let calendar = calendar.prop_map(|text| Periods::Calendar(text.parse().unwrap()));
    let periods = prop_oneof![Just(Periods::Round), calendar];
    (0..6_u8, any::<bool>(), periods, of(not_blank())).prop_map(
        |(algorithm, is_aligned, periods, priority)| Fixed {
            algorithm,
            is_aligned,
            periods,
            priority,
        },
    )
}

fn limit(fixed: Fixed) -> BoxedStrategy<Limit> {
    match fixed.algorithm {
        0 => (number(), duration(), of(number()), of(number()))
            .prop_filter_map("a bucket", |(count, period, burst, debt)| {
                let rate = Rate::try_new(count, period).ok()?;
                let bucket = Bucket::try_new(rate, burst.unwrap_or(count)).ok()?;
                bucket.with_debt(Debt::up_to(debt.unwrap_or(0))).ok().map(Limit::Bucket)
            })
            .boxed(),
        1 => (small(), duration())
            .prop_map(move |(max, per)| {
                let window = Window::new(max, per);
                Limit::Window(if fixed.is_aligned { window.aligned() } else { window })
            })
            .boxed(),
        2 => (small(), duration(), prop_oneof![Just(10_u32), 1..=15_u32])
            .prop_filter_map("parts", |(max, per, parts)| {
                Sliding::try_new(max, per, parts).ok().map(Limit::Sliding)
            })
            .boxed(),
        3 => duration().prop_map(|gap| Limit::Cooldown(Cooldown::new(gap))).boxed(),
        4 => {
            let carry =
                prop_oneof![Just(Carry::Nothing), Just(Carry::All), number().prop_map(Carry::UpTo)];
            let debt =
                prop_oneof![Just(Debt::Nothing), Just(Debt::All), number().prop_map(Debt::UpTo)];
            (number(), carry, debt)
                .prop_map(move |(max, carry, debt)| {
                    let quota = Quota::new(max, carry).with_debt(debt).unwrap();
                    Limit::Quota(quota, fixed.periods.clone())
                })
                .boxed()
        }
        _ => (number(), of(0..3_000_usize), of(duration()), of(duration()))
            .prop_map(move |(max, queue, wait, expires)| {
                let mut slots = Slots::new(max);
                slots = queue.map_or(slots.clone(), |queue| slots.queue(queue));
                slots = wait.map_or(slots.clone(), |wait| slots.wait(wait));
                slots = expires.map_or(slots.clone(), |expires| slots.expires(expires));
                Limit::Slots(match &fixed.priority {
                    Some(priority) => slots.priority(priority),
                    None => slots,
                })
            })
            .boxed(),
    }
}

/// An override of a rule with this limit and these attributes in its key.
fn exception(fixed: Fixed, own: Limit, key: Vec<String>) -> impl Strategy<Value = Override> {
    let most = key.len();
    let grant = prop_oneof![
        3 => limit(fixed).prop_map(Grant::Limit),
        1 => Just(Grant::Limit(own)),
        1 => Just(Grant::Unlimited),
    ];
    let keys = subsequence(key, 1..=most).prop_shuffle().prop_flat_map(conditions);
    let until = of(prop_oneof![Just(0), Just(u64::MAX), any::<u64>()]);
    (keys, grant, until).prop_map(|(key, grant, until)| {
        let given = Override::new(key, grant);
        until.map_or(given.clone(), |until| given.until(until))
    })
}

fn costs() -> impl Strategy<Value = CostTable> {
    let rows = vec((pattern(), number()), 1..4);
    let table = (not_blank(), rows).prop_map(|(by, rows)| {
        let add =
            |costs: CostTable, (row, cost): (String, u64)| costs.row(row.parse().unwrap(), cost);
        rows.into_iter().fold(CostTable::by(&by), add)
    });
    prop_oneof![number().prop_map(CostTable::fixed), table]
}

/// The parts of a key, and the attributes that they take.
fn key() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    let address = select(vec!["", "ip", "ip/56", "ip4/24", "ip4/24 ip/128", "ip/1 ip4/32"]);
    (address, attributes(), any::<bool>()).prop_map(|(address, mut names, is_first)| {
        names.retain(|name| name != "ip" && !name.starts_with("ip/") && !name.starts_with("ip4"));
        let mut parts = names.clone();
        let at = if is_first { 0 } else { parts.len() };
        for part in address.split_whitespace() {
            parts.insert(at, part.to_owned());
        }
        names.extend((!address.is_empty()).then(|| "ip".to_owned()));
        (parts, names)
    })
}

fn rule() -> impl Strategy<Value = Rule> {
    let limited = (fixed(), key()).prop_flat_map(|(fixed, (parts, names))| {
        limit(fixed.clone()).prop_flat_map(move |own| {
            let most = if names.is_empty() { 0 } else { 3 };
            // A key without attributes has no overrides; there has to be a name to choose from.
            let names = if names.is_empty() { vec!["none".to_owned()] } else { names.clone() };
            let overrides = vec(exception(fixed.clone(), own.clone(), names), 0..=most);
            (Just(parts.clone()), Just(own), overrides)
        })
    });
    let texts = (name(), of(name()), of(not_blank()), of(not_blank()));
    let matched = attributes().prop_flat_map(conditions);
    let choices = (
        select(vec![Mode::Enforce, Mode::Shadow]),
        prop_oneof![
            select(vec![OnError::Allow, OnError::Deny]),
            (1..=1_000_000_u32).prop_map(|it| OnError::Local(Share::from_millionths(it).unwrap())),
        ],
        (
            select(vec![Missing::Refuse, Missing::Skip, Missing::Share]),
            select(vec![Empty::Accept, Empty::Reject]),
        ),
        of(select(vec![Durability::Memory, Durability::Flush, Durability::Fsync])),
        of(prop_oneof![duration(), Just(Duration::from_nanos(u64::MAX))]),
        select(vec![Charging::Allowed, Charging::Refused, Charging::Postpaid]),
        select(vec![Effective::Now, Effective::Next]),
    );
    let built = (texts, matched, limited, of(costs()), choices).prop_map(
        |((name, domain, deny, group), matched, (parts, own, overrides), costs, choices)| {
            let (mode, on_error, (missing, empty), durability, reserve_for, charging, effective) =
                choices;
            let is_divisible =
                matches!(own, Limit::Bucket(_) | Limit::Window(_) | Limit::Sliding(_));
            let on_error = match on_error {
                OnError::Local(_) if !is_divisible => OnError::Allow,
                on_error => on_error,
            };
            let mut rule = Rule::builder(&name, own)
                .mode(mode)
                .on_error(on_error)
                .missing(missing)
                .empty(empty)
                .effective(effective)
                .key(parts.iter().map(String::as_str));
            for condition in &matched {
                let patterns: Vec<_> = condition.any_of().iter().map(ToString::to_string).collect();
                let patterns = patterns.iter().map(String::as_str);
                rule = rule.matching(condition.attribute(), patterns);
            }
            rule = overrides.into_iter().fold(rule, RuleBuilder::overridden);
            rule = domain.map_or(rule.clone(), |domain| rule.domain(&domain));
            rule = deny.map_or(rule.clone(), |deny| rule.deny(&deny));
            rule = group.map_or(rule.clone(), |group| rule.group(&group));
            rule = costs.map_or(rule.clone(), |costs| rule.cost(costs));
            rule = durability.map_or(rule.clone(), |durability| rule.durability(durability));
            rule = reserve_for.map_or(rule.clone(), |reserve_for| rule.reserve_for(reserve_for));
            let rule = match charging {
                Charging::Allowed => rule,
                Charging::Refused => rule.charge_refused(),
                Charging::Postpaid => rule.postpaid(),
            };
            rule.build().unwrap()
        },
    );
    // What is left has costs for slots, rows that overlap, or a row named `by`.
    built.prop_filter("a rule that a policy takes", |rule| Policy::new([rule.clone()]).is_ok())
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    vec(rule(), 1..4).prop_map(|mut rules| {
        let mut names = Vec::new();
        rules.retain(|rule| {
            let name = (rule.domain().to_owned(), rule.name().to_owned());
            let is_new = !names.contains(&name);
            names.push(name);
            is_new
        });
        rules
    })
}

fn ban() -> impl Strategy<Value = Ban> {
    let condition = (name(), vec(pattern(), 0..3)).prop_map(|(name, list)| {
        let name = if list.len() == 2 { "twice" } else { &name };
        Condition::new(name, list.iter().map(String::as_str)).unwrap()
    });
    (odd(), vec(condition, 0..5), of(any::<u64>()), of(odd())).prop_map(
        |(domain, conditions, until, reason)| {
            let ban = Ban::new(&domain, conditions);
            let ban = until.map_or(ban.clone(), |until| ban.until(Timestamp::from_nanos(until)));
            reason.map_or(ban.clone(), |reason| ban.reason(&reason))
        },
    )
}

proptest! {
    #[test]
    fn a_policy_round_trips(rules in rules()) {
        let policy = Policy::new(rules).unwrap();
        let text = policy.to_toml();
        let read = Policy::from_toml(&text);
        prop_assert!(read.is_ok(), "{}\n{}", read.unwrap_err(), text);
        prop_assert_eq!(read.unwrap(), policy, "{}", text);
    }

    #[test]
    fn an_overlay_round_trips(rules in rules(), bans in vec(ban(), 0..4)) {
        let file = "rule = [{ name = 'a', cooldown = '1s' }]";
        let engine = StoreEngine::new(Policy::from_toml(file).unwrap());
        for rule in &rules {
            engine.edit("test", Edit::rule(rule.clone())).block().unwrap();
            for given in rule.overrides() {
                engine.edit("test", Edit::set_override(rule.id(), given.clone())).block().unwrap();
            }
        }
        for ban in bans {
            engine.edit("test", Edit::ban(ban)).block().unwrap();
        }
        let overlay = engine.overlay();
        let text = overlay.to_toml();
        let read = Overlay::from_toml(&text);
        prop_assert!(read.is_ok(), "{}\n{}", read.unwrap_err(), text);
        prop_assert_eq!(read.unwrap(), overlay, "{}", text);
    }
}
