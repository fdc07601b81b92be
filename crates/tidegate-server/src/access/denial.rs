use std::fmt;

use tidegate::Wait;
use tidegate::policy::Scope;

/// Why a client may not do what it requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessDenial {
    /// It sent no credentials.
    Missing,
    /// Its credentials are not those of any token.
    Unknown,
    /// Its token has ended.
    Expired,
    /// Its credentials are ambiguous.
    Ambiguous(&'static str),
    /// Its token lacks a scope.
    Scope(Scope),
    /// Its token is for other domains.
    Domain,
    /// Its token is for requests with another value of this attribute.
    Attribute(Box<str>),
    /// The reservation or lease belongs to another client.
    Owner,
    /// Its token has sent as many requests as it may.
    Limit(Wait),
    /// The request names a host that the daemon does not know.
    Host,
    /// The request is from a page in a browser.
    Origin,
    /// The request is from a page of another origin, or lacks its origin.
    OtherOrigin,
    /// The request is from a page in a browser, and no proxy has forwarded it.
    NotForwarded,
}

/// The kind of a denial, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialReason {
    Missing,
    Unknown,
    Expired,
    Ambiguous,
    Scope,
    Domain,
    Attribute,
    Owner,
    Limit,
    Host,
    Origin,
}

impl DenialReason {
    pub(crate) const ALL: [Self; 11] = [
        Self::Missing,
        Self::Unknown,
        Self::Expired,
        Self::Ambiguous,
        Self::Scope,
        Self::Domain,
        Self::Attribute,
        Self::Owner,
        Self::Limit,
        Self::Host,
        Self::Origin,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::Ambiguous => "ambiguous",
            Self::Scope => "scope",
            Self::Domain => "domain",
            Self::Attribute => "attribute",
            Self::Owner => "owner",
            Self::Limit => "limit",
            Self::Host => "host",
            Self::Origin => "origin",
        }
    }
}

impl AccessDenial {
    pub(crate) const fn reason(&self) -> DenialReason {
        match self {
            Self::Missing => DenialReason::Missing,
            Self::Unknown => DenialReason::Unknown,
            Self::Expired => DenialReason::Expired,
            Self::Ambiguous(_) => DenialReason::Ambiguous,
            Self::Scope(_) => DenialReason::Scope,
            Self::Domain => DenialReason::Domain,
            Self::Attribute(_) => DenialReason::Attribute,
            Self::Owner => DenialReason::Owner,
            Self::Limit(_) => DenialReason::Limit,
            Self::Host => DenialReason::Host,
            Self::Origin | Self::OtherOrigin | Self::NotForwarded => DenialReason::Origin,
        }
    }

    /// Whether other credentials would help.
    pub(crate) const fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Missing | Self::Unknown | Self::Expired)
    }
}

impl fmt::Display for AccessDenial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("a token or a client certificate is needed"),
            Self::Unknown => f.write_str("the token or client certificate is not known"),
            Self::Expired => f.write_str("the token has ended"),
            Self::Ambiguous(what) => f.write_str(what),
            Self::Scope(scope) => write!(f, "the client lacks the scope `{scope}`"),
            Self::Domain => f.write_str("the token is not for this domain"),
            Self::Attribute(name) => {
                write!(f, "the token is not for requests with this value of the attribute {name:?}")
            }
            // As for a hold that does not exist: only its owner may know of it.
            Self::Owner => f.write_str("the reservation or lease has expired or never existed"),
            Self::Limit(Wait::Never) => {
                f.write_str("the token's own limit is below the number of requests in this batch")
            }
            Self::Limit(_) => f.write_str("the token's own limit is exceeded"),
            Self::Host => f.write_str(
                "the Host is neither an address nor localhost: add its name to `hosts` in [server], or \
                 send a token",
            ),
            Self::Origin => f.write_str(
                "requests from pages in a browser are rejected: remove the header Origin",
            ),
            Self::NotForwarded => f.write_str(
                "requests from pages in a browser are rejected unless a proxy forwards them: let it \
                 send X-Forwarded-For, or the headers of its guide, or a token",
            ),
            Self::OtherOrigin => f.write_str(
                "requests from pages of other origins are rejected: in a browser, use the dashboard; \
                 elsewhere, remove the headers Origin and Sec-Fetch-Site, and send a token in place of \
                 a cookie",
            ),
        }
    }
}
