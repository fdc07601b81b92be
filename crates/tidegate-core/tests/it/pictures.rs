//! The pictures of the documentation show what the crate does.

use std::path::Path;

#[path = "../../examples/pictures/draw/mod.rs"]
mod draw;

#[test]
fn committed_pictures_are_up_to_date() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/img");
    for (name, text) in draw::files() {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == text,
            "docs/concepts/img/{name} is out of date. If the change is meant, run\n\
             cargo run -p tidegate-core --example pictures -- --write"
        );
    }
}

#[test]
fn every_picture_is_in_the_document() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/concepts/algorithms.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (name, _) in draw::files() {
        assert!(page.contains(&format!("](img/{name})")), "{name}");
    }
}
