//! The tokens of a file, by their credentials.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use nix::unistd::{Group, User};
use ring::digest::{SHA256, digest};
use tidegate::policy::{Credential, TokenFile};
use tidegate::{Bucket, DirectLimiter};

use super::grant::Grant;

/// The tokens of a file.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    grants: HashMap<Credential, Arc<Grant>>,
    /// By the SHA-256 of the secret. The hash of the map has a random key, so how long a search takes
    /// says nothing about the digests in it.
    by_digest: HashMap<[u8; 32], Arc<Grant>>,
    by_subject: HashMap<Box<str>, Arc<Grant>>,
    by_uid: HashMap<u32, Arc<Grant>>,
    by_gid: HashMap<u32, Arc<Grant>>,
    limits: HashMap<Box<str>, Arc<DirectLimiter<Bucket>>>,
}

impl TokenTable {
    /// The tokens of a file. What is the same as before is taken over.
    pub(super) fn new(file: &TokenFile, before: Option<&Self>) -> Self {
        let mut table = Self::default();
        for token in file.tokens() {
            let limit = token.limit().map(|limit| table.limit(token.name(), limit, before));
            let credential = token.credential();
            let known = before.and_then(|before| before.grants.get(credential));
            let grant = match known {
                Some(known) if known.is_of(token) => Arc::clone(known),
                _ => Arc::new(Grant::of(token, limit)),
            };
            table.grants.insert(credential.clone(), Arc::clone(&grant));
            table.insert(credential, grant);
        }
        table
    }

    fn insert(&mut self, credential: &Credential, grant: Arc<Grant>) {
        match credential {
            Credential::Sha256(digest) => {
                self.by_digest.insert(*digest, grant);
            }
            Credential::Subject(subject) => {
                self.by_subject.insert(subject.clone(), grant);
            }
            Credential::User(user) => match id(user, "uid:", |name| {
                Ok(User::from_name(name)?.map(|user| user.uid.as_raw()))
            }) {
                Some(uid) => warn_twice(self.by_uid.insert(uid, Arc::clone(&grant)), &grant),
                None => warn_unknown("user", user, &grant),
            },
            Credential::Group(group) => match id(group, "gid:", |name| {
                Ok(Group::from_name(name)?.map(|group| group.gid.as_raw()))
            }) {
                Some(gid) => warn_twice(self.by_gid.insert(gid, Arc::clone(&grant)), &grant),
                None => warn_unknown("group", group, &grant),
            },
        }
    }

    /// The limiter of a name, which keeps what was charged to it before.
    fn limit(
        &mut self,
        name: &str,
        limit: Bucket,
        before: Option<&Self>,
    ) -> Arc<DirectLimiter<Bucket>> {
        if let Some(known) = self.limits.get(name) {
            return Arc::clone(known);
        }
        let limiter = match before.and_then(|before| before.limits.get(name)) {
            Some(known) => {
                if known.limit() != limit {
                    known.set_limit(limit);
                }
                Arc::clone(known)
            }
            None => Arc::new(DirectLimiter::new(limit)),
        };
        self.limits.insert(name.into(), Arc::clone(&limiter));
        limiter
    }

    /// Revokes all grants that another table does not have.
    pub(super) fn revoke_all_but(&self, after: &Self) {
        for (credential, grant) in &self.grants {
            let kept = after.grants.get(credential);
            if !kept.is_some_and(|kept| Arc::ptr_eq(kept, grant)) {
                grant.revoke();
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }

    /// The grant of a secret.
    pub(super) fn by_secret(&self, secret: &[u8]) -> Option<&Arc<Grant>> {
        if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
            return None;
        }
        let digest = digest(&SHA256, secret);
        let digest: &[u8; 32] = digest.as_ref().try_into().ok()?;
        let (known, grant) = self.by_digest.get_key_value(digest)?;
        is_same(known, digest).then_some(grant)
    }

    /// The grant of the first of some subjects that has one.
    pub(super) fn by_subject(&self, subjects: &[String]) -> Option<&Arc<Grant>> {
        subjects.iter().find_map(|subject| self.by_subject.get(&**subject))
    }

    /// The grant of a user, or of the first of its groups that has one.
    pub(super) fn by_user(&self, uid: u32, gids: &[u32]) -> Option<&Arc<Grant>> {
        let by_group = || gids.iter().find_map(|gid| self.by_gid.get(gid));
        self.by_uid.get(&uid).or_else(by_group)
    }
}

/// The id in `uid:N` or `gid:N`, or that of a name; `None` if the system does not know it.
fn id(
    text: &str,
    prefix: &str,
    find: impl FnOnce(&str) -> nix::Result<Option<u32>>,
) -> Option<u32> {
    match text.strip_prefix(prefix) {
        Some(digits) => digits.parse().ok(),
        None => find(text).ok().flatten(),
    }
}

fn warn_unknown(kind: &str, name: &str, grant: &Grant) {
    let token = &*grant.name;
    tracing::warn!(token, kind, name, "the system does not know the {kind} of a token");
}

/// Warns of a user or group with two tokens, by different names of the same id.
fn warn_twice(before: Option<Arc<Grant>>, after: &Grant) {
    if let Some(before) = before {
        let (token, replaced) = (&*after.name, &*before.name);
        tracing::warn!(
            token,
            replaced,
            "two tokens are for the same user or group; the last counts"
        );
    }
}

/// Whether two digests are equal, in a time that does not depend on where they differ.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differ, (one, other)| black_box(differ | (one ^ other))) == 0
}

/// The longest secret; longer ones are not hashed.
const SECRET_BYTES_MAX: usize = 4_096;
