use super::*;

#[test]
fn a_barrier_is_passed_when_all_that_was_wanted_has_acknowledged() {
    let done = || Value::Okay;
    let log = |count| Value::Array(vec![Value::Int(count), Value::Int(0)]);
    let table = [
        (Waits { replicas: 2, log: false }, vec![done(), Value::Int(2)], Some(true)),
        (Waits { replicas: 2, log: false }, vec![done(), Value::Int(1)], Some(false)),
        (Waits { replicas: 0, log: true }, vec![done(), log(1)], Some(true)),
        (Waits { replicas: 0, log: true }, vec![done(), log(0)], Some(false)),
        (Waits { replicas: 1, log: true }, vec![done(), Value::Int(1), log(0)], Some(false)),
        (Waits { replicas: 1, log: true }, vec![done(), Value::Int(0), log(1)], Some(false)),
        (Waits { replicas: 1, log: true }, vec![done(), Value::Int(3), log(1)], Some(true)),
        (Waits { replicas: 1, log: true }, vec![done(), Value::Int(3)], None),
        (Waits { replicas: 1, log: false }, vec![done(), Value::Nil], None),
    ];
    for (waits, responses, expected) in table {
        assert_eq!(passed(waits, &responses).ok(), expected, "{waits:?}, {responses:?}");
    }
}
