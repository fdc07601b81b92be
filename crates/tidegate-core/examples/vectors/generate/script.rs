use tidegate_core::Timestamp;

use super::Case;
use super::key::{Limit, Op};

/// The case of a script.
pub(crate) fn case(name: &str, limits: &[Limit], text: &str) -> Case {
    let mut case = Case::new(name, limits[0]);
    for line in text.split(';') {
        let mut words = line.split_whitespace();
        loop {
            let word = words.next().expect("an operation");
            if let Some(time) = word.strip_prefix('@') {
                case = case.at_ns(number(time));
            } else if word == "period" {
                let (index, ends) = (next(&mut words), words.next().expect("an end"));
                case = case.period(index, (ends != "host").then(|| number(ends)));
            } else {
                case = case.op(op(word, limits, &mut words));
                break;
            }
        }
        assert_eq!(words.next(), None, "more than an operation in {line:?}");
    }
    case
}

fn op<'a>(word: &str, limits: &[Limit], words: &mut impl Iterator<Item = &'a str>) -> Op {
    let first = next(words);
    match word {
        "check" => Op::Check { cost: first },
        "postpaid" => Op::CheckPostpaid { cost: first },
        "peek" => Op::Peek { cost: first },
        "refund" => Op::Refund { units: first },
        "hold" => Op::Hold { units: first },
        "commit" => Op::Commit { units: first, actual: next(words) },
        "cancel" => Op::Cancel { units: first },
        "edit" => {
            let index = usize::try_from(first).expect("a small index");
            Op::Edit { limit: limits[index] }
        }
        other => panic!("no such operation: {other}"),
    }
}

fn next<'a>(words: &mut impl Iterator<Item = &'a str>) -> u64 {
    number(words.next().expect("a number"))
}

/// A number with an optional unit of time: `7`, `7ns`, `7us`, `7ms`, `max`, `max-1`, `end`,
/// `end-1`.
fn number(word: &str) -> u64 {
    for (name, value) in [("max", u64::MAX), ("end", Timestamp::MAX.as_nanos())] {
        if let Some(rest) = word.strip_prefix(name) {
            return value - rest.strip_prefix('-').map_or(0, number);
        }
    }
    for (unit, nanos) in [("ns", 1), ("us", 1_000), ("ms", 1_000_000)] {
        if let Some(digits) = word.strip_suffix(unit) {
            return number(digits) * nanos;
        }
    }
    word.parse().expect("a number")
}
