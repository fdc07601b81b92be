//! Tests of the programs.

use super::VALKEY_VERSION;

#[test]
fn the_version_of_valkey_is_the_one_that_the_script_installs() {
    let script = include_str!("../../../../scripts/install");
    assert!(script.contains(&format!("\nVALKEY_VERSION={VALKEY_VERSION}\n")));
}
