use super::Storage;

#[test]
fn only_folders_and_memory_are_valid() {
    assert_eq!(Storage::from_text("memory"), Some(Storage::InMemory));
    let folder = Storage::InFolder("/var/lib/webhook".into());
    assert_eq!(Storage::from_text("file:/var/lib/webhook"), Some(folder));
    for wrong in ["", "file", "file:", "File:x", "Memory", "redis://x", "/var/lib/webhook"] {
        assert_eq!(Storage::from_text(wrong), None, "{wrong:?}");
    }
}
