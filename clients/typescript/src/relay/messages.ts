/** The payloads of package `pinch.v1` that a client encodes or decodes itself. */

import { expectWire, Reader, Writer, WireType, type Tag } from "./wire.js";

/** The type of an envelope. */
export const MessageType = {
  UNSPECIFIED: 0,
  HANDSHAKE: 1,
  AUTH_CHALLENGE: 2,
  AUTH_RESPONSE: 3,
  MESSAGE: 4,
  DELIVERY_CONFIRM: 5,
  CONNECTION_REQUEST: 6,
  CONNECTION_RESPONSE: 7,
  HEARTBEAT: 8,
  AUTH_RESULT: 9,
  CONNECTION_REVOKE: 10,
  BLOCK_NOTIFICATION: 11,
  UNBLOCK_NOTIFICATION: 12,
  QUEUE_STATUS: 13,
  QUEUE_FULL: 14,
  RATE_LIMITED: 15,
} as const;

/** The numbers of the envelope's payload fields, at most one of which is set. */
export const PayloadField = {
  encrypted: 10,
  handshake: 11,
  heartbeat: 12,
  authChallenge: 13,
  authResponse: 14,
  authResult: 15,
  connectionRequest: 16,
  connectionResponse: 17,
  connectionRevoke: 18,
  blockNotification: 19,
  unblockNotification: 20,
  deliveryConfirm: 21,
  queueStatus: 22,
  queueFull: 23,
  rateLimited: 24,
} as const;

/** A payload that this client can encode and decode. */
export interface PayloadKind<T> {
  readonly field: number;
  encode(value: T): Uint8Array;
  /** Throws a `WireError` for malformed bytes. Unknown fields are skipped. */
  decode(bytes: Uint8Array): T;
}

/** A message between two clients; opaque to the relay. */
export interface EncryptedPayload {
  nonce: Uint8Array;
  ciphertext: Uint8Array;
  senderPublicKey: Uint8Array;
}

/** The challenge that a client signs. */
export interface AuthChallenge {
  version: number;
  nonce: Uint8Array;
  issuedAtMs: bigint;
  expiresAtMs: bigint;
  relayHost: string;
}

/** The signed challenge. */
export interface AuthResponse {
  version: number;
  publicKey: Uint8Array;
  signature: Uint8Array;
  nonce: Uint8Array;
}

/** The result of the authentication. */
export interface AuthResult {
  success: boolean;
  errorMessage: string;
  assignedAddress: string;
}

/** A denied message, and the wait until a retry. */
export interface RateLimited {
  retryAfterMs: bigint;
  reason: string;
}

export const encrypted: PayloadKind<EncryptedPayload> = {
  field: PayloadField.encrypted,
  encode: (value) =>
    new Writer()
      .bytes(1, value.nonce)
      .bytes(2, value.ciphertext)
      .bytes(3, value.senderPublicKey)
      .finish(),
  decode(bytes) {
    const value: EncryptedPayload = { nonce: NONE, ciphertext: NONE, senderPublicKey: NONE };
    eachField(bytes, (tag, reader) => {
      if (tag.field === 1) value.nonce = bytesOf(tag, reader);
      else if (tag.field === 2) value.ciphertext = bytesOf(tag, reader);
      else if (tag.field === 3) value.senderPublicKey = bytesOf(tag, reader);
      else reader.skip(tag);
    });
    return value;
  },
};

export const authChallenge: PayloadKind<AuthChallenge> = {
  field: PayloadField.authChallenge,
  encode: (value) =>
    new Writer()
      .uint32(1, value.version)
      .bytes(2, value.nonce)
      .int64(3, value.issuedAtMs)
      .int64(4, value.expiresAtMs)
      .string(5, value.relayHost)
      .finish(),
  decode(bytes) {
    const value: AuthChallenge = {
      version: 0,
      nonce: NONE,
      issuedAtMs: 0n,
      expiresAtMs: 0n,
      relayHost: "",
    };
    eachField(bytes, (tag, reader) => {
      if (tag.field === 1) value.version = uint32Of(tag, reader);
      else if (tag.field === 2) value.nonce = bytesOf(tag, reader);
      else if (tag.field === 3) value.issuedAtMs = int64Of(tag, reader);
      else if (tag.field === 4) value.expiresAtMs = int64Of(tag, reader);
      else if (tag.field === 5) value.relayHost = stringOf(tag, reader);
      else reader.skip(tag);
    });
    return value;
  },
};

export const authResponse: PayloadKind<AuthResponse> = {
  field: PayloadField.authResponse,
  encode: (value) =>
    new Writer()
      .uint32(1, value.version)
      .bytes(2, value.publicKey)
      .bytes(3, value.signature)
      .bytes(4, value.nonce)
      .finish(),
  decode(bytes) {
    const value: AuthResponse = { version: 0, publicKey: NONE, signature: NONE, nonce: NONE };
    eachField(bytes, (tag, reader) => {
      if (tag.field === 1) value.version = uint32Of(tag, reader);
      else if (tag.field === 2) value.publicKey = bytesOf(tag, reader);
      else if (tag.field === 3) value.signature = bytesOf(tag, reader);
      else if (tag.field === 4) value.nonce = bytesOf(tag, reader);
      else reader.skip(tag);
    });
    return value;
  },
};

export const authResult: PayloadKind<AuthResult> = {
  field: PayloadField.authResult,
  encode: (value) =>
    new Writer()
      .bool(1, value.success)
      .string(2, value.errorMessage)
      .string(3, value.assignedAddress)
      .finish(),
  decode(bytes) {
    const value: AuthResult = { success: false, errorMessage: "", assignedAddress: "" };
    eachField(bytes, (tag, reader) => {
      if (tag.field === 1) value.success = boolOf(tag, reader);
      else if (tag.field === 2) value.errorMessage = stringOf(tag, reader);
      else if (tag.field === 3) value.assignedAddress = stringOf(tag, reader);
      else reader.skip(tag);
    });
    return value;
  },
};

export const rateLimited: PayloadKind<RateLimited> = {
  field: PayloadField.rateLimited,
  encode: (value) => new Writer().int64(1, value.retryAfterMs).string(2, value.reason).finish(),
  decode(bytes) {
    const value: RateLimited = { retryAfterMs: 0n, reason: "" };
    eachField(bytes, (tag, reader) => {
      if (tag.field === 1) value.retryAfterMs = int64Of(tag, reader);
      else if (tag.field === 2) value.reason = stringOf(tag, reader);
      else reader.skip(tag);
    });
    return value;
  },
};

/** Calls back for every field, which has to be read or skipped there. */
export function eachField(bytes: Uint8Array, read: (tag: Tag, reader: Reader) => void): void {
  const reader = new Reader(bytes);
  while (!reader.done) read(reader.tag(), reader);
}

export function uint32Of(tag: Tag, reader: Reader): number {
  expectWire(tag, WireType.varint);
  return reader.uint32();
}

export function int32Of(tag: Tag, reader: Reader): number {
  expectWire(tag, WireType.varint);
  return reader.int32();
}

export function int64Of(tag: Tag, reader: Reader): bigint {
  expectWire(tag, WireType.varint);
  return reader.int64();
}

export function boolOf(tag: Tag, reader: Reader): boolean {
  expectWire(tag, WireType.varint);
  return reader.bool();
}

export function bytesOf(tag: Tag, reader: Reader): Uint8Array {
  expectWire(tag, WireType.bytes);
  return reader.bytes();
}

export function stringOf(tag: Tag, reader: Reader): string {
  expectWire(tag, WireType.bytes);
  return reader.string();
}

const NONE: Uint8Array = new Uint8Array(0);
