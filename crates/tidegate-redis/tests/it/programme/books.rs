//! What nodes wrote down, against what the server has.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate::Request;
use tidegate_redis_servers::{Server, until};

use super::USERS;
use crate::support::{Node, eventually};

/// What all nodes wrote down.
#[derive(Debug, Default)]
pub(super) struct Books {
    rates: BTreeMap<String, Vec<Admitted>>,
    /// Units of operations that have begun, and of those that have ended, by user and name.
    begun: BTreeMap<String, BTreeMap<String, u64>>,
    ended: BTreeMap<String, BTreeMap<String, u64>>,
    slots: Vec<Held>,
}

/// A slot that a node had, from a time on and until another one.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// By the server's clock: no later than this, and at least until that.
    server_us: (u64, u64),
    /// By the machine's, which is the same for all nodes.
    machine_us: (u64, u64),
}

/// Units that were admitted at some time in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) begin_us: u64,
    pub(crate) end_us: u64,
    pub(crate) units: u64,
}

impl Books {
    pub(super) fn read(logs: impl Iterator<Item = PathBuf>) -> Self {
        let mut books = Self::default();
        for log in logs {
            let text = std::fs::read_to_string(log).unwrap();
            // The last line of a killed process may be cut.
            let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                let user = || words[1].to_owned();
                match words[0] {
                    "rate" => books.rates.entry(user()).or_default().push(Admitted {
                        begin_us: number(2),
                        end_us: number(3),
                        units: number(4),
                    }),
                    "begun" => {
                        let of_user = books.begun.entry(user()).or_default();
                        of_user.insert(words[2].to_owned(), number(3));
                    }
                    "ended" => {
                        let of_user = books.ended.entry(user()).or_default();
                        let before = of_user.insert(words[2].to_owned(), number(3));
                        assert_eq!(before, None, "{line}");
                    }
                    "slot" => books.slots.push(Held {
                        server_us: (number(1), number(2)),
                        machine_us: (number(3), number(4)),
                    }),
                    _ => panic!("{line}"),
                }
            }
        }
        books
    }

    fn operations(&self) -> usize {
        let sums: usize = self.ended.values().map(BTreeMap::len).sum();
        sums + self.rates.values().map(Vec::len).sum::<usize>() + self.slots.len()
    }

    pub(super) fn check(&self, node: &Node, clock_set_us: &[u64]) {
        for (user, admitted) in &self.rates {
            check_rate(user, admitted, (20, 40));
        }
        self.check_slots(2, clock_set_us);
        for user in 0..USERS {
            self.check_sum(node, &format!("u{user}"));
        }
        self.check_sum(node, "once");
        let users: Vec<String> = (0..USERS).map(|it| format!("u{it}")).collect();
        // What was on hold when its node was killed ends by itself.
        until("each charge counts for its user and in total, or for neither", || {
            let users = users.iter().map(String::as_str).chain(["once"]);
            let sum = users.map(|user| charged(node, user, "sum")).sum::<u64>();
            sum == charged(node, "once", "total")
        });
    }

    /// What is charged is what was acknowledged, and at most what has begun besides.
    fn check_sum(&self, node: &Node, user: &str) {
        let (begun, ended) = (&self.begun[user], &self.ended[user]);
        let certain: u64 = ended.values().sum();
        let open = begun.iter().filter(|(name, _)| !ended.contains_key(*name));
        let most = certain + open.map(|(_, units)| units).sum::<u64>();
        let charged = charged(node, user, "sum");
        assert!(certain <= charged, "lost: {user}: {charged} charged, {certain} acknowledged");
        assert!(charged <= most, "doubled: {user}: {charged} charged, at most {most} were sent");
    }

    /// No more slots are held at once than there are.
    ///
    /// By the server's clock, a grant was committed before `got`, the latest time that it can have been
    /// once the answer was there. No other node can release the slot before `until`: that is no later
    /// than the expiry, and a node counts a lease as expired only if the earliest time that it can be has
    /// reached that; and no later than the earliest time that it was before the release was sent. So
    /// what was written down overlaps only if the slots were held at once, however slow the nodes are.
    ///
    /// Where the clock was set back, the server shows the same times once more, and a node that
    /// was started since goes by them. So slots count that were held at once by the machine's clock, too.
    ///
    /// Where it is set ahead, leases end at once, and neither their holders nor nodes that have not asked the
    /// server since know it: they still write down times from before. What was held then is not compared.
    fn check_slots(&self, max: usize, clock_set_us: &[u64]) {
        let is_known = |held: &&Held| {
            let (got, until) = held.machine_us;
            clock_set_us.iter().all(|set| until < *set || *set + NOTICED_AFTER_US < got)
        };
        let slots: Vec<&Held> = self.slots.iter().filter(is_known).collect();
        let is_in = |at: u64, (got, until): (u64, u64)| got <= at && at < until;
        for Held { server_us: (at, _), .. } in &slots {
            let here: Vec<&&Held> = slots.iter().filter(|it| is_in(*at, it.server_us)).collect();
            // Of those that overlap, one began last.
            for last in &here {
                let at_once = here.iter().filter(|it| is_in(last.machine_us.0, it.machine_us));
                let at_once: Vec<_> = at_once.collect();
                let count = at_once.len();
                assert!(count <= max, "{count} slots are held at {at}: {at_once:?}");
            }
        }
    }

    /// Nothing stays on hold, and only what has to stay has no expiry.
    pub(super) fn check_keys<'s>(
        &self,
        servers: impl Iterator<Item = &'s Server>,
        namespace: &str,
    ) {
        let mut for_good = Vec::new();
        for server in servers {
            let keys = server.command(&["KEYS", &format!("{namespace}:*")]);
            let names = keys.array().iter().map(|it| it.text());
            for_good.extend(names.filter(|name| server.command(&["PTTL", name]).integer() == -1));
        }
        assert_eq!(for_good, [format!("{namespace}:control")]);
        assert!(self.operations() > 200, "{} operations", self.operations());
    }
}

/// After this long every node has asked the server for its time, in microseconds.
const NOTICED_AFTER_US: u64 = 3_000_000;

/// What a rule has charged for a user, once the store answers.
fn charged(node: &Node, user: &str, rule: &str) -> u64 {
    let attributes = [("user", user)];
    let left = || {
        let report = node.engine.peek(&Request::new("sum", &attributes)).block().unwrap();
        let of_rule = report.rules().find(|it| it.rule.name() == rule);
        of_rule.filter(|_| !report.is_outage()).map(|it| it.decision.remaining())
    };
    1_000_000_000 - eventually("the store answers", left).unwrap()
}

/// In every interval, what was admitted in it for certain is within the burst and what refilled.
pub(crate) fn check_rate(user: &str, admitted: &[Admitted], (burst, rate): (u64, u64)) {
    let mut by_end = admitted.to_vec();
    by_end.sort_unstable_by_key(|it| it.end_us);
    for first in &by_end {
        let mut units = 0;
        let inside = by_end.iter().filter(|it| it.begin_us >= first.begin_us);
        for last in inside {
            units += last.units;
            let length_us = last.end_us - first.begin_us;
            assert!(
                units * 1_000_000 <= burst * 1_000_000 + rate * length_us,
                "{user}: {units} within {length_us} us, from {first:?} to {last:?}"
            );
        }
    }
}
