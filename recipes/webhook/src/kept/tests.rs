use super::Kept;

#[test]
fn a_folder_or_memory_and_nothing_else() {
    assert_eq!(Kept::from_text("memory"), Some(Kept::InMemory));
    let folder = Kept::InFolder("/var/lib/webhook".into());
    assert_eq!(Kept::from_text("file:/var/lib/webhook"), Some(folder));
    for wrong in ["", "file", "file:", "File:x", "Memory", "redis://x", "/var/lib/webhook"] {
        assert_eq!(Kept::from_text(wrong), None, "{wrong:?}");
    }
}
