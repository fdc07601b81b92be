//! The policies in `examples/policies` and in the testing guide are valid and pass their cases.

use crate::run::{folder, root, tidegate, tidegate_in};

#[test]
fn testing_guide_works_when_pasted() {
    let guide = std::fs::read_to_string(root().join("docs/guides/testing.md")).unwrap();
    let mut blocks = guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (policy, cases) = (blocks.next().unwrap(), blocks.next().unwrap());
    let folder = folder("guide", &[("policy.toml", policy), ("policy.test.toml", cases)]);
    let run = |args: &[&str]| tidegate_in(&folder, args, b"").with(0).silent_err();
    tidegate_in(&folder, &["validate", "--strict", "policy.toml"], b"")
        .with(0)
        .out(&["policy.toml: ok"])
        .err(&["note: rule `login` matches `/login` only, not `/LOGIN`, `/login/` or `/login;x`"]);
    let passed = run(&["test", "policy.toml", "policy.test.toml"]).out;
    assert!(guide.contains(&passed), "the guide does not show {passed}");
    // The failure that the guide shows.
    std::fs::write(folder.join("policy.toml"), policy.replace("max = 5", "max = 6")).unwrap();
    let failed = tidegate_in(&folder, &["test", "policy.toml", "policy.test.toml"], b"").with(1);
    assert!(guide.contains(&failed.out), "the guide does not show {}", failed.out);
}

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
        tidegate(&["validate", "--strict", &policy]).with(0).silent_err();
        tidegate(&["test", &policy, &cases]).with(0).silent_err().out(&["test.toml: ok, "]);
    }
}
