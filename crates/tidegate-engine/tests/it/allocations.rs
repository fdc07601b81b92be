//! What is allowed allocates nothing.

#![allow(unsafe_code, reason = "a counting allocator passes calls on to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate::policy::Policy;
use tidegate::{
    Limiter, Rate, Request, StoreEngine,
    limiter::{Call, CallLimit},
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that are allocated, and the most there were.
    static BYTES: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn count_bytes(bytes: i64) {
    let _ = BYTES.try_with(|count| {
        let (now, peak) = count.get();
        count.set((now + bytes, peak.max(now + bytes)));
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        count_bytes(i64::try_from(layout.size()).unwrap_or(i64::MAX));
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_bytes(-i64::try_from(layout.size()).unwrap_or(i64::MAX));
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many bytes more than before this thread has allocated at most while it does something.
pub(crate) fn peak_bytes(act: impl FnOnce()) -> i64 {
    let (before, _) = BYTES.get();
    BYTES.set((before, before));
    act();
    BYTES.get().1 - before
}

/// How often this thread allocates while it does something.
fn allocations(act: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    act();
    ALLOCATIONS.get() - before
}

#[test]
fn an_allowed_request_over_three_rules_allocates_nothing() {
    let policy = r#"
        [[rule]]
        name   = "user"
        key    = ["user"]
        match  = { path = "/search/*" }
        bucket = { rate = "1000/s", burst = 1000 }

        [[rule]]
        name   = "network"
        key    = ["ip"]
        window = { max = 100000, per = "1h" }

        [[rule]]
        name   = "all"
        sliding = { max = 100000, per = "1m" }
    "#;
    let engine = StoreEngine::new(Policy::from_toml(policy).unwrap());
    let attributes = [("user", "ada"), ("ip", "2001:db8::1"), ("path", "/search/x")];
    let request = Request::new("default", &attributes);
    assert!(engine.check(&request).block().unwrap().is_allowed(), "the key has its slot now");
    let prepared = engine.domain("default").unwrap();
    for _ in 0..100 {
        let count = allocations(|| {
            assert!(engine.check(&request).block().unwrap().is_allowed());
            assert!(engine.check(&prepared.request(&attributes)).block().unwrap().is_allowed());
        });
        assert_eq!(count, 0);
    }
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) > 0, "it counts");
}

#[test]
fn a_batch_allocates_its_list_of_decisions_alone() {
    let policy = "[[rule]]\nname = \"user\"\nkey = [\"user\"]\nwindow = { max = 9000, per = \"1h\" }\n\
                  [[rule]]\nname = \"all\"\nwindow = { max = 90000, per = \"1h\" }";
    let engine = StoreEngine::new(Policy::from_toml(policy).unwrap());
    let users: Vec<String> = (0..16).map(|user| format!("user {user}")).collect();
    let attributes: Vec<_> = users.iter().map(|user| [("user", user.as_str())]).collect();
    let requests: Vec<_> = attributes.iter().map(|it| Request::new("default", it)).collect();
    let check = || {
        for decided in engine.check_many(&requests) {
            assert!(decided.block().unwrap().is_allowed());
        }
    };
    (0..2).for_each(|_| check());
    for _ in 0..100 {
        assert_eq!(allocations(check), 1);
    }
    // All reports at once, and one of them longer than the others.
    let check = || drop(engine.check_many(&requests));
    check();
    let (kept, count) = (engine.check(&requests[0]), allocations(check));
    assert!(kept.block().unwrap().is_allowed());
    assert!(count <= 4, "one body and its lists: {count}");
}

#[test]
fn calls_that_bring_their_limit_allocate_nothing() {
    let limiter = Limiter::<[u8], CallLimit>::per_call().build().unwrap();
    let keys: Vec<Vec<u8>> = (0..100).map(|key| format!("key {key}").into_bytes()).collect();
    let limit = CallLimit::new(Rate::per_second(1), 1_000).unwrap();
    let check = || {
        let calls = keys.iter().map(|key| Call { key: key.as_slice(), limit, cost: 1 });
        limiter.check_many_with(calls, |decision| assert!(decision.is_allowed()));
    };
    check();
    for _ in 0..100 {
        assert_eq!(allocations(check), 0);
    }
}
