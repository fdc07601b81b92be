//! The policies in `examples/policies` are fine, and do what their cases say.

use crate::run::{root, tollgate};

#[test]
fn every_example_is_valid_and_passes_its_cases() {
    let folder = root().join("examples/policies");
    let names = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with(".test.toml"));
    names.sort_unstable();
    assert_eq!(names, ["api.toml", "local-service.toml", "proposals.toml", "relay.toml"]);
    for name in names {
        let policy = format!("examples/policies/{name}");
        let cases = policy.replace(".toml", ".test.toml");
        tollgate(&["validate", "--strict", &policy]).with(0).silent_err();
        tollgate(&["test", &policy, &cases]).with(0).silent_err().out(&["test.toml: ok, "]);
    }
}
