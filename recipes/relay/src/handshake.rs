//! The authentication handshake: a challenge, and the check of its response.

use std::fmt;
use std::time::Duration;

use ed25519_dalek::{Signature, VerifyingKey};
use prost::Message;
use tidegate::{Timestamp, clock::Clock};

use crate::address::address_of;
use crate::wire::{AuthChallenge, AuthResponse, Envelope, MessageType, Payload, VERSION};

/// The challenge of one connection, valid once.
#[derive(Debug)]
pub(crate) struct Challenge {
    nonce: [u8; 32],
    /// In monotonic time.
    expires: Timestamp,
    issued_at_ms: i64,
    expires_at_ms: i64,
}

/// Why a response is rejected. For the log; the client learns only that it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthFailure {
    Malformed,
    NotAResponse,
    Version,
    Lengths,
    Expired,
    Nonce,
    Key,
    Signature,
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the response is not an envelope",
            Self::NotAResponse => "the envelope is not an AuthResponse",
            Self::Version => "the response has another version",
            Self::Lengths => "the key, signature or nonce has the wrong length",
            Self::Expired => "the challenge has expired",
            Self::Nonce => "the nonce is not the challenge's",
            Self::Key => "the key is not a point on the curve",
            Self::Signature => "the signature is wrong",
        })
    }
}

impl Challenge {
    /// A new challenge that is valid for `lasts`.
    pub(crate) fn new(clock: &impl Clock, lasts: Duration) -> Result<Self, getrandom::Error> {
        let mut nonce = [0; 32];
        getrandom::fill(&mut nonce)?;
        Ok(Self {
            nonce,
            expires: clock.now().saturating_add(lasts),
            issued_at_ms: millis(clock.wall()),
            expires_at_ms: millis(clock.wall().saturating_add(lasts)),
        })
    }

    /// The envelope that is sent to the client.
    pub(crate) fn envelope(&self, host: &str) -> Envelope {
        let challenge = AuthChallenge {
            version: VERSION,
            nonce: self.nonce.to_vec(),
            issued_at_ms: self.issued_at_ms,
            expires_at_ms: self.expires_at_ms,
            relay_host: host.to_owned(),
        };
        let payload = Payload::AuthChallenge(challenge);
        Envelope::from_relay(MessageType::AuthChallenge, self.issued_at_ms, payload)
    }

    /// The address of the client that signed this response. It consumes the challenge: there is no
    /// second try.
    pub(crate) fn verify(
        self,
        response: &[u8],
        host: &str,
        now: Timestamp,
    ) -> Result<String, AuthFailure> {
        let envelope = Envelope::decode(response).map_err(|_| AuthFailure::Malformed)?;
        let response = match (envelope.r#type(), envelope.payload) {
            (MessageType::AuthResponse, Some(Payload::AuthResponse(response))) => response,
            _ => return Err(AuthFailure::NotAResponse),
        };
        let (key, signature) = self.parts(&response)?;
        if now > self.expires {
            return Err(AuthFailure::Expired);
        }
        if response.nonce != self.nonce {
            return Err(AuthFailure::Nonce);
        }
        let verifying = VerifyingKey::from_bytes(&key).map_err(|_| AuthFailure::Key)?;
        verifying
            .verify_strict(&signed_bytes(host, &self.nonce), &signature)
            .map_err(|_| AuthFailure::Signature)?;
        Ok(address_of(&key, host))
    }

    fn parts(&self, response: &AuthResponse) -> Result<([u8; 32], Signature), AuthFailure> {
        if response.version != VERSION {
            return Err(AuthFailure::Version);
        }
        let key = response.public_key.as_slice().try_into().map_err(|_| AuthFailure::Lengths)?;
        let signature =
            response.signature.as_slice().try_into().map_err(|_| AuthFailure::Lengths)?;
        if response.nonce.len() != self.nonce.len() {
            return Err(AuthFailure::Lengths);
        }
        Ok((key, Signature::from_bytes(signature)))
    }
}

/// The data that a client signs: `pinch-auth-v1`, the host and the nonce, separated by zeros.
#[must_use]
pub fn signed_bytes(host: &str, nonce: &[u8]) -> Vec<u8> {
    [b"pinch-auth-v1".as_slice(), b"\0", host.as_bytes(), b"\0", nonce].concat()
}

/// Whole milliseconds of a time.
pub(crate) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
