/// A type of which each value has a word in policy files.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// All words.
    const WORDS: &'static [&'static str];
    /// Their values.
    const VALUES: &'static [Self];
}
