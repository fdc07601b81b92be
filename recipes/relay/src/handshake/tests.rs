use std::time::Duration;

use ed25519_dalek::{Signer, SigningKey};
use prost::Message;
use tidegate::{
    Timestamp,
    clock::{Clock, ManualClock},
};

use super::{AuthFailure, Challenge, signed_bytes};
use crate::address::address_of;
use crate::wire::{AuthResponse, Envelope, MessageType, Payload};

const HOST: &str = "relay.example";

#[test]
fn signed_data_is_prefix_host_and_nonce() {
    assert_eq!(signed_bytes("a.b", &[1, 2]), b"pinch-auth-v1\0a.b\0\x01\x02");
}

#[test]
fn valid_response_gives_the_keys_address() {
    let (challenge, clock) = challenge();
    let response = response(&challenge);
    assert_eq!(
        challenge.verify(&wrapped(response), HOST, clock.now()),
        Ok(address_of(key().verifying_key().as_bytes(), HOST))
    );
}

#[test]
fn invalid_responses_are_rejected() {
    type Spoil = fn(&mut AuthResponse);
    let cases: [(Spoil, AuthFailure); 11] = [
        (|response| response.version = 0, AuthFailure::Version),
        (|response| response.version = 2, AuthFailure::Version),
        (|response| response.public_key.clear(), AuthFailure::Lengths),
        (|response| response.public_key.push(0), AuthFailure::Lengths),
        (|response| response.signature.truncate(63), AuthFailure::Lengths),
        (|response| response.signature.push(0), AuthFailure::Lengths),
        (|response| response.nonce.truncate(31), AuthFailure::Lengths),
        (|response| response.nonce[31] ^= 1, AuthFailure::Nonce),
        (|response| response.signature[3] ^= 1, AuthFailure::Signature),
        (|response| response.public_key = other_key(), AuthFailure::Signature),
        (|response| response.public_key = vec![2; 32], AuthFailure::Key),
    ];
    for (spoil, failure) in cases {
        let (challenge, clock) = challenge();
        let mut response = response(&challenge);
        spoil(&mut response);
        assert_eq!(challenge.verify(&wrapped(response), HOST, clock.now()), Err(failure));
    }
}

/// The point of order one is a valid encoding; a lenient verifier accepts a signature under it for
/// every message.
#[test]
fn key_of_small_order_is_rejected() {
    let (challenge, clock) = challenge();
    let mut response = response(&challenge);
    response.public_key = [[1].as_slice(), &[0; 31]].concat();
    response.signature = [[1].as_slice(), &[0; 63]].concat();
    let verdict = challenge.verify(&wrapped(response), HOST, clock.now());
    assert_eq!(verdict, Err(AuthFailure::Signature));
}

#[test]
fn signature_for_another_host_is_rejected() {
    let (challenge, clock) = challenge();
    let response = response(&challenge);
    let verdict = challenge.verify(&wrapped(response), "other.example", clock.now());
    assert_eq!(verdict, Err(AuthFailure::Signature));
}

#[test]
fn response_to_another_challenge_is_rejected() {
    let (earlier, _) = challenge();
    let (later, clock) = challenge();
    let response = response(&earlier);
    assert_eq!(later.verify(&wrapped(response), HOST, clock.now()), Err(AuthFailure::Nonce));
}

#[test]
fn challenge_is_valid_until_it_expires_and_not_a_nanosecond_longer() {
    for (later_ns, is_believed) in [(10_000_000_000, true), (10_000_000_001, false)] {
        let (challenge, clock) = challenge();
        let response = response(&challenge);
        clock.advance(Duration::from_nanos(later_ns));
        let verdict = challenge.verify(&wrapped(response), HOST, clock.now());
        assert_eq!(verdict.is_ok(), is_believed, "{verdict:?}");
    }
}

#[test]
fn other_envelopes_are_rejected() {
    let (one, clock) = challenge();
    let mut envelope = Envelope::decode(&*wrapped(response(&one))).unwrap();
    envelope.r#type = MessageType::Message.into();
    let verdict = one.verify(&envelope.encode_to_vec(), HOST, clock.now());
    assert_eq!(verdict, Err(AuthFailure::NotAResponse));
    for (bytes, failure) in
        [(&b""[..], AuthFailure::NotAResponse), (&b"\xff\xff"[..], AuthFailure::Malformed)]
    {
        assert_eq!(challenge().0.verify(bytes, HOST, clock.now()), Err(failure));
    }
}

#[test]
fn challenge_envelope_contains_its_expiry() {
    let (challenge, _) = challenge();
    let envelope = challenge.envelope(HOST);
    assert_eq!((envelope.version, envelope.r#type()), (1, MessageType::AuthChallenge));
    let Some(Payload::AuthChallenge(payload)) = envelope.payload else { panic!("no challenge") };
    assert_eq!((payload.version, payload.nonce.len()), (1, 32));
    assert_eq!((payload.issued_at_ms, payload.expires_at_ms), (1_700_000, 1_710_000));
    assert_eq!(payload.relay_host, HOST);
}

fn challenge() -> (Challenge, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_700));
    (Challenge::new(&clock, Duration::from_secs(10)).unwrap(), clock)
}

fn key() -> SigningKey {
    SigningKey::from_bytes(&[7; 32])
}

fn other_key() -> Vec<u8> {
    SigningKey::from_bytes(&[8; 32]).verifying_key().to_bytes().to_vec()
}

fn response(challenge: &Challenge) -> AuthResponse {
    AuthResponse {
        version: 1,
        public_key: key().verifying_key().to_bytes().to_vec(),
        signature: key().sign(&signed_bytes(HOST, &challenge.nonce)).to_bytes().to_vec(),
        nonce: challenge.nonce.to_vec(),
    }
}

fn wrapped(response: AuthResponse) -> Vec<u8> {
    let payload = Payload::AuthResponse(response);
    Envelope::from_relay(MessageType::AuthResponse, 0, payload).encode_to_vec()
}
