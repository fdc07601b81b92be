//! Who may do what: tokens, their scopes, and what is refused to browsers.
//!
//! Every protocol authenticates a client, which gives a [`Principal`], and passes each request through
//! it. Where no credentials are configured, the principal may do everything.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use tidegate::Timestamp;
use tidegate::policy::{Scopes, TokenFile};
use tidegate_listen::tls::ClientCertificate;
use tidegate_listen::{ConnectionState, Warnings};

use crate::listener::Listener;
pub(crate) use denial::{AccessDenial, DenialReason};
pub(crate) use grant::Grant;
pub(crate) use principal::Principal;
pub(crate) use sessions::{CurrentSession, SessionTimes, Sessions, set_cookie};
pub(crate) use status::TokensStatus;
use table::TokenTable;

pub(crate) mod browser;
mod denial;
mod grant;
mod principal;
mod sessions;
mod status;
mod table;
mod watcher;

pub(crate) use watcher::{LoadedTokens, close_ended, watch};

/// The access of all clients.
#[derive(Debug)]
pub(crate) struct AccessControl {
    /// The tokens in force; `None` where there is no token file.
    tokens: ArcSwapOption<TokenTable>,
    /// Held while another table is put into force.
    replacing: Mutex<()>,
    /// Open connections, each with the grant that it uses.
    connections: Mutex<Vec<Weak<ConnectionGrant>>>,
    /// By listener and reason.
    denied: [[AtomicU64; DenialReason::ALL.len()]; Listener::ALL.len()],
    warnings: Warnings,
    /// The status of reloads of the token file.
    pub(crate) status: TokensStatus,
}

/// How a client of one connection proves who it is, besides by a secret.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionAccess {
    /// Its verified certificate.
    certificate: Option<Arc<ClientCertificate>>,
    current: Option<Arc<ConnectionGrant>>,
}

/// The grant that a connection used last, and when its certificate ends.
#[derive(Debug)]
struct ConnectionGrant {
    state: Weak<ConnectionState>,
    grant: ArcSwapOption<Grant>,
    /// Seconds since 1970.
    certificate_ends_at: Option<i64>,
}

impl AccessControl {
    /// With the tokens of a file; `None`: no client needs one.
    pub(crate) fn new(tokens: Option<&TokenFile>) -> Self {
        let table = tokens.map(|file| Arc::new(TokenTable::new(file, None)));
        Self {
            tokens: ArcSwapOption::new(table),
            replacing: Mutex::new(()),
            connections: Mutex::default(),
            denied: Default::default(),
            warnings: Warnings::new(),
            status: TokensStatus::default(),
        }
    }

    /// Puts the tokens of a file into force. Those that are the same as before stay as they are, with
    /// what was charged to their limits; all others are revoked.
    pub(crate) fn replace(&self, file: &TokenFile) {
        let _one_at_a_time = self.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.tokens.load_full();
        let after = Arc::new(TokenTable::new(file, before.as_deref()));
        self.tokens.store(Some(Arc::clone(&after)));
        if let Some(before) = before {
            before.revoke_all_but(&after);
        }
    }

    /// Whether clients need a token.
    pub(crate) fn needs_tokens(&self) -> bool {
        self.tokens.load().is_some()
    }

    /// The number of tokens; `None` where there is no token file.
    pub(crate) fn tokens(&self) -> Option<usize> {
        self.tokens.load().as_ref().map(|table| table.len())
    }

    /// A connection, which is closed when the token that it used last ends, or its certificate.
    pub(crate) fn connect(
        &self,
        state: &Arc<ConnectionState>,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> ConnectionAccess {
        let certificate = certificate.cloned();
        if !self.needs_tokens() && certificate.is_none() {
            return ConnectionAccess::default();
        }
        let current = Arc::new(ConnectionGrant {
            state: Arc::downgrade(state),
            grant: ArcSwapOption::empty(),
            certificate_ends_at: certificate.as_ref().map(|it| it.expires_at()),
        });
        self.connections().push(Arc::downgrade(&current));
        ConnectionAccess { certificate, current: Some(current) }
    }

    /// Who the client of a connection is, by the secret that came with a request, or by its
    /// certificate. From now on the connection ends with that token.
    pub(crate) fn authenticate(
        &self,
        connection: &ConnectionAccess,
        secret: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Principal, AccessDenial> {
        let principal = self.identify(connection, secret, now)?;
        connection.uses(&principal);
        Ok(principal)
    }

    /// The same, for a client that is not accepted yet.
    pub(crate) fn identify(
        &self,
        connection: &ConnectionAccess,
        secret: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Principal, AccessDenial> {
        let tokens = self.tokens.load();
        let Some(table) = &*tokens else {
            // A certificate alone is as good as a token with every scope.
            return match &connection.certificate {
                None => Ok(Principal::open()),
                Some(certificate) => match certificate.subjects() {
                    [subject, ..] => Ok(Principal::certificate(subject)),
                    // Its holds would have no owner.
                    [] => Err(AccessDenial::Unknown),
                },
            };
        };
        let grant = match (secret, &connection.certificate) {
            (Some(secret), _) => table.by_secret(secret),
            (None, Some(certificate)) => table.by_subject(certificate.subjects()),
            (None, None) => return Err(AccessDenial::Missing),
        };
        let grant = grant.ok_or(AccessDenial::Unknown)?;
        if grant.is_over(now) {
            return Err(AccessDenial::Expired);
        }
        Ok(Principal::of(Arc::clone(grant)))
    }

    /// The principal of a user of the local socket; `None` if there is no token for it.
    pub(crate) fn local_user(
        &self,
        connection: &ConnectionAccess,
        uid: u32,
        gids: &[u32],
        now: Timestamp,
    ) -> Option<Result<Principal, AccessDenial>> {
        let tokens = self.tokens.load();
        let grant = tokens.as_ref()?.by_user(uid, gids)?;
        if grant.is_over(now) {
            return Some(Err(AccessDenial::Expired));
        }
        let principal = Principal::of(Arc::clone(grant));
        connection.uses(&principal);
        Some(Ok(principal))
    }

    /// The principal of a user who is in the access list of the local socket, without a token.
    pub(crate) fn listed_user(&self, name: &str, scopes: Scopes) -> Principal {
        // Where there are no tokens, holds have no owners.
        Principal::user(name, scopes, self.needs_tokens())
    }

    /// Counts a denial.
    pub(crate) fn count(&self, listener: Listener, denial: &AccessDenial) {
        let counter = &self.denied[listener as usize][denial.reason() as usize];
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts and logs a denial, at a bounded rate.
    pub(crate) fn note(&self, listener: Listener, peer: impl fmt::Display, denial: &AccessDenial) {
        let reason = denial.reason();
        self.count(listener, denial);
        if let Some(left_out) = self.warnings.next() {
            let reason = reason.name();
            tracing::warn!(%listener, %peer, reason, left_out, "access denied: {denial}");
        }
    }

    /// How many requests or connections of a listener were denied for a reason.
    pub(crate) fn denied(&self, listener: Listener, reason: DenialReason) -> u64 {
        self.denied[listener as usize][reason as usize].load(Ordering::Relaxed)
    }

    /// Closes connections whose token or certificate has ended, and forgets those that are closed.
    pub(crate) fn close_ended(&self, now: Timestamp) {
        self.connections().retain(|connection| {
            let Some(connection) = connection.upgrade() else { return false };
            let now_s = i64::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
            let is_over = connection.certificate_ends_at.is_some_and(|end| end < now_s)
                || connection.grant.load().as_ref().is_some_and(|it| it.is_over(now));
            if is_over && let Some(state) = connection.state.upgrade() {
                state.close();
            }
            !is_over
        });
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Weak<ConnectionGrant>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionAccess {
    /// The connection ends with the token of this principal from now on.
    pub(crate) fn uses(&self, principal: &Principal) {
        let (Some(current), Some(grant)) = (&self.current, principal.grant()) else { return };
        if !current.grant.load().as_ref().is_some_and(|known| Arc::ptr_eq(known, grant)) {
            current.grant.store(Some(Arc::clone(grant)));
        }
    }
}
