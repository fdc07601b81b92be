//! A database that has as many keys as it may have.

use tidegate::{CheckError, Request, hold::HoldBound};
use tidegate_redis_servers::{Program, Server, until};

use crate::support::{Node, eventually};

const MAX_KEYS: usize = 64;

fn policy(when_full: &str, rest: &str) -> String {
    format!(
        "[server]\nmax_keys = {MAX_KEYS}\nwhen_full = \"{when_full}\"\n\
         [[rule]]\nname = \"r\"\nkey = [\"user\"]\n{rest}\n"
    )
}

const WINDOW: &str = "window = { max = 3, per = \"1h\" }";

/// Whether a user is allowed.
fn allows(node: &Node, user: &str) -> bool {
    node.allows(&Request::new("default", &[("user", user)])).unwrap()
}

fn keys(server: &Server) -> usize {
    usize::try_from(server.command(&["DBSIZE"]).integer()).unwrap()
}

fn cells(server: &Server) -> usize {
    server.command(&["KEYS", "*:state:cell*"]).array().len()
}

/// Charges so many users once, and waits until all nodes know that the database is full.
fn fill(server: &Server, nodes: &[Node]) -> Vec<String> {
    let users: Vec<String> = (0..MAX_KEYS).map(|number| format!("first-{number}")).collect();
    for user in &users {
        assert!(allows(&nodes[0], user));
    }
    assert!(keys(server) >= MAX_KEYS);
    for node in nodes {
        until("it is known", || {
            node.redis.server().and_then(|it| it.keys).is_some_and(|it| it >= MAX_KEYS as u64)
        });
    }
    users
}

/// Fills the database, and waits until new keys share cells.
fn fill_and_share(server: &Server, nodes: &[Node]) -> Vec<String> {
    let users = fill(server, nodes);
    let mut number = 0;
    until("new keys share cells", || {
        number += 1;
        allows(&nodes[0], &format!("between-{number}"));
        cells(server) > 0
    });
    users
}

#[test]
fn keys_beyond_the_maximum_share_states_on_all_nodes() {
    for program in [Program::Valkey9, Program::Redis7] {
        let server = Server::start(program);
        let policy = policy("share", WINDOW);
        let nodes = [(); 2].map(|()| Node::new(&server.url(), &policy));
        let known = fill_and_share(&server, &nodes);
        let before = keys(&server);
        let mut allowed = 0;
        for number in 0..10 * MAX_KEYS {
            let user = format!("new-{number}");
            let admitted = (0..4).filter(|call| allows(&nodes[call % 2], &user)).count();
            assert!(admitted <= 3, "{program}: {admitted} of {user}");
            allowed += admitted;
        }
        // Each cell allows at least what one key may have, and at most that.
        let most = MAX_KEYS / 8;
        assert!(allowed > 0 && allowed <= 3 * most, "{program}: {allowed}");
        assert!(keys(&server) <= before + most, "{program}: {} keys, {before}", keys(&server));
        assert!(cells(&server) <= most);
        // Keys with a state of their own do not notice.
        for user in &known {
            let admitted = (0..4).filter(|call| allows(&nodes[call % 2], user)).count();
            assert_eq!(admitted, 2, "{program}: {user}");
        }
    }
}

#[test]
fn what_a_key_was_charged_in_a_cell_counts_when_there_is_room_again() {
    let server = Server::start(Program::Valkey9);
    let nodes = [(); 2].map(|()| Node::new(&server.url(), &policy("share", WINDOW)));
    let known = fill_and_share(&server, &nodes);
    let user = eventually("one of a cell without charges", || {
        (0..1000).map(|it| format!("late-{it}")).find(|user| allows(&nodes[0], user))
    });
    let user = user.unwrap();
    while allows(&nodes[0], &user) {}
    let before = keys(&server);
    for node in &nodes {
        let removed = node.engine.forget(&Request::new("default", &[("user", &known[0])])).block();
        let _ = removed.unwrap();
    }
    // Most of the first keys are gone.
    for key in server.command(&["KEYS", "*:state:*"]).array() {
        if !key.text().contains("cell") {
            let _ = server.command(&["DEL", &key.text()]).success();
        }
    }
    assert!(keys(&server) < before);
    until("there is room", || {
        nodes.iter().all(|node| {
            node.redis.server().and_then(|it| it.keys).is_some_and(|it| it < MAX_KEYS as u64)
        })
    });
    assert!(!allows(&nodes[1], &user), "its charges are in the cell");
    // A key of another cell has its own record, and its own limit.
    let cells = cells(&server);
    let fresh: Vec<String> = (0..200).map(|it| format!("fresh-{it}")).collect();
    let admitted = fresh.iter().filter(|user| allows(&nodes[1], user)).count();
    assert!(cells == MAX_KEYS / 8 || admitted > 0, "{admitted} of 200, {cells} cells");
}

#[test]
fn new_keys_are_denied_where_when_full_says_so() {
    let server = Server::start(Program::Valkey9);
    let nodes = [Node::new(&server.url(), &policy("deny", WINDOW))];
    let known = fill(&server, &nodes);
    let before = keys(&server);
    for call in 0..5 {
        assert!(!allows(&nodes[0], "new"), "{call}");
    }
    assert_eq!(keys(&server), before);
    let admitted = (0..4).filter(|_| allows(&nodes[0], &known[0])).count();
    assert_eq!(admitted, 2, "it has a state");
}

#[test]
fn durable_keys_do_not_share_and_holds_and_results_need_room() {
    let server = Server::start(Program::Valkey9);
    let durable = policy("share", "quota = { max = 3, per = \"day\" }");
    let nodes = [Node::new(&server.url(), &durable)];
    let known = fill(&server, &nodes);
    assert!(!allows(&nodes[0], "new"), "a durable state cannot be shared");
    let attributes = [("user", &*known[0])];
    let request = Request::new("default", &attributes);
    let error = nodes[0].engine.hold(&request).block().unwrap_err();
    assert_eq!(error, CheckError::TooManyHolds(HoldBound::Records { most: MAX_KEYS }));
    let before = keys(&server);
    let named = request.idempotency_key("once");
    assert_eq!([(); 3].map(|()| nodes[0].allows(&named)), [Some(true), Some(true), Some(false)]);
    assert_eq!(nodes[0].engine.evicted_idempotency_keys(), 2, "it was charged again, visibly");
    assert!(keys(&server) <= before + 1, "the barrier at most");
}
