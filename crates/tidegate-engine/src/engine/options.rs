//! Options of the verbs that settle holds, drop states and close rounds.

/// How a reservation is committed, for [`Engine::commit`](crate::Engine::commit).
///
/// ```
/// use tidegate::hold::Commit;
///
/// let as_held = Commit::held();
/// let with_a_note = Commit::actual(1_234).note("chat 17");
/// assert_eq!(Commit::from(None), as_held);
/// assert_ne!(Commit::from(Some(1_234)), with_a_note);
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit<'a> {
    pub(super) actual: Option<u64>,
    pub(super) note: Note<'a>,
}

impl<'a> Commit<'a> {
    /// Charges the units that the reservation holds.
    pub const fn held() -> Self {
        Self { actual: None, note: Note(None) }
    }

    /// Charges this many units, which may be fewer or more than the reservation holds.
    pub const fn actual(units: u64) -> Self {
        Self { actual: Some(units), note: Note(None) }
    }

    /// Writes a note into the ledger of a file store, in the record of the commit. A repeat writes
    /// none.
    pub const fn note(self, note: &'a str) -> Self {
        Self { note: Note(Some(note)), ..self }
    }
}

/// The actual units; `None` is what the reservation holds.
impl From<Option<u64>> for Commit<'_> {
    fn from(actual: Option<u64>) -> Self {
        Self { actual, ..Self::held() }
    }
}

impl From<u64> for Commit<'_> {
    fn from(units: u64) -> Self {
        Self::actual(units)
    }
}

/// What is refunded of a committed reservation, for
/// [`StoreEngine::refund_hold`](crate::StoreEngine::refund_hold).
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refund<'a> {
    pub(super) units: u64,
    pub(super) idempotency_key: Option<&'a str>,
}

impl<'a> Refund<'a> {
    /// Refunds this many units, or what was charged, if that is less.
    pub const fn units(units: u64) -> Self {
        Self { units, idempotency_key: None }
    }

    /// Refunds them once under this key: repeated, it refunds nothing more and returns the same
    /// number.
    pub const fn idempotency_key(self, key: &'a str) -> Self {
        Self { idempotency_key: Some(key), ..self }
    }
}

impl From<u64> for Refund<'_> {
    fn from(units: u64) -> Self {
        Self::units(units)
    }
}

/// A note that a file store writes into its ledger with an operation, in the same record: a text,
/// or `None`.
///
/// Other stores have no ledger, and drop it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note<'a>(pub(super) Option<&'a str>);

impl<'a> From<Option<&'a str>> for Note<'a> {
    fn from(note: Option<&'a str>) -> Self {
        Self(note)
    }
}

impl<'a> From<&'a str> for Note<'a> {
    fn from(note: &'a str) -> Self {
        Self(Some(note))
    }
}

impl<'a> From<&'a String> for Note<'a> {
    fn from(note: &'a String) -> Self {
        Self(Some(note))
    }
}
