use super::*;

fn facts(log: LogSync, replicas: u32) -> ServerFacts {
    let info = format!("valkey_version:9.1.2\r\nrun_id:1\r\nconnected_slaves:{replicas}\r\n");
    let mut facts = ServerFacts::read(&info).unwrap();
    (facts.log, facts.can_wait) = (log, true);
    facts
}

#[test]
fn levels_need_what_the_server_does_not_do_by_itself() {
    use Durability::{Flush, Fsync, Memory};
    // The log, connected replicas, wanted replicas, level; what is waited for: replicas, log.
    let table = [
        (LogSync::None, 0, 0, Memory, Some((0, false))),
        (LogSync::None, 0, 0, Flush, Some((0, false))),
        (LogSync::None, 0, 0, Fsync, None),
        (LogSync::Unseen, 0, 0, Fsync, None),
        (LogSync::Unseen, 1, 1, Flush, Some((1, false))),
        (LogSync::Always, 0, 0, Fsync, Some((0, false))),
        (LogSync::Always, 2, 1, Fsync, Some((1, false))),
        (LogSync::Later, 0, 0, Fsync, Some((0, true))),
        (LogSync::Later, 0, 0, Flush, Some((0, false))),
        (LogSync::Later, 1, 2, Memory, Some((0, false))),
        (LogSync::Later, 1, 2, Flush, None),
        (LogSync::Always, 1, 2, Fsync, None),
    ];
    for (log, connected, wanted, level, expected) in table {
        let waits = facts(log, connected).waits(level, wanted).ok();
        let waits = waits.map(|it| (it.replicas, it.log));
        assert_eq!(waits, expected, "{log:?}, {connected} of {wanted}, {level:?}");
    }
}

#[test]
fn only_rules_that_set_a_level_are_refused() {
    let policy = |durability: &str| {
        let rule =
            "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = { max = 9, per = \"day\" }\n";
        Policy::from_toml(&format!("{rule}{durability}\n")).unwrap()
    };
    let without_log = facts(LogSync::None, 0);
    assert_eq!(without_log.check(&policy(""), 0), Ok(()));
    assert_eq!(without_log.check(&policy("durability = \"flush\""), 0), Ok(()));
    let error = without_log.check(&policy("durability = \"fsync\""), 0).unwrap_err().to_string();
    assert!(error.contains("calls") && error.contains("appendonly yes"), "{error}");
    let error = without_log.check(&policy("durability = \"flush\""), 1).unwrap_err().to_string();
    assert!(error.contains("store_replicas is 1"), "{error}");
    assert_eq!(without_log.check(&policy("durability = \"memory\""), 1), Ok(()));
}

#[test]
fn a_default_level_gets_what_the_server_can_do() {
    let best = facts(LogSync::Later, 1).best_waits(Durability::Fsync, 2);
    assert_eq!(best, Waits { replicas: 1, log: true });
    assert!(facts(LogSync::None, 0).best_waits(Durability::Fsync, 2).is_none());
    assert!(facts(LogSync::Later, 1).best_waits(Durability::Memory, 1).is_none());
}
