/** The envelope of every message between clients and relay. */

import { InvalidError } from "./errors.js";
import {
  bytesOf,
  eachField,
  int32Of,
  int64Of,
  PayloadField,
  stringOf,
  uint32Of,
  type PayloadKind,
} from "./messages.js";
import { concat, Writer } from "./wire.js";

/** One payload on the wire: its field of the envelope, and its bytes. */
export interface Payload {
  readonly field: number;
  readonly bytes: Uint8Array;
}

/** An envelope. Decoded values are views of the received bytes. */
export interface Envelope {
  version: number;
  fromAddress: string;
  toAddress: string;
  /** One of `MessageType`, or an unknown number. */
  type: number;
  messageId: Uint8Array;
  /** Milliseconds since 1970. */
  timestampMs: bigint;
  /** At most one payload, as received. `readPayload` decodes the known ones. */
  payload?: Payload;
  /** Unknown fields, as received. They are encoded again. */
  unknown?: Uint8Array;
}

/** An envelope of version 1 with the given fields. */
export function envelope(given: Partial<Envelope> = {}): Envelope {
  return {
    version: 1,
    fromAddress: "",
    toAddress: "",
    type: 0,
    messageId: new Uint8Array(0),
    timestampMs: 0n,
    ...given,
  };
}

/** A payload of a known kind, for an envelope. */
export function payload<T>(kind: PayloadKind<T>, value: T): Payload {
  return { field: kind.field, bytes: kind.encode(value) };
}

/** The envelope's payload if it is of this kind. Throws a `WireError` if it is malformed. */
export function readPayload<T>(from: Envelope, kind: PayloadKind<T>): T | undefined {
  return from.payload?.field === kind.field ? kind.decode(from.payload.bytes) : undefined;
}

/** The bytes of an envelope. Throws an `InvalidError` for numbers and texts out of range. */
export function encodeEnvelope(from: Envelope): Uint8Array {
  const writer = new Writer()
    .uint32(1, from.version)
    .string(2, from.fromAddress)
    .string(3, from.toAddress)
    .int32(4, from.type)
    .bytes(5, from.messageId)
    .int64(6, from.timestampMs);
  if (from.payload !== undefined) {
    const { field, bytes } = from.payload;
    if (!isPayload(field)) throw new InvalidError(`field ${field} of an envelope is not a payload`);
    writer.message(field, bytes);
  }
  if (from.unknown !== undefined) writer.raw(from.unknown);
  return writer.finish();
}

/**
 * Decodes an envelope. Throws a `WireError` for malformed bytes.
 *
 * Where a field comes twice, the last one counts; where the same payload comes twice, the two are
 * merged, which for encoded messages is their concatenation.
 */
export function decodeEnvelope(bytes: Uint8Array): Envelope {
  const into = envelope({ version: 0 });
  const unknown: Uint8Array[] = [];
  let payloadField = 0;
  let payloadParts: Uint8Array[] = [];
  eachField(bytes, (tag, reader) => {
    if (tag.field === 1) into.version = uint32Of(tag, reader);
    else if (tag.field === 2) into.fromAddress = stringOf(tag, reader);
    else if (tag.field === 3) into.toAddress = stringOf(tag, reader);
    else if (tag.field === 4) into.type = int32Of(tag, reader);
    else if (tag.field === 5) into.messageId = bytesOf(tag, reader);
    else if (tag.field === 6) into.timestampMs = int64Of(tag, reader);
    else if (isPayload(tag.field)) {
      if (tag.field !== payloadField) payloadParts = [];
      payloadField = tag.field;
      payloadParts.push(bytesOf(tag, reader));
    } else unknown.push(reader.skip(tag));
  });
  if (payloadField !== 0) into.payload = { field: payloadField, bytes: concat(payloadParts) };
  if (unknown.length > 0) into.unknown = concat(unknown);
  return into;
}

function isPayload(field: number): boolean {
  return field >= PayloadField.encrypted && field <= PayloadField.rateLimited;
}
