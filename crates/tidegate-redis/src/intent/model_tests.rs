//! Every order in which two writers and the visitors of their intents can act, over a few keys.
//!
//! Each step of a program is one command on one server. A writer can stop for good after each of them,
//! and its intents can arrive at any later time, or twice. At every point it is checked what would
//! be left if all of them stopped there: all or nothing of every group, all of what was
//! acknowledged, and nothing of what was given up.

use std::collections::HashSet;

use super::{Held, Judgement, Phase, judge};

/// What a key has. A record is the set of the groups that it has the changes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    Record { stamp: u8, groups: u8 },
    Intent { phase: Phase, group: usize, before: u8 },
}

/// An intent on its way to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    expected: u8,
    groups: u8,
    /// How often it may still arrive.
    copies: u8,
    was_laid: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Program {
    /// Reads its keys, then sends intents.
    Read(Vec<(u8, u8)>),
    /// Waits for the responses.
    Wait,
    /// Withdraws its intents, those of the keys from here on.
    Withdraw {
        at: usize,
        is_lost: bool,
        has_any: bool,
    },
    /// Writes one key alone, if it has a record.
    Write {
        key: usize,
    },
    /// Settles the group whose intent it meets at a key.
    Visit {
        key: usize,
    },
    Look {
        group: usize,
        seen: Vec<Held>,
        looks: u8,
    },
    Pin {
        group: usize,
        at: usize,
        looks: u8,
    },
    Finish {
        group: usize,
        at: usize,
    },
    Undo {
        group: usize,
        at: usize,
        seen: Vec<Held>,
    },
    End,
}

/// What the writer of a group knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Known {
    Nothing,
    Committed,
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    keys: Vec<Value>,
    next_stamp: u8,
    /// Those of the writers come first: each is the writer of the group with its number.
    programs: Vec<Program>,
    messages: Vec<Vec<Option<Message>>>,
    known: Vec<Known>,
}

/// What does not change: the keys of each group, the primary first.
struct Setup {
    groups: Vec<Vec<usize>>,
    copies: u8,
}

impl World {
    fn new(setup: &Setup, keys: usize, visits: &[usize]) -> Self {
        let writers = setup.groups.iter().map(|_| Program::Read(Vec::new()));
        let visitors = visits.iter().map(|key| Program::Visit { key: *key });
        let stamps = 1..=u8::try_from(keys).unwrap();
        Self {
            keys: stamps.map(|stamp| Value::Record { stamp, groups: 0 }).collect(),
            next_stamp: 20,
            programs: writers.chain(visitors).collect(),
            messages: setup.groups.iter().map(|group| vec![None; group.len()]).collect(),
            known: vec![Known::Nothing; setup.groups.len()],
        }
    }

    fn stamp(&mut self) -> u8 {
        self.next_stamp += 1;
        self.next_stamp
    }

    /// An intent arrives.
    fn deliver(&mut self, setup: &Setup, group: usize, at: usize) {
        let Some(message) = &mut self.messages[group][at] else { return };
        let value = &mut self.keys[setup.groups[group][at]];
        let is_expected =
            matches!(*value, Value::Record { stamp, .. } if stamp == message.expected);
        message.copies -= 1;
        message.was_laid.get_or_insert(is_expected);
        if is_expected {
            *value = Value::Intent { phase: Phase::Laid, group, before: message.groups };
        }
    }

    /// What a key means for a group.
    fn held(&self, setup: &Setup, group: usize, at: usize) -> Held {
        // The stamps of records that groups put there are their numbers and 100.
        let expected = self.messages[group][at].map(|message| message.expected);
        match self.keys[setup.groups[group][at]] {
            Value::Intent { phase, group: of, .. } if of == group => Held::Intent(phase),
            Value::Intent { .. } => Held::Closed,
            Value::Record { stamp, .. } if usize::from(stamp) == group + 100 => Held::Done,
            Value::Record { stamp, .. } if Some(stamp) == expected => Held::Open,
            Value::Record { .. } => Held::Closed,
        }
    }

    /// Replaces the intent of a group by what was there before, if it is in one of these phases.
    fn withdraw(&mut self, setup: &Setup, (group, at): (usize, usize), from: &[Phase]) -> bool {
        let key = setup.groups[group][at];
        match self.keys[key] {
            Value::Intent { phase, group: of, before } if of == group && from.contains(&phase) => {
                let stamp = self.stamp();
                self.keys[key] = Value::Record { stamp, groups: before };
                true
            }
            _ => false,
        }
    }

    fn set_phase(&mut self, setup: &Setup, (group, at): (usize, usize), to: Phase) -> bool {
        match &mut self.keys[setup.groups[group][at]] {
            Value::Intent { phase, group: of, .. } if *of == group => {
                if *phase != Phase::Committed {
                    *phase = to;
                }
                true
            }
            _ => false,
        }
    }

    fn finish(&mut self, setup: &Setup, group: usize, at: usize) {
        let key = setup.groups[group][at];
        if let Value::Intent { group: of, before, .. } = self.keys[key]
            && of == group
        {
            let stamp = u8::try_from(group + 100).unwrap();
            self.keys[key] = Value::Record { stamp, groups: before | 1 << group };
        }
    }

    /// Everything that a program may do next.
    fn steps(&self, setup: &Setup, number: usize) -> Vec<Self> {
        let mut next = self.clone();
        match &self.programs[number] {
            Program::End => return Vec::new(),
            Program::Read(seen) => next.read(setup, number, seen.clone()),
            Program::Wait => return self.wait(setup, number),
            Program::Withdraw { at, is_lost, has_any } => {
                let from: &[Phase] =
                    if *is_lost { &[Phase::Laid, Phase::Pinned] } else { &[Phase::Laid] };
                let has_any = next.withdraw(setup, (number, *at), from) || *has_any;
                let is_last = *at + 1 == setup.groups[number].len();
                if is_last && (has_any || *is_lost) {
                    next.known[number] = Known::Aborted;
                }
                next.programs[number] = match is_last {
                    true => Program::End,
                    false => Program::Withdraw { at: *at + 1, is_lost: *is_lost, has_any },
                };
            }
            Program::Write { key } => {
                let fresh = next.stamp();
                if let Value::Record { stamp, .. } = &mut next.keys[*key] {
                    *stamp = fresh;
                }
                next.programs[number] = Program::End;
            }
            Program::Visit { key } => {
                next.programs[number] = match self.keys[*key] {
                    Value::Record { .. } => Program::End,
                    Value::Intent { group, .. } => look(group, LOOKS),
                };
            }
            Program::Look { group, seen, looks } => {
                next.look(setup, number, (*group, seen.clone(), *looks));
            }
            Program::Pin { group, at, looks } => {
                let to = if *at == 0 { Phase::Committed } else { Phase::Pinned };
                let is_there = next.set_phase(setup, (*group, *at), to);
                next.programs[number] = match (is_there, *at) {
                    (false, _) => look(*group, *looks),
                    (true, 0) => Program::Finish { group: *group, at: 1 },
                    (true, at) => {
                        // The primary is the last one.
                        let at = (at + 1) % setup.groups[*group].len();
                        Program::Pin { group: *group, at, looks: *looks }
                    }
                };
            }
            Program::Finish { group, at } => {
                next.finish(setup, *group, *at);
                next.programs[number] = match *at {
                    0 => Program::End,
                    at => {
                        let at = (at + 1) % setup.groups[*group].len();
                        Program::Finish { group: *group, at }
                    }
                };
            }
            Program::Undo { group, at, seen } => {
                if let Held::Intent(phase) = seen[*at] {
                    next.withdraw(setup, (*group, *at), &[phase]);
                }
                next.programs[number] = match *at + 1 == seen.len() {
                    true => Program::End,
                    false => Program::Undo { group: *group, at: *at + 1, seen: seen.clone() },
                };
            }
        }
        vec![next]
    }

    fn read(&mut self, setup: &Setup, number: usize, mut seen: Vec<(u8, u8)>) {
        let keys = &setup.groups[number];
        match self.keys[keys[seen.len()]] {
            Value::Intent { group, .. } => self.programs[number] = look(group, LOOKS),
            Value::Record { stamp, groups } => {
                seen.push((stamp, groups));
                if seen.len() < keys.len() {
                    self.programs[number] = Program::Read(seen);
                    return;
                }
                let message = |(expected, groups): &(u8, u8)| {
                    let (expected, groups) = (*expected, *groups);
                    Some(Message { expected, groups, copies: setup.copies, was_laid: None })
                };
                self.messages[number] = seen.iter().map(message).collect();
                self.programs[number] = Program::Wait;
            }
        }
    }

    /// The writer of a group has its responses, or does not wait for them any longer.
    fn wait(&self, setup: &Setup, number: usize) -> Vec<Self> {
        let results: Vec<_> =
            self.messages[number].iter().map(|it| it.and_then(|it| it.was_laid)).collect();
        let mut next = self.clone();
        next.programs[number] = Program::Withdraw { at: 0, is_lost: false, has_any: false };
        let mut all = vec![next.clone()];
        if results.contains(&None) {
            return all;
        }
        if results.contains(&Some(false)) {
            next.programs[number] = Program::Withdraw { at: 0, is_lost: true, has_any: false };
        } else {
            next.known[number] = Known::Committed;
            // It marks the primary, then replaces all intents.
            next.programs[number] = Program::Pin { group: number, at: 0, looks: 0 };
        }
        assert!(!setup.groups[number].is_empty());
        all.push(next);
        all
    }

    /// Reads the next key of a group; those after the primary first.
    fn look(&mut self, setup: &Setup, number: usize, (group, mut seen, looks): Look) {
        let count = setup.groups[group].len();
        let at = (seen.len() + 1) % count;
        seen.push(self.held(setup, group, at));
        if seen.len() < count {
            self.programs[number] = Program::Look { group, seen, looks };
            return;
        }
        // The primary was read last, and comes first.
        seen.rotate_right(1);
        self.programs[number] = match judge(&seen) {
            Judgement::Committed => match seen[0] {
                Held::Intent(_) => Program::Pin { group, at: 0, looks: 0 },
                _ => Program::Finish { group, at: 1 },
            },
            Judgement::Laid => Program::Pin { group, at: 1, looks },
            Judgement::Aborted => Program::Undo { group, at: 0, seen },
            Judgement::Undecided { open } => {
                let key = setup.groups[group][open];
                let expected = self.messages[group][open].map(|message| message.expected);
                let stamp = self.stamp();
                if let Value::Record { stamp: known, groups } = self.keys[key]
                    && Some(known) == expected
                {
                    self.keys[key] = Value::Record { stamp, groups };
                }
                look(group, looks)
            }
        };
    }

    /// Settles everything, as later visitors do, and checks what is there then.
    fn check(&self, setup: &Setup) {
        let mut left = self.clone();
        left.programs = vec![Program::End];
        left.settle(setup);
        for group in 0..setup.groups.len() {
            for at in 0..setup.groups[group].len() {
                while left.messages[group][at].is_some_and(|message| message.copies > 0) {
                    left.deliver(setup, group, at);
                }
            }
        }
        left.settle(setup);
        for (group, keys) in setup.groups.iter().enumerate() {
            let has = |key: &usize| match left.keys[*key] {
                Value::Record { groups, .. } => groups & 1 << group != 0,
                Value::Intent { .. } => panic!("an intent is left"),
            };
            let count = keys.iter().filter(|key| has(key)).count();
            assert!(count == 0 || count == keys.len(), "half of group {group} in {self:#?}");
            let is_in = count > 0;
            let is_right = match self.known[group] {
                Known::Nothing => true,
                Known::Committed => is_in,
                Known::Aborted => !is_in,
            };
            assert!(is_right, "group {group} against what its writer knows: {self:#?}");
        }
    }

    fn settle(&mut self, setup: &Setup) {
        for key in 0..self.keys.len() {
            self.programs = vec![Program::Visit { key }];
            let mut steps = 0;
            while self.programs[0] != Program::End {
                let next = self.steps(setup, 0).pop().expect("it goes on");
                *self = next;
                steps += 1;
                assert!(steps < 1_000, "it does not end: {self:#?}");
            }
        }
    }
}

type Look = (usize, Vec<Held>, u8);

/// A look at a group; after the last one it gives up, as if it had stopped.
fn look(group: usize, looks: u8) -> Program {
    match looks.checked_sub(1) {
        Some(looks) => Program::Look { group, seen: Vec::new(), looks },
        None => Program::End,
    }
}

/// Visits every state that can be reached, and returns how many there are.
fn explore(setup: &Setup, keys: usize, visits: &[usize]) -> usize {
    explore_from(setup, World::new(setup, keys, visits))
}

fn explore_from(setup: &Setup, start: World) -> usize {
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        world.check(setup);
        for number in 0..world.programs.len() {
            open.extend(world.steps(setup, number));
        }
        for (group, messages) in world.messages.iter().enumerate() {
            for (at, message) in messages.iter().enumerate() {
                if message.is_some_and(|message| message.copies > 0) {
                    let mut next = world.clone();
                    next.deliver(setup, group, at);
                    open.push(next);
                }
            }
        }
    }
    seen.len()
}

#[test]
fn two_writers_and_a_visitor_leave_all_or_nothing_of_each_group() {
    for (groups, keys, visits) in [
        (vec![vec![0, 1], vec![1, 0]], 2, vec![]),
        (vec![vec![0, 1], vec![1, 0]], 2, vec![0]),
        (vec![vec![0, 1], vec![0, 1]], 2, vec![1]),
        (vec![vec![0, 1], vec![1, 2]], 3, vec![1]),
    ] {
        let states = explore(&Setup { groups, copies: 1 }, keys, &visits);
        assert!(states > 100, "{states}");
    }
}

#[test]
fn visitors_of_one_group_agree_on_its_fate() {
    for (group, visits) in [
        (vec![0, 1], vec![0, 1]),
        (vec![0, 1], vec![1, 1]),
        (vec![0, 1, 2], vec![1]),
        (vec![0, 1, 2], vec![0, 2]),
    ] {
        let keys = group.len();
        let states = explore(&Setup { groups: vec![group], copies: 1 }, keys, &visits);
        assert!(states > 50, "{states}");
    }
}

#[test]
fn a_key_that_is_written_again_after_a_commit_does_not_look_like_a_lost_one() {
    let setup = Setup { groups: vec![vec![0, 1, 2]], copies: 1 };
    let mut world = World::new(&setup, 3, &[2]);
    world.programs.push(Program::Write { key: 1 });
    assert!(explore_from(&setup, world) > 1_000);
}

#[test]
fn an_intent_that_arrives_twice_counts_once() {
    let two = Setup { groups: vec![vec![0, 1], vec![1, 0]], copies: 2 };
    assert!(explore(&two, 2, &[]) > 1_000);
    let one = Setup { groups: vec![vec![0, 1]], copies: 2 };
    assert!(explore(&one, 2, &[0, 1]) > 1_000);
}

/// How often a visitor looks at a group.
const LOOKS: u8 = 3;
