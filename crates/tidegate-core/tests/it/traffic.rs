//! Never too little: traffic that conforms is admitted, and nothing else.
//!
//! Here the limit is a predicate on the list of admissions, with no state at all.

use num_bigint::BigInt;
use proptest::prelude::*;
use tidegate_core::{Algorithm, Sliding, Timestamp};

use crate::model::{debt, most_in, nanos};
use crate::strategies::{self, Amount, Move, Subject};

fn arrivals() -> impl Strategy<Value = Vec<(Move, Amount)>> {
    prop::collection::vec((strategies::forward(), strategies::amount()), 1..60)
}

/// The arrivals as times and costs above zero.
fn resolve<S: Subject>(limit: &S, arrivals: &[(Move, Amount)]) -> Vec<(u64, u64)> {
    let mut now = 0;
    let resolve = |(time, amount): &(Move, Amount)| {
        now = time.from(now, limit.scales());
        (now, amount.of(limit.capacity()).max(1))
    };
    arrivals.iter().map(resolve).collect()
}

proptest! {
    #![proptest_config(strategies::config())]

    #[test]
    fn bucket_admits_exactly_what_fits_every_interval(
        limit in strategies::bucket(),
        arrivals in arrivals(),
    ) {
        let (mut state, mut admitted) = (limit.fresh(), Vec::<(u64, u64)>::new());
        for (now, cost) in resolve(&limit, &arrivals) {
            // Checks never use the debt.
            let most = |length| most_in(&limit, length) - BigInt::from(debt(&limit));
            let mut sum = BigInt::from(cost);
            let mut fits = sum <= most(0);
            for (at, units) in admitted.iter().rev() {
                sum += *units;
                fits &= sum <= most(now - at);
            }
            let decision = limit.check(&mut state, cost, Timestamp::from_nanos(now));
            prop_assert_eq!(decision.is_allowed(), fits, "{} at {}", cost, now);
            if fits {
                admitted.push((now, cost));
            }
        }
    }

    #[test]
    fn sliding_log_admits_exactly_what_fits_the_window(
        limit in (1..=8_u64, strategies::length())
            .prop_map(|(max, per)| Sliding::new(max, per, 1)),
        arrivals in arrivals(),
    ) {
        let (mut state, mut admitted) = (limit.fresh(), Vec::<(u64, u64)>::new());
        for (now, cost) in resolve(&limit, &arrivals) {
            let in_window = admitted.iter().filter(|(at, _)| now - at < nanos(limit.per()));
            let taken: u64 = in_window.map(|(_, units)| units).sum();
            let fits = cost <= limit.max() - taken;
            let decision = limit.check(&mut state, cost, Timestamp::from_nanos(now));
            prop_assert_eq!(decision.is_allowed(), fits, "{} at {}", cost, now);
            if fits {
                admitted.push((now, cost));
            }
        }
    }

    #[test]
    fn sliding_parts_admit_traffic_of_max_per_window_and_a_part(
        limit in strategies::sliding(),
        arrivals in arrivals(),
    ) {
        let (mut state, mut sent) = (limit.fresh(), Vec::<(u64, u64)>::new());
        let parts = u128::from(limit.parts());
        let longer = (parts + 1) * u128::from(nanos(limit.per()));
        for (now, cost) in resolve(&limit, &arrivals) {
            let counted = sent.iter().filter(|(at, _)| u128::from(now - at) * parts < longer);
            let taken: u64 = counted.map(|(_, units)| units).sum();
            // A polite client: it sends nothing beyond its limit.
            if cost > limit.max() - taken {
                continue;
            }
            let decision = limit.check(&mut state, cost, Timestamp::from_nanos(now));
            prop_assert!(decision.is_allowed(), "{} at {}", cost, now);
            sent.push((now, cost));
        }
    }
}
