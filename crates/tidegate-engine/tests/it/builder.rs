//! How engines are put together.

use tidegate::durable::{FileOptions, FileStore, OpenError};
use tidegate::policy::Policy;
use tidegate::{
    Request, StoreEngine, Timestamp, WhenFull,
    clock::{ManualClock, SystemClock},
    store::{EngineBuildError, MemoryStore, StoreBounds},
};

use crate::file_store::TempFolder;

/// The year 2200: no clock of a system that runs this is there yet.
const FUTURE: Timestamp = Timestamp::from_secs(7_258_118_400);

fn policy() -> Policy {
    let text = "[[rule]]\nname = \"calls\"\nkey = [\"user\"]\nquota = { max = 3, per = \"day\" }";
    Policy::from_toml(text).unwrap()
}

fn charge(engine: &StoreEngine, user: &str) -> bool {
    engine.check(&Request::new("default", &[("user", user)])).block().unwrap().is_allowed()
}

/// A folder with one charge in the future.
fn written(name: &str) -> TempFolder {
    let folder = TempFolder::new(name);
    let clock = ManualClock::new(FUTURE);
    let engine = StoreEngine::builder(policy()).folder(folder.path()).clock(clock).build().unwrap();
    assert!(charge(&engine, "ada"));
    folder
}

#[test]
fn default_clock_is_never_earlier_than_what_is_stored() {
    let folder = written("builder-clock");
    let by_path = StoreEngine::builder(policy()).folder(folder.path()).build().unwrap();
    assert!(by_path.clock().now() >= FUTURE, "a folder");
    drop(by_path);
    let store = FileStore::open(folder.path()).unwrap();
    let given: StoreEngine = StoreEngine::builder(policy()).store(store).build().unwrap();
    assert!(given.clock().now() >= FUTURE, "a given store");
    drop(given);
    let store = FileStore::open(folder.path()).unwrap();
    let builder = StoreEngine::builder(policy()).store(store);
    let chosen = builder.clock_after(SystemClock::no_earlier_than).build().unwrap();
    assert!(chosen.clock().now() >= FUTURE, "a given store with a clock made from its time");
    drop(chosen);
    let chosen =
        StoreEngine::builder(policy()).folder_or_memory(Some(folder.path())).build().unwrap();
    assert!(chosen.clock().now() >= FUTURE, "a chosen store");
}

#[test]
fn given_clock_is_used_as_it_is() {
    let folder = written("builder-own-clock");
    let clock = ManualClock::new(Timestamp::from_secs(5));
    let engine = StoreEngine::builder(policy()).clock(clock).folder(folder.path()).build().unwrap();
    assert_eq!(engine.clock().now(), Timestamp::from_secs(5));
}

#[test]
fn bounds_count_for_every_store_that_the_builder_makes() {
    let two = StoreBounds::new(2, WhenFull::Deny);
    let folder = TempFolder::new("builder-bounds");
    let in_memory = StoreEngine::builder(policy()).bounds(two).build().unwrap();
    let on_disk = StoreEngine::builder(policy()).bounds(two).folder(folder.path()).build().unwrap();
    let users = ["ada", "bob", "eve"];
    assert_eq!(users.map(|user| charge(&in_memory, user)), [true, true, false]);
    assert_eq!(users.map(|user| charge(&on_disk, user)), [true, true, false]);
    drop(on_disk);
    let one = StoreBounds::new(1, WhenFull::Deny);
    let too_many = StoreEngine::builder(policy()).bounds(one).folder(folder.path()).build();
    assert!(matches!(too_many, Err(EngineBuildError::Folder(OpenError::TooManyKeys))));
}

#[test]
fn store_may_be_chosen_at_the_start() {
    let folder = written("builder-chosen");
    let in_memory = StoreEngine::builder(policy()).folder_or_memory(None).build().unwrap();
    assert!(in_memory.file_store().is_none());
    let on_disk =
        StoreEngine::builder(policy()).folder_or_memory(Some(folder.path())).build().unwrap();
    assert!(on_disk.file_store().is_some());
    assert_eq!((in_memory.len(), on_disk.len()), (0, 1));
}

#[test]
fn opening_a_store_and_building_an_engine_have_one_kind_of_error() {
    let store = MemoryStore::new(100, WhenFull::Share).unwrap();
    let engine = StoreEngine::builder(policy()).store(store).build().unwrap();
    assert!(charge(&engine, "ada"));
    let open = |folder: &TempFolder| -> Result<StoreEngine, EngineBuildError> {
        let store = FileOptions::default().fill_ahead(4_096).open(folder.path())?;
        StoreEngine::builder(policy()).store(store).build()
    };
    assert!(charge(&open(&TempFolder::new("builder-given")).unwrap(), "ada"));
}
