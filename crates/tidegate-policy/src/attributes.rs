/// The attributes of a request: names and values.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [(&'a str, &'a str)]);

impl<'a> Attributes<'a> {
    /// These names and values.
    #[inline]
    #[must_use]
    pub const fn new(attributes: &'a [(&'a str, &'a str)]) -> Self {
        Self(attributes)
    }

    /// All of them, as they were given.
    #[inline]
    #[must_use]
    pub const fn as_slice(&self) -> &'a [(&'a str, &'a str)] {
        self.0
    }

    /// The value of an attribute; of a repeated name, the first.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.0.iter().copied()
    }
}
