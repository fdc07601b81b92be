use proptest::prelude::*;
use prost::Message;

use super::{AuthResult, Envelope, MessageType, Payload, RateLimited};

#[test]
fn denial_has_the_documented_bytes() {
    let mut denial = Envelope::from_relay(
        MessageType::RateLimited,
        300,
        Payload::RateLimited(RateLimited { retry_after_ms: 1_000, reason: "no".to_owned() }),
    );
    denial.message_id = vec![0xab];
    let bytes = [
        0x08, 1, // version
        0x20, 15, // type
        0x2a, 1, 0xab, // message_id
        0x30, 0xac, 0x02, // timestamp
        0xc2, 0x01, 7, // field 24, seven bytes
        0x08, 0xe8, 0x07, // retry_after_ms
        0x12, 2, b'n', b'o', // reason
    ];
    assert_eq!(denial.encode_to_vec(), bytes);
    assert_eq!(Envelope::decode(&bytes[..]).unwrap(), denial);
}

#[test]
fn forwarded_payloads_are_not_decoded() {
    // Field 10 (encrypted) and an unknown field.
    let bytes = [0x52, 2, 9, 9, 0x2a, 1, 7, 0x92, 0x3f, 1, 0];
    let envelope = Envelope::decode(&bytes[..]).unwrap();
    assert_eq!(envelope.message_id, [7]);
    assert_eq!(envelope.payload, None);
    assert!(!envelope.is_between_client_and_relay());
}

#[test]
fn unknown_types_are_forwarded() {
    let envelope = Envelope { r#type: 99, ..Envelope::default() };
    assert!(!envelope.is_between_client_and_relay());
}

#[test]
fn relay_payload_is_recognized_whatever_the_type() {
    let payload = Payload::AuthResult(AuthResult { success: true, ..AuthResult::default() });
    let envelope = Envelope::from_relay(MessageType::Message, 0, payload);
    assert!(envelope.is_between_client_and_relay());
}

#[test]
fn truncated_and_overlong_bytes_are_errors() {
    let bytes: [&[u8]; 6] = [
        &[0x2a, 5, 1],                                                          // cut short
        &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], // endless varint
        &[0x2a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],          // length of 2^63
        &[0x12, 1, 0xff],                                                       // not UTF-8
        &[0x07],                                                                // no such wire type
        &[0x00],                                                                // no such field
    ];
    for bytes in bytes {
        assert!(Envelope::decode(bytes).is_err(), "{bytes:02x?}");
    }
}

proptest! {
    #[test]
    fn decoding_arbitrary_bytes_never_panics(bytes: Vec<u8>) {
        if let Ok(envelope) = Envelope::decode(&*bytes) {
            let _ = envelope.is_between_client_and_relay();
            prop_assert!(envelope.encoded_len() <= envelope.encode_to_vec().len());
        }
    }

    #[test]
    fn damaged_envelope_never_panics(
        from in ".{0,40}", to in ".{0,40}", id: Vec<u8>, at: prop::sample::Index, bits: u8,
    ) {
        let payload = Payload::RateLimited(RateLimited { retry_after_ms: 5, reason: from.clone() });
        let envelope = Envelope {
            from_address: from,
            to_address: to,
            message_id: id,
            ..Envelope::from_relay(MessageType::Message, 7, payload)
        };
        let mut bytes = envelope.encode_to_vec();
        prop_assert_eq!(Envelope::decode(&*bytes).unwrap(), envelope);
        let at = at.index(bytes.len());
        bytes[at] ^= bits;
        let _ = Envelope::decode(&*bytes);
        let _ = Envelope::decode(&bytes[..at]);
    }
}
