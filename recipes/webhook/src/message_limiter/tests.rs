use std::time::Duration;

use tidegate::{
    StoreEngine, Timestamp, WhenFull,
    clock::ManualClock,
    store::{MemoryStore, StoreBounds},
};

use super::{Claimed, MessageLimiter};
use crate::limits::{Algorithm, Limits, UserLimit};
use crate::update::Message;

mod log;
mod outage;

fn limiter(limits: &Limits, clock: &ManualClock) -> MessageLimiter {
    MessageLimiter::new(
        StoreEngine::builder(limits.policy().unwrap()).clock(clock.clone()).build().unwrap(),
    )
}

fn three() -> Limits {
    Limits { max: 3, ..Limits::default() }
}

fn message(user: u64, update_id: i64) -> Message {
    Message { update_id, user, chat: 1 }
}

/// What remains after an allowed message; `None` if it is denied or a duplicate.
async fn pass(limiter: &MessageLimiter, message: Message) -> Option<u64> {
    let checked = limiter.check(&message).await;
    let remaining = checked.remaining;
    (limiter.claim(checked).await == Claimed::First).then(|| remaining.unwrap_or(u64::MAX))
}

#[tokio::test]
async fn check_returns_the_verdict_and_what_remains() {
    let limiter = limiter(&three(), &ManualClock::default());
    for (update, remaining) in [(1, 2), (2, 1), (3, 0)] {
        let checked = limiter.check(&message(7, update)).await;
        assert_eq!((checked.allowed, checked.remaining), (true, Some(remaining)));
        assert_eq!(limiter.claim(checked).await, Claimed::First);
    }
    let denied = limiter.check(&message(7, 4)).await;
    assert_eq!((denied.allowed, denied.remaining), (false, Some(0)));
    assert_eq!(limiter.claim(denied).await, Claimed::Again, "a denied message is not dispatched");
    assert_eq!(pass(&limiter, message(8, 5)).await, Some(2), "another user has another count");
}

/// `windowKey = floor(now_ms / window_ms)`: the window begins by the clock, not with a message.
#[tokio::test]
async fn windows_are_aligned_to_1970() {
    let hour_ms = 3_600_000;
    let clock = ManualClock::new(Timestamp::from_millis(480_000 * hour_ms + hour_ms - 1));
    let limiter = limiter(&three(), &clock);
    for update in 0..3 {
        assert!(pass(&limiter, message(7, update)).await.is_some());
    }
    assert_eq!(pass(&limiter, message(7, 3)).await, None);
    clock.advance(Duration::from_millis(1));
    assert_eq!(pass(&limiter, message(7, 4)).await, Some(2), "the next window");
    clock.advance(Duration::from_millis(hour_ms - 1));
    assert_eq!(pass(&limiter, message(7, 5)).await, Some(1), "its last millisecond");
    clock.advance(Duration::from_millis(1));
    assert_eq!(pass(&limiter, message(7, 6)).await, Some(2));
}

#[tokio::test]
async fn denied_messages_do_not_count() {
    let clock = ManualClock::default();
    for algorithm in [Algorithm::Window, Algorithm::Sliding, Algorithm::Bucket] {
        let limiter = limiter(&Limits { algorithm, ..three() }, &clock);
        for update in 0..3 {
            assert!(pass(&limiter, message(7, update)).await.is_some());
        }
        for update in 3..100 {
            assert_eq!(pass(&limiter, message(7, update)).await, None);
        }
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(pass(&limiter, message(7, 100)).await, Some(2), "{algorithm:?}");
    }
}

/// A fixed window allows 2 × 3 within a millisecond; the other two do not.
#[tokio::test]
async fn sliding_windows_and_buckets_have_no_double_burst() {
    for (algorithm, passes) in
        [(Algorithm::Window, 6), (Algorithm::Sliding, 3), (Algorithm::Bucket, 3)]
    {
        let clock = ManualClock::new(Timestamp::from_millis(3_600_000 * 480_000 - 1));
        let limiter = limiter(&Limits { algorithm, ..three() }, &clock);
        let mut passed = 0;
        for update in 0..10 {
            if update == 5 {
                clock.advance(Duration::from_millis(1));
            }
            passed += u32::from(pass(&limiter, message(7, update)).await.is_some());
        }
        assert_eq!(passed, passes, "{algorithm:?}");
    }
}

#[tokio::test]
async fn some_users_have_another_maximum_or_none() {
    let users = vec![UserLimit { user: 7, max: Some(1) }, UserLimit { user: 8, max: None }];
    let limiter = limiter(&Limits { users, ..three() }, &ManualClock::default());
    assert_eq!(pass(&limiter, message(7, 1)).await, Some(0));
    assert_eq!(pass(&limiter, message(7, 2)).await, None);
    for update in 0..100 {
        let checked = limiter.check(&message(8, update)).await;
        assert_eq!((checked.allowed, checked.remaining), (true, None));
        assert_eq!(limiter.claim(checked).await, Claimed::First);
    }
    assert_eq!(
        pass(&limiter, message(8, 99)).await,
        None,
        "a duplicate is a duplicate, limit or not"
    );
    assert_eq!(pass(&limiter, message(77, 1)).await, Some(2), "7 is not a part of 77");
}

#[tokio::test]
async fn duplicate_message_is_charged_and_claimed_once() {
    let clock = ManualClock::default();
    let limiter = limiter(&three(), &clock);
    let (first, second) =
        (limiter.check(&message(7, 1)).await, limiter.check(&message(7, 1)).await);
    assert_eq!((first.remaining, second.remaining), (Some(2), Some(2)));
    // Only the first claim succeeds, whichever of them that is.
    assert_eq!(limiter.claim(second).await, Claimed::First);
    assert_eq!(limiter.claim(first).await, Claimed::Again);
    assert!(limiter.is_claimed(&limiter.check(&message(7, 1)).await).await);
    clock.advance(Duration::from_secs(23 * 3_600));
    assert_eq!(pass(&limiter, message(7, 1)).await, None, "also a day later");
    assert_eq!(pass(&limiter, message(7, 2)).await, Some(2));
    assert_eq!(
        pass(&limiter, message(9, 1)).await,
        Some(2),
        "of another user it is another message"
    );
}

#[tokio::test]
async fn unclaimed_message_costs_nothing_and_can_be_resent() {
    let clock = ManualClock::default();
    let limiter = limiter(&Limits { max: 1, ..Limits::default() }, &clock);
    let left = limiter.check(&message(7, 1)).await;
    assert!(left.allowed);
    assert!(!limiter.check(&message(7, 2)).await.allowed, "it is held");
    clock.advance(Duration::from_secs(600));
    assert_eq!(limiter.claim(left).await, Claimed::Released, "too late");
    assert_eq!(pass(&limiter, message(7, 1)).await, Some(0), "as if it had never been checked");
}

/// A store in memory never fails, but one with room for one reservation cannot make a second.
#[tokio::test]
async fn failed_reservation_allows_messages_and_is_logged() {
    let mut bounds = StoreBounds::new(100, WhenFull::Share);
    bounds.max_holds = 1;
    let store = MemoryStore::with_bounds(bounds).unwrap();
    let engine = StoreEngine::builder(three().policy().unwrap())
        .store(store)
        .clock(ManualClock::default())
        .build()
        .unwrap();
    let (log, _guard) = log::begun();
    let limiter = MessageLimiter::new(engine);
    let _held = limiter.check(&message(7, 1)).await;
    assert_eq!(log.text(), "");
    let checked = limiter.check(&message(7, 2)).await;
    assert_eq!((checked.allowed, checked.remaining), (true, None));
    assert_eq!(limiter.claim(checked).await, Claimed::First);
    let text = log.text();
    assert!(
        text.contains("WARN") && text.contains("message allowed without being counted: "),
        "{text}"
    );
    assert!(text.contains("user=7") && text.contains("update_id=2"), "{text}");
}

#[tokio::test]
async fn released_message_costs_nothing_and_can_be_resent() {
    let limiter = limiter(&Limits { max: 1, ..Limits::default() }, &ManualClock::default());
    let checked = limiter.check(&message(7, 1)).await;
    let repeated = limiter.check(&message(7, 1)).await;
    assert!(!limiter.is_claimed(&checked).await && !limiter.is_claimed(&repeated).await);
    // A repeat gives nothing back that the first one may still claim.
    limiter.release(repeated).await;
    assert!(!limiter.check(&message(7, 2)).await.allowed);
    limiter.release(checked).await;
    assert_eq!(pass(&limiter, message(7, 2)).await, Some(0));
    assert!(!limiter.check(&message(7, 1)).await.allowed, "decided again, as a new message");
}

#[tokio::test]
async fn claim_of_a_released_message_is_no_duplicate() {
    let limiter = limiter(&three(), &ManualClock::default());
    let checked = limiter.check(&message(7, 1)).await;
    let repeated = limiter.check(&message(7, 1)).await;
    limiter.release(checked).await;
    assert_eq!(limiter.claim(repeated).await, Claimed::Released);
    assert_eq!(pass(&limiter, message(7, 1)).await, Some(2));
}

#[tokio::test]
async fn each_denied_message_is_denied_for_the_first_time_once() {
    let clock = ManualClock::default();
    let limiter = limiter(&three(), &clock);
    for (user, update, is_first) in [(7, 1, true), (7, 1, false), (7, 2, true), (8, 1, true)] {
        assert_eq!(limiter.is_first_denial(&message(user, update)).await, is_first);
    }
    clock.advance(Duration::from_secs(3_600));
    assert!(!limiter.is_first_denial(&message(7, 1)).await, "also an hour later");
}
