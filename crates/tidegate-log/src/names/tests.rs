use super::*;

const ONE: &str = "0000000001.log";
const TWO: &str = "0000000002.log";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(String::from).collect()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

#[test]
fn a_folder_is_listed_after_a_change_and_once_more() {
    let (mut expected, times) = (ExpectedNames::default(), FolderTimes([7, 0, 7, 0]));
    expected.add(ONE);
    assert!(expected.is_due(times, at(100)));
    assert_eq!(expected.missing(&names(&[ONE]), times, at(100)), None);
    assert!(!expected.is_due(times, at(102)));
    // A second change within the same tick is found then.
    assert!(expected.is_due(times, at(103)));
    assert_eq!(expected.missing(&names(&[]), times, at(103)).as_deref(), Some(ONE));
    assert!(expected.is_due(times, at(103)), "it may come back within the tick");
    assert_eq!(expected.missing(&names(&[ONE]), times, at(103)), None);
    assert_eq!(expected.missing(&names(&[ONE]), times, at(106)), None);
    assert!(!expected.is_due(times, at(1_000_000)), "nothing is listed while nothing changes");
    assert!(expected.is_due(FolderTimes([8, 0, 8, 0]), at(1_000_000)));
}

#[test]
fn only_files_of_the_ledger_are_watched() {
    let (mut expected, times) = (ExpectedNames::default(), FolderTimes([7, 0, 7, 0]));
    for name in [ONE, TWO, "segment.tmp", "0000000001.log.damaged-1", "notes.txt", "erasing"] {
        expected.add(name);
    }
    expected.remove(ONE);
    assert_eq!(expected.missing(&names(&[TWO]), times, at(1)), None);
    for name in ["begun", "0000000002.snapshot"] {
        expected.add(name);
        assert_eq!(expected.missing(&names(&[TWO]), times, at(1)).as_deref(), Some(name));
        expected.remove(name);
    }
}
