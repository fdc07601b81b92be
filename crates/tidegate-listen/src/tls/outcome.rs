//! How handshakes end.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::{CertificateError, PeerIncompatible};

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeOutcome {
    /// The connection has TLS.
    Complete,
    /// The client does not use TLS.
    PlainText,
    /// It took too long.
    TimedOut,
    /// It made room for others: there were too many, or they held too many bytes.
    MadeRoom,
    /// The client closed the connection.
    Closed,
    /// The client did not accept the certificate of this side.
    RejectedByClient,
    /// The client has no version or cipher in common with this side.
    Incompatible,
    /// The client offered other protocols only (ALPN).
    WrongProtocol,
    /// The client has no certificate, and needs one.
    NoCertificate,
    /// The client's certificate has expired.
    CertificateExpired,
    /// The client's certificate is not valid yet.
    CertificateNotYetValid,
    /// The client's certificate is of another authority.
    CertificateUnknownIssuer,
    /// The client's certificate is invalid for another reason.
    CertificateInvalid,
    /// The client broke the rules of TLS.
    Malformed,
}

impl HandshakeOutcome {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Complete,
        Self::PlainText,
        Self::TimedOut,
        Self::MadeRoom,
        Self::Closed,
        Self::RejectedByClient,
        Self::Incompatible,
        Self::WrongProtocol,
        Self::NoCertificate,
        Self::CertificateExpired,
        Self::CertificateNotYetValid,
        Self::CertificateUnknownIssuer,
        Self::CertificateInvalid,
        Self::Malformed,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::PlainText => "plain_text",
            Self::TimedOut => "timed_out",
            Self::MadeRoom => "made_room",
            Self::Closed => "closed",
            Self::RejectedByClient => "rejected_by_client",
            Self::Incompatible => "incompatible",
            Self::WrongProtocol => "wrong_protocol",
            Self::NoCertificate => "no_certificate",
            Self::CertificateExpired => "certificate_expired",
            Self::CertificateNotYetValid => "certificate_not_yet_valid",
            Self::CertificateUnknownIssuer => "certificate_unknown_issuer",
            Self::CertificateInvalid => "certificate_invalid",
            Self::Malformed => "malformed",
        }
    }

    /// What an error of a handshake means.
    pub(super) fn of(error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        match inner {
            Some(error) => Self::of_tls(error),
            None if error.kind() == io::ErrorKind::InvalidData => Self::Malformed,
            None => Self::Closed,
        }
    }

    pub(super) fn of_tls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    Self::CertificateExpired
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Self::CertificateNotYetValid
                }
                CertificateError::UnknownIssuer => Self::CertificateUnknownIssuer,
                _ => Self::CertificateInvalid,
            },
            rustls::Error::AlertReceived(_) => Self::RejectedByClient,
            rustls::Error::NoApplicationProtocol => Self::WrongProtocol,
            rustls::Error::PeerIncompatible(
                PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
            ) => Self::CertificateInvalid,
            rustls::Error::PeerIncompatible(_) => Self::Incompatible,
            _ => Self::Malformed,
        }
    }

    /// Its kind, for the log.
    pub(super) const fn kind(self) -> FailureKind {
        match self {
            Self::NoCertificate
            | Self::CertificateExpired
            | Self::CertificateNotYetValid
            | Self::CertificateUnknownIssuer
            | Self::CertificateInvalid => FailureKind::Certificate,
            Self::PlainText => FailureKind::PlainText,
            _ => FailureKind::Other,
        }
    }

    /// What a log says of it.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::Complete => "TLS handshake complete",
            Self::PlainText => "TLS handshake failed: the client sends plain text to a TLS port",
            Self::TimedOut => "TLS handshake failed: it took too long",
            Self::MadeRoom => "TLS handshake failed: there are too many at a time",
            Self::Closed => "TLS handshake failed: the client closed the connection",
            Self::RejectedByClient => {
                "TLS handshake failed: the client rejected it, often because it does not trust the \
                 certificate or expects another name"
            }
            Self::Incompatible => {
                "TLS handshake failed: the client has no version or cipher in common with TLS 1.2 \
                 and 1.3"
            }
            Self::WrongProtocol => "TLS handshake failed: the client offers other protocols (ALPN)",
            Self::NoCertificate => "TLS handshake failed: the client has no certificate",
            Self::CertificateExpired => {
                "TLS handshake failed: the client's certificate has expired"
            }
            Self::CertificateNotYetValid => {
                "TLS handshake failed: the client's certificate is not valid yet"
            }
            Self::CertificateUnknownIssuer => {
                "TLS handshake failed: the client's certificate is not of the expected authority"
            }
            Self::CertificateInvalid => "TLS handshake failed: the client's certificate is invalid",
            Self::Malformed => "TLS handshake failed: the client does not follow the protocol",
        }
    }
}

impl fmt::Display for HandshakeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Failures whose log lines are limited together.
#[derive(Clone, Copy, Debug)]
pub(super) enum FailureKind {
    Certificate,
    PlainText,
    Other,
}

/// How many handshakes ended in each way.
#[derive(Debug, Default)]
pub(super) struct HandshakeCounts([AtomicU64; HandshakeOutcome::ALL.len()]);

impl HandshakeCounts {
    pub(super) fn add(&self, outcome: HandshakeOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn of(&self, outcome: HandshakeOutcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}
