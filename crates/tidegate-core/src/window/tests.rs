use super::*;
use crate::Wait;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn window() -> Window {
    Window::new(10, Duration::from_nanos(100))
}

#[test]
fn window_ends_one_length_after_the_first_charge_or_on_the_grid() {
    for (limit, now, ends_ns) in [
        (window(), 0, 100),
        (window(), 250, 350),
        (window().aligned(), 0, 100),
        (window().aligned(), 250, 300),
        (window().aligned(), 299, 300),
        (window().aligned(), 300, 400),
    ] {
        let mut state = limit.fresh();
        assert!(limit.check(&mut state, 1, at(now)).is_allowed());
        assert_eq!(state, WindowState { ends_ns, used: 1, held: 0 }, "opened at {now}");
        assert_eq!(limit.end_of_window_at(at(now)), ends_ns);
    }
}

#[test]
fn states_after_each_step() {
    let limit = window();
    let mut state = limit.fresh();
    let mut after = |step: &dyn Fn(&mut WindowState)| {
        step(&mut state);
        (state.ends_ns, state.used, state.held)
    };
    let check = |cost, now| {
        move |state: &mut WindowState| {
            let _ = window().check(state, cost, at(now));
        }
    };
    let hold = |units, now| {
        move |state: &mut WindowState| {
            let _ = window().hold(state, units, at(now));
        }
    };
    assert_eq!(after(&check(0, 5)), (0, 0, 0));
    assert_eq!(after(&check(4, 5)), (105, 4, 0));
    assert_eq!(after(&check(7, 6)), (105, 4, 0));
    assert_eq!(after(&hold(6, 104)), (105, 4, 6));
    assert_eq!(after(&check(4, 105)), (205, 4, 6));
    assert_eq!(after(&|state| assert_eq!(limit.refund(state, 9, at(105)), 4)), (205, 0, 6));
    assert_eq!(after(&|state| assert_eq!(limit.commit(state, 2, 3, at(110)), 3)), (210, 3, 4));
    assert_eq!(after(&|state| assert_eq!(limit.refund(state, 9, at(210)), 0)), (210, 3, 4));
    assert_eq!(after(&|state| limit.cancel(state, 9, at(210))), (210, 3, 0));
    assert_eq!(after(&|state| assert_eq!(limit.refund(state, 3, at(209)), 3)), (0, 0, 0));
}

#[test]
fn a_window_is_idle_when_it_has_ended_and_nothing_is_held() {
    for (ends_ns, used, held, is_idle) in [
        (0, 0, 0, true),
        (105, 4, 0, false),
        (101, 4, 0, false),
        (100, 4, 0, true),
        (105, 0, 0, true),
        (105, 0, 1, false),
        (100, 4, 1, false),
    ] {
        let state = WindowState { ends_ns, used, held };
        assert_eq!(window().is_idle(&state, at(100)), is_idle, "{state:?}");
    }
}

#[test]
fn waits_by_cost() {
    let limit = window();
    let mut state = limit.fresh();
    assert!(limit.check(&mut state, 5, at(0)).is_allowed());
    assert!(limit.hold(&mut state, 3, at(0)).is_allowed());
    let after = |nanos| Some(Wait::After(Duration::from_nanos(nanos)));
    for (cost, now, wait) in [
        (2, 99, None),
        (3, 0, after(100)),
        (3, 99, after(1)),
        (7, 99, after(1)),
        (8, 99, Some(Wait::Unknown)),
        (11, 99, Some(Wait::Never)),
        (7, 100, None),
    ] {
        assert_eq!(limit.peek(&state, cost, at(now)).retry_after(), wait, "{cost} at {now}");
    }
}

#[test]
fn denied_costs_can_be_counted() {
    let limit = window();
    let mut state = limit.fresh();
    assert_eq!(limit.count(&mut state, 0, at(5)), 0);
    assert_eq!(state, limit.fresh());
    assert_eq!(limit.count(&mut state, 10, at(5)), 10);
    assert!(limit.peek(&state, 0, at(5)).is_allowed(), "all of it is used, and no more");
    assert_eq!(limit.count(&mut state, 4, at(6)), 4);
    assert_eq!(state, WindowState { ends_ns: 105, used: 14, held: 0 });
    let look = limit.peek(&state, 0, at(6));
    assert_eq!((look.is_allowed(), look.remaining()), (false, 0));
    assert_eq!(look.retry_after(), Some(Wait::After(Duration::from_nanos(99))));
    assert_eq!(limit.refund(&mut state, 20, at(7)), 14, "no more than was counted");
    assert_eq!(state, limit.fresh());
    assert_eq!(limit.count(&mut state, u64::MAX, at(8)), u64::from(u32::MAX));
    assert_eq!(limit.count(&mut state, 1, at(8)), 0, "as much as a slot holds");
    assert!(limit.check(&mut state, 10, at(108)).is_allowed(), "the next window is empty");
}
