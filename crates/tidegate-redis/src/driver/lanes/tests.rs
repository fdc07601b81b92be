//! Which server has which keys.

use tidegate_engine::shared::RecordKey;

use super::Lanes;
use crate::batch::Readiness;
use crate::slots::{Host, SLOTS, SlotMap};

fn host(port: u16) -> Host {
    ("node".to_owned(), port)
}

fn state(hash: u64) -> RecordKey {
    RecordKey::from_text(&format!("state:{hash:016x}")).unwrap()
}

/// The first half of the slots on one node, the second on another.
fn halves(ports: [u16; 2]) -> SlotMap {
    let owners = (0..SLOTS).map(|slot| Some(u16::from(slot >= SLOTS / 2))).collect();
    SlotMap { hosts: ports.map(host).to_vec(), owners }
}

#[test]
fn one_server_has_all_keys_at_once() {
    let lanes = Lanes::new("a", false, 0);
    assert_eq!(lanes.of_all(&[state(1), state(2), state(3)]), Some(0));
    assert_eq!(lanes.of_control(), Some(0));
}

#[test]
fn keys_are_committed_at_once_if_they_are_in_one_slot_and_not_by_the_server() {
    let mut lanes = Lanes::new("a", true, 0);
    assert_eq!(lanes.of(&state(1)), None, "no node is known yet");
    assert!(lanes.take_map(&halves([1, 2]), 0).is_empty());
    let keys: Vec<RecordKey> = (0..50).map(state).collect();
    assert!(keys.iter().any(|key| lanes.of(key) == Some(0)));
    assert!(keys.iter().any(|key| lanes.of(key) == Some(1)));
    assert_eq!(lanes.of_all(&keys[..2]), None);
    assert_eq!(lanes.of_all(&keys[..1]), lanes.of(&keys[0]));

    let mut tagged = Lanes::new("a{b}", true, 0);
    tagged.take_map(&halves([1, 2]), 0);
    assert_eq!(tagged.of_all(&keys), tagged.of_control(), "a hash tag means what it means");
    assert!(tagged.of_control().is_some());
}

#[test]
fn a_server_without_slots_is_dropped_and_its_number_used_again() {
    let mut lanes = Lanes::new("a", true, 0);
    lanes.take_map(&halves([1, 2]), 0);
    let generation = lanes.cluster.as_ref().unwrap().generation;
    lanes.take_map(&halves([1, 2]), 5);
    assert_eq!(lanes.cluster.as_ref().unwrap().generation, generation, "nothing has changed");
    assert_eq!(lanes.take_map(&halves([1, 3]), 5), [1], "a replica has replaced the second");
    assert_eq!(lanes.cluster.as_ref().unwrap().generation, generation + 1);
    lanes.take_moved(7, &host(4), 6);
    assert_eq!(lanes.all.len(), 3, "the new node has the number of the old one");
    assert_eq!(lanes.all[1].host, Some(host(4)));
}

#[test]
fn a_server_that_is_away_for_long_is_not_waited_for() {
    let mut lanes = Lanes::new("a", true, 0);
    lanes.take_map(&halves([1, 2]), 100);
    let key = state(1);
    assert_eq!(lanes.readiness(&key, (149, 50)), Readiness::Busy);
    assert_eq!(lanes.readiness(&key, (150, 50)), Readiness::Away);
    lanes.pause(&key, 150);
    assert_eq!(lanes.readiness(&key, (150, 50)), Readiness::Busy, "its slot is on its way");
    assert_eq!(lanes.paused_until_ns(150), Some(5_000_150));
}
