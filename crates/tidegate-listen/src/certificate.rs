//! Certificates of clients.

pub(crate) use der::Fields;

mod der;

/// The certificate of a client, which has been verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    subjects: Vec<String>,
    expires_at: i64,
}

impl ClientCertificate {
    /// A certificate in the format DER; `None` if it is malformed.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let Fields { subjects, not_after, .. } = Fields::of(certificate)?;
        Some(Self { subjects, expires_at: not_after })
    }

    /// Whom the certificate names: its URI and DNS names; only if it has neither, its common name.
    #[must_use]
    pub fn subjects(&self) -> &[String] {
        &self.subjects
    }

    /// When it is no longer valid: seconds of Unix time.
    #[must_use]
    pub const fn expires_at(&self) -> i64 {
        self.expires_at
    }
}
