use std::time::Duration;

use ed25519_dalek::{Signer, SigningKey};
use prost::Message;
use tidegate::{Clock, ManualClock, Timestamp};

use super::{AuthFailure, Challenge, signed_bytes};
use crate::address::address_of;
use crate::wire::{AuthResponse, Envelope, MessageType, Payload};

const HOST: &str = "relay.example";

#[test]
fn what_is_signed_is_prefix_host_and_nonce() {
    assert_eq!(signed_bytes("a.b", &[1, 2]), b"pinch-auth-v1\0a.b\0\x01\x02");
}

#[test]
fn the_right_answer_gives_the_keys_address() {
    let (challenge, clock) = challenge();
    let answer = answer(&challenge);
    assert_eq!(
        challenge.judge(&wrapped(answer), HOST, clock.now()),
        Ok(address_of(key().verifying_key().as_bytes(), HOST))
    );
}

#[test]
fn every_wrong_answer_is_disbelieved() {
    type Spoil = fn(&mut AuthResponse);
    let cases: [(Spoil, AuthFailure); 11] = [
        (|answer| answer.version = 0, AuthFailure::Version),
        (|answer| answer.version = 2, AuthFailure::Version),
        (|answer| answer.public_key.clear(), AuthFailure::Lengths),
        (|answer| answer.public_key.push(0), AuthFailure::Lengths),
        (|answer| answer.signature.truncate(63), AuthFailure::Lengths),
        (|answer| answer.signature.push(0), AuthFailure::Lengths),
        (|answer| answer.nonce.truncate(31), AuthFailure::Lengths),
        (|answer| answer.nonce[31] ^= 1, AuthFailure::Nonce),
        (|answer| answer.signature[3] ^= 1, AuthFailure::Signature),
        (|answer| answer.public_key = other_key(), AuthFailure::Signature),
        (|answer| answer.public_key = vec![2; 32], AuthFailure::Key),
    ];
    for (spoil, disbelief) in cases {
        let (challenge, clock) = challenge();
        let mut answer = answer(&challenge);
        spoil(&mut answer);
        assert_eq!(challenge.judge(&wrapped(answer), HOST, clock.now()), Err(disbelief));
    }
}

/// The point of order one is a valid encoding; every message has a signature under it that a
/// lenient verifier takes.
#[test]
fn a_key_of_small_order_is_nobodys_key() {
    let (challenge, clock) = challenge();
    let mut answer = answer(&challenge);
    answer.public_key = [[1].as_slice(), &[0; 31]].concat();
    answer.signature = [[1].as_slice(), &[0; 63]].concat();
    let verdict = challenge.judge(&wrapped(answer), HOST, clock.now());
    assert_eq!(verdict, Err(AuthFailure::Signature));
}

#[test]
fn a_signature_for_another_host_is_disbelieved() {
    let (challenge, clock) = challenge();
    let answer = answer(&challenge);
    let verdict = challenge.judge(&wrapped(answer), "other.example", clock.now());
    assert_eq!(verdict, Err(AuthFailure::Signature));
}

#[test]
fn an_answer_to_another_challenge_is_disbelieved() {
    let (earlier, _) = challenge();
    let (later, clock) = challenge();
    let answer = answer(&earlier);
    assert_eq!(later.judge(&wrapped(answer), HOST, clock.now()), Err(AuthFailure::Nonce));
}

#[test]
fn a_challenge_is_good_until_it_expires_and_not_a_nanosecond_longer() {
    for (later_ns, is_believed) in [(10_000_000_000, true), (10_000_000_001, false)] {
        let (challenge, clock) = challenge();
        let answer = answer(&challenge);
        clock.advance(Duration::from_nanos(later_ns));
        let verdict = challenge.judge(&wrapped(answer), HOST, clock.now());
        assert_eq!(verdict.is_ok(), is_believed, "{verdict:?}");
    }
}

#[test]
fn other_envelopes_are_not_answers() {
    let (one, clock) = challenge();
    let mut envelope = Envelope::decode(&*wrapped(answer(&one))).unwrap();
    envelope.r#type = MessageType::Message.into();
    let verdict = one.judge(&envelope.encode_to_vec(), HOST, clock.now());
    assert_eq!(verdict, Err(AuthFailure::NotAnAnswer));
    for (bytes, disbelief) in
        [(&b""[..], AuthFailure::NotAnAnswer), (&b"\xff\xff"[..], AuthFailure::Malformed)]
    {
        assert_eq!(challenge().0.judge(bytes, HOST, clock.now()), Err(disbelief));
    }
}

#[test]
fn the_challenge_on_the_wire_says_when_it_expires() {
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

fn answer(challenge: &Challenge) -> AuthResponse {
    AuthResponse {
        version: 1,
        public_key: key().verifying_key().to_bytes().to_vec(),
        signature: key().sign(&signed_bytes(HOST, &challenge.nonce)).to_bytes().to_vec(),
        nonce: challenge.nonce.to_vec(),
    }
}

fn wrapped(answer: AuthResponse) -> Vec<u8> {
    let payload = Payload::AuthResponse(answer);
    Envelope::from_relay(MessageType::AuthResponse, 0, payload).encode_to_vec()
}
