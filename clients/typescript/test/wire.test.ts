import assert from "node:assert/strict";
import { test } from "node:test";

import {
  authChallenge,
  authResponse,
  authResult,
  decodeEnvelope,
  encodeEnvelope,
  encrypted,
  envelope,
  InvalidError,
  MessageType,
  payload,
  PayloadField,
  rateLimited,
  readPayload,
  WireError,
  type Envelope,
} from "tidegate/relay";

import { hex, Random, toHex, utf8 } from "./support/bytes.js";

/** Every field of an envelope, with its bytes written by hand from the wire format. */
const WHOLE: Envelope = {
  version: 1,
  fromAddress: "a@h",
  toAddress: "b@h",
  type: MessageType.RATE_LIMITED,
  messageId: hex("00 ff"),
  timestampMs: 1_700_000_000_000n,
  payload: payload(rateLimited, { retryAfterMs: 1000n, reason: "no" }),
};
const WHOLE_HEX = [
  "08 01",
  "12 03 614068",
  "1a 03 624068",
  "20 0f",
  "2a 02 00ff",
  "30 80d095ffbc31",
  "c201 07 08e807 1202 6e6f",
];

test("an envelope is encoded as protobuf does", () => {
  assert.equal(toHex(encodeEnvelope(WHOLE)), toHex(hex(WHOLE_HEX.join(""))));
  assert.deepEqual(decodeEnvelope(hex(WHOLE_HEX.join(""))), WHOLE);
});

test("the order of fields does not matter, and defaults are left out", () => {
  assert.deepEqual(decodeEnvelope(hex(WHOLE_HEX.toReversed().join(""))), WHOLE);
  assert.equal(encodeEnvelope(envelope({ version: 0 })).length, 0);
  assert.deepEqual(decodeEnvelope(new Uint8Array(0)), envelope({ version: 0 }));
});

test("an empty payload is still a payload", () => {
  const empty = envelope({ payload: { field: PayloadField.heartbeat, bytes: new Uint8Array(0) } });
  assert.equal(toHex(encodeEnvelope(empty)), "0801" + "6200");
  assert.deepEqual(decodeEnvelope(encodeEnvelope(empty)), empty);
});

test("every known payload has the bytes that protobuf gives it", () => {
  const challenge = {
    version: 1,
    nonce: hex("0102"),
    issuedAtMs: 1n,
    expiresAtMs: 300n,
    relayHost: "h",
  };
  const response = {
    version: 1,
    publicKey: hex("01"),
    signature: hex("02"),
    nonce: hex("03"),
  };
  const result = { success: true, errorMessage: "e", assignedAddress: "a" };
  const secret = { nonce: hex("01"), ciphertext: hex("02"), senderPublicKey: hex("03") };
  const table = [
    [authChallenge, challenge, 13, "0801 1202 0102 1801 20ac02 2a0168"],
    [authResponse, response, 14, "0801 120101 1a0102 220103"],
    [authResult, result, 15, "0801 120165 1a0161"],
    [encrypted, secret, 10, "0a0101 120102 1a0103"],
    [rateLimited, { retryAfterMs: -1n, reason: "" }, 24, "08 ffffffffffffffffff01"],
  ] as const;
  for (const [kind, value, field, bytes] of table) {
    assert.equal(kind.field, field);
    assert.equal(toHex(kind.encode(value as never)), toHex(hex(bytes)));
    assert.deepEqual(kind.decode(hex(bytes)), value);
    // An unknown field, and nothing at all.
    assert.deepEqual(kind.decode(hex(bytes + "f807 01")), value);
    assert.equal(kind.encode(kind.decode(new Uint8Array(0)) as never).length, 0);
    const inside = envelope({ payload: payload(kind as never, value as never) });
    assert.deepEqual(readPayload(inside, kind as never), value);
    assert.equal(readPayload(envelope(), kind as never), undefined);
  }
});

test("integers of 64 bits are exact up to their ends", () => {
  const ends = [0n, 1n, -1n, 127n, 128n, 2n ** 28n - 1n, 2n ** 28n, 2n ** 53n + 1n];
  for (const value of [...ends, 2n ** 63n - 1n, -(2n ** 63n)]) {
    const bytes = rateLimited.encode({ retryAfterMs: value, reason: "" });
    assert.equal(rateLimited.decode(bytes).retryAfterMs, value);
  }
});

test("an integer may be longer than it needs to be, and narrow ones lose their high bits", () => {
  assert.equal(decodeEnvelope(hex("08 8180808000")).version, 1);
  assert.equal(decodeEnvelope(hex("08 8180808010")).version, 1);
  assert.equal(decodeEnvelope(hex("08 ffffffff0f")).version, 0xffff_ffff);
  assert.equal(decodeEnvelope(hex("20 ffffffffffffffffff01")).type, -1);
  assert.equal(decodeEnvelope(encodeEnvelope(envelope({ type: -1 }))).type, -1);
});

test("the last of two values counts, and the same payload twice is merged", () => {
  assert.equal(decodeEnvelope(hex("0801 0802")).version, 2);
  const merged = decodeEnvelope(hex("c20102 0805 c20103 120178"));
  assert.deepEqual(readPayload(merged, rateLimited), { retryAfterMs: 5n, reason: "x" });
  const replaced = decodeEnvelope(hex("c20102 0805 6200 c20103 120178"));
  assert.deepEqual(readPayload(replaced, rateLimited), { retryAfterMs: 0n, reason: "x" });
});

test("a payload in thousands of pieces is merged in time", () => {
  const pieces = Buffer.alloc(131_070);
  for (let at = 0; at < pieces.length; at += 3) pieces.set([0x52, 0x01, 0x00], at);
  assert.equal(decodeEnvelope(pieces).payload?.bytes.length, 43_690);
});

test("unknown fields of every wire type are kept and written again", () => {
  const unknown = ["3805", "41 0102030405060708", "45 01020304", "ca0c 0178", "4b 0801 53 54 4c"];
  const bytes = hex("0801" + unknown.join(""));
  const decoded = decodeEnvelope(bytes);
  assert.equal(toHex(decoded.unknown ?? hex("")), toHex(hex(unknown.join(""))));
  assert.equal(toHex(encodeEnvelope(decoded)), toHex(bytes));
});

test("a byte order mark at the start of a text is part of it", () => {
  const marked = envelope({ toAddress: "\ufeffb" });
  assert.deepEqual(decodeEnvelope(encodeEnvelope(marked)), marked);
});

test("malformed bytes are a WireError with an offset", () => {
  const table: [string, string, number][] = [
    ["08", "a varint is cut off", 1],
    ["08 80", "a varint is cut off", 1],
    ["08 ffffffffffffffffff02", "more than 64 bits", 1],
    ["08 80808080808080808080 01", "more than 64 bits", 1],
    ["00", "number is 0", 0],
    ["0e", "unknown wire type 6", 0],
    ["0f", "unknown wire type 7", 0],
    ["8080808080 01", "number is too large", 0],
    ["0a 00", "field 1 has wire type 2, not 0", 0],
    ["10 01", "field 2 has wire type 0, not 2", 0],
    ["50 01", "field 10 has wire type 0, not 2", 0],
    ["1a 05 61", "a field of 5 bytes is cut off", 1],
    ["1a ffffffffffffffffff01", "is cut off", 1],
    ["1a 02 c328", "not UTF-8", 1],
    ["1a 03 eda080", "not UTF-8", 1],
    ["39 0102", "a field is cut off", 1],
    ["3d 0102", "a field is cut off", 1],
    ["4c", "a group ends that is not open", 0],
    ["4b 54", "a group ends that is not open", 1],
    ["4b 0801", "a varint is cut off", 3],
    ["4b".repeat(200), "nested too deep", 0],
  ];
  for (const [bytes, message, offset] of table) {
    assert.throws(
      () => decodeEnvelope(hex(bytes)),
      (error) => {
        assert.ok(error instanceof WireError, bytes);
        assert.ok(error.message.includes(message), `${bytes}: ${error.message}`);
        assert.equal(error.offset, offset, bytes);
        return true;
      },
    );
  }
  assert.throws(() => rateLimited.decode(hex("0a00")), WireError);
});

test("random and damaged bytes cause nothing worse than a WireError", () => {
  const random = new Random(1);
  const valid = encodeEnvelope(WHOLE);
  const attempt = (bytes: Uint8Array): void => {
    try {
      const decoded = decodeEnvelope(bytes);
      readPayload(decoded, rateLimited);
      // What could be decoded survives being encoded.
      assert.deepEqual(decodeEnvelope(encodeEnvelope(decoded)), decoded);
    } catch (error) {
      assert.ok(error instanceof WireError, `${toHex(bytes)}: ${error}`);
    }
  };
  for (let length = 0; length < valid.length; length++) attempt(valid.subarray(0, length));
  for (let round = 0; round < 20_000; round++) {
    attempt(random.bytes(random.below(40)));
    const mutilated = valid.slice();
    mutilated[random.below(mutilated.length)] = random.below(256);
    attempt(mutilated);
  }
});

test("values that do not fit the wire format are errors", () => {
  const invalid: Partial<Envelope>[] = [
    { version: -1 },
    { version: 1.5 },
    { version: 2 ** 32 },
    { type: 2 ** 31 },
    { type: NaN },
    { timestampMs: 2n ** 63n },
    { toAddress: "\ud800" },
    { payload: { field: 3, bytes: utf8("b@h") } },
    { payload: { field: 25, bytes: utf8("") } },
  ];
  for (const given of invalid) {
    assert.throws(() => encodeEnvelope(envelope(given)), InvalidError, String(Object.keys(given)));
  }
});
