//! Clusters of six.

use tidegate_redis_servers::{Cluster, Program, Reply, Server};

#[test]
fn a_slot_migrates_step_by_step() {
    for program in Program::ALL {
        let cluster = Cluster::start_with(&Server::builder(program).password("secret"));
        let slot = cluster.slot_of("{tag}");
        let from = cluster.primary_of(slot);
        let to = (from + 1) % 3;
        let (source, target) = (&cluster.nodes()[from], &cluster.nodes()[to]);
        for number in 0..5 {
            let _ = source.command(&["SET", &format!("{{tag}}{number}"), "x"]).success();
        }
        let moved = target.command(&["GET", "{tag}0"]);
        assert_eq!(moved.error(), Some(&*format!("MOVED {slot} {}", source.address())));

        let migration = cluster.migrate_slot(slot, to);
        assert_eq!((migration.from(), migration.to()), (from, to));
        assert_eq!(migration.move_keys(2), 2);
        let replies: Vec<_> =
            (0..5).map(|n| source.command(&["GET", &format!("{{tag}}{n}")])).collect();
        let ask = format!("ASK {slot} {}", target.address());
        let asks = replies.iter().filter(|reply| reply.error() == Some(&ask)).count();
        let here = replies.iter().filter(|reply| **reply == Reply::Bulk(b"x".into())).count();
        assert_eq!((asks, here), (2, 3), "{replies:?}");

        migration.finish();
        assert_eq!(cluster.primary_of(slot), to);
        for number in 0..5 {
            let key = format!("{{tag}}{number}");
            assert_eq!(target.command(&["GET", &key]).text(), "x");
            let moved = source.command(&["GET", &key]);
            assert_eq!(moved.error(), Some(&*format!("MOVED {slot} {}", target.address())));
        }
    }
}

#[test]
fn replicas_replace_primaries_on_request_and_after_a_kill() {
    for program in Program::ALL {
        let cluster = Cluster::start(program);
        let slot = cluster.slot_of("key");
        let first = cluster.primary_of(slot);
        let second = cluster.failover(slot);
        assert_eq!(second, first + 3);
        let mut connection = cluster.nodes()[second].connect().unwrap();
        let _ = connection.command(&["SET", "key", "value"]).unwrap().success();
        assert_eq!(connection.command(&["WAIT", "1", "5000"]).unwrap().integer(), 1);

        assert_eq!(cluster.kill_primary(slot), second);
        assert_eq!(cluster.until_replaced(slot, second), first);
        assert_eq!(cluster.nodes()[first].command(&["GET", "key"]).text(), "value");

        cluster.nodes()[second].restart();
        cluster.until_settled();
        assert_eq!(cluster.nodes()[second].info("role").as_deref(), Some("slave"));
    }
}
