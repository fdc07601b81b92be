/**
 * The protobuf wire format: reading and writing fields, independent of messages.
 *
 * A reader never allocates by a stated length, never reads past its end, and throws a `WireError`
 * for anything malformed.
 */

import { InvalidError, WireError } from "./errors.js";

/** The encoding of a field. */
export const WireType = {
  varint: 0,
  fixed64: 1,
  bytes: 2,
  groupStart: 3,
  groupEnd: 4,
  fixed32: 5,
} as const;

/** The tag of a field. */
export interface Tag {
  readonly field: number;
  readonly wire: number;
  /** The offset of the field, including its tag. */
  readonly start: number;
}

/** Reads fields from front to back. Returned values are views of the bytes, not copies. */
export class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get done(): boolean {
    return this.#at >= this.#bytes.length;
  }

  tag(): Tag {
    const start = this.#at;
    const key = this.uint64();
    if (key > 0xffff_ffffn) throw new WireError("a field's number is too large", start);
    const field = Number(key >> 3n);
    const wire = Number(key & 7n);
    if (field === 0) throw new WireError("a field's number is 0", start);
    if (wire > WireType.fixed32) throw new WireError(`unknown wire type ${wire}`, start);
    return { field, wire, start };
  }

  /** A varint of 64 bits. */
  uint64(): bigint {
    const start = this.#at;
    let low = 0;
    let value = 0n;
    for (let index = 0; index < VARINT_BYTES_MAX; index++) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new WireError("a varint is cut off", start);
      this.#at++;
      if (index === VARINT_BYTES_MAX - 1 && byte > 1) break;
      // Four bytes, 28 bits, fit a small integer: most varints become a bigint only at the end.
      if (index < 4) low |= (byte & 0x7f) << (7 * index);
      else value |= BigInt(byte & 0x7f) << BigInt(7 * index);
      if (byte < 0x80) return value | BigInt(low);
    }
    throw new WireError("a varint has more than 64 bits", start);
  }

  /** A signed varint of 64 bits. */
  int64(): bigint {
    return BigInt.asIntN(64, this.uint64());
  }

  /** A varint of 32 bits; higher bits are cut off, as in protobuf. */
  uint32(): number {
    return Number(BigInt.asUintN(32, this.uint64()));
  }

  /** An enum's number; higher bits are cut off, as in protobuf. */
  int32(): number {
    return Number(BigInt.asIntN(32, this.uint64()));
  }

  bool(): boolean {
    return this.uint64() !== 0n;
  }

  /** A length and that many bytes, as a view. */
  bytes(): Uint8Array {
    const start = this.#at;
    const length = this.uint64();
    if (length > BigInt(this.#bytes.length - this.#at)) {
      throw new WireError(`a field of ${length} bytes is cut off`, start);
    }
    return this.#take(Number(length));
  }

  string(): string {
    const start = this.#at;
    const bytes = this.bytes();
    try {
      return UTF8.decode(bytes);
    } catch {
      throw new WireError("a text is not UTF-8", start);
    }
  }

  /** Skips a field, and returns it whole, with its tag. */
  skip(tag: Tag): Uint8Array {
    const open: number[] = [];
    for (let inner = tag; ; inner = this.tag()) {
      this.#skipOne(inner, open);
      if (open.length === 0) return this.#bytes.subarray(tag.start, this.#at);
      if (open.length > GROUP_DEPTH_MAX)
        throw new WireError("groups are nested too deep", tag.start);
    }
  }

  #skipOne(tag: Tag, open: number[]): void {
    switch (tag.wire) {
      case WireType.varint:
        this.uint64();
        return;
      case WireType.fixed64:
        this.#take(8);
        return;
      case WireType.bytes:
        this.bytes();
        return;
      case WireType.groupStart:
        open.push(tag.field);
        return;
      case WireType.groupEnd:
        if (open.pop() !== tag.field)
          throw new WireError("a group ends that is not open", tag.start);
        return;
      default:
        this.#take(4);
    }
  }

  #take(length: number): Uint8Array {
    const start = this.#at;
    if (length > this.#bytes.length - start) throw new WireError("a field is cut off", start);
    this.#at += length;
    return this.#bytes.subarray(start, this.#at);
  }
}

/** Throws unless a known field has the right wire type. */
export function expectWire(tag: Tag, wire: number): void {
  if (tag.wire !== wire) {
    throw new WireError(`field ${tag.field} has wire type ${tag.wire}, not ${wire}`, tag.start);
  }
}

/** Collects fields. Default values are omitted, as in protobuf 3. */
export class Writer {
  readonly #parts: Uint8Array[] = [];

  uint32(field: number, value: number): this {
    if (!Number.isInteger(value) || value < 0 || value > 0xffff_ffff) {
      throw new InvalidError(`${value} is not an unsigned integer of 32 bits`);
    }
    return value === 0 ? this : this.#varint(field, BigInt(value));
  }

  /** An enum's number. Negative ones are ten bytes long, as in protobuf. */
  int32(field: number, value: number): this {
    if (!Number.isInteger(value) || value < -0x8000_0000 || value > 0x7fff_ffff) {
      throw new InvalidError(`${value} is not an integer of 32 bits`);
    }
    return value === 0 ? this : this.#varint(field, BigInt(value));
  }

  /** A signed integer; a `number` has to be exact. */
  int64(field: number, value: bigint | number): this {
    if (typeof value === "number" && !Number.isSafeInteger(value)) {
      throw new InvalidError(`${value} is not an exact integer`);
    }
    const exact = BigInt(value);
    if (BigInt.asIntN(64, exact) !== exact)
      throw new InvalidError(`${value} has more than 64 bits`);
    return exact === 0n ? this : this.#varint(field, exact);
  }

  bool(field: number, value: boolean): this {
    return value ? this.#varint(field, 1n) : this;
  }

  bytes(field: number, value: Uint8Array): this {
    return value.length === 0 ? this : this.message(field, value);
  }

  string(field: number, value: string): this {
    if (LONE_SURROGATE.test(value)) throw new InvalidError("a text has half of a surrogate pair");
    return this.bytes(field, new TextEncoder().encode(value));
  }

  /** An embedded message. It is written even when it is empty. */
  message(field: number, value: Uint8Array): this {
    this.#key(field, WireType.bytes);
    this.#parts.push(varint(BigInt(value.length)), value);
    return this;
  }

  /** Encoded fields. */
  raw(fields: Uint8Array): this {
    this.#parts.push(fields);
    return this;
  }

  finish(): Uint8Array {
    return concat(this.#parts);
  }

  #varint(field: number, value: bigint): this {
    this.#key(field, WireType.varint);
    this.#parts.push(varint(value));
    return this;
  }

  #key(field: number, wire: number): void {
    if (!Number.isInteger(field) || field < 1 || field > FIELD_MAX) {
      throw new InvalidError(`${field} is not a field number`);
    }
    this.#parts.push(varint((BigInt(field) << 3n) | BigInt(wire)));
  }
}

/** All parts in one. A single part is returned unchanged. */
export function concat(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return only;
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, value);
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
}

const VARINT_BYTES_MAX = 10;
const GROUP_DEPTH_MAX = 32;
const FIELD_MAX = 0x1fff_ffff;
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LONE_SURROGATE = /\p{Surrogate}/u;
