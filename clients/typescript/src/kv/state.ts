/**
 * States of buckets and sliding windows as text: a small JSON object with a version, the numbers as
 * strings of digits because they are beyond 2^53.
 *
 * ```json
 * {"v":1,"bucket":{"fullAt":"1700000003000000000","perNs":"1","perUnit":"180000000000"}}
 * {"v":1,"sliding":{"perNs":"3600000000000","parts":10,"times":["1700000000000000000"]}}
 * {"v":1,"sliding":{"perNs":"3600000000000","parts":10,"newest":"4722222","counts":[9,0,3]}}
 * ```
 *
 * A state contains the units that it was counted in, so that a limit may change between two
 * messages and the charges carry over. It has no holds.
 */

import { Bucket, FULL_AT_TICKS_MAX, type BucketState } from "../core/bucket.js";
import { CLOCK_END_NS, U32_MAX, U64_MAX } from "../core/numbers.js";
import { COUNTS, LOG_UNITS, type SlidingRecord } from "../core/sliding-record.js";
import { Sliding, type SlidingState } from "../core/sliding.js";

/** A limit with a state that it can continue with. */
export interface Kept<Limit, State> {
  readonly limit: Limit;
  readonly state: State;
}

export function bucketText({ ticks }: Bucket, state: BucketState): string {
  const { perNs, perUnit } = ticks;
  return text("bucket", { fullAt: state.fullAtTicks, perNs, perUnit });
}

export function slidingText({ perNs, parts }: Sliding, { record }: SlidingState): string {
  if ("timesNs" in record) return text("sliding", { perNs, parts, times: record.timesNs });
  const counts = record.counts.slice(0, parts + 1).map(Number);
  return text("sliding", { perNs, parts, newest: record.newest, counts });
}

/** Parses a stored state for a limit, which may differ from the one it was written under. */
export function keptBucket(
  limit: Bucket,
  stored: string,
  nowNs: bigint,
): Kept<Bucket, BucketState> | undefined {
  const fields = fieldsOf(stored, "bucket");
  const fullAtTicks = digits(fields?.["fullAt"], FULL_AT_TICKS_MAX);
  const perNs = digits(fields?.["perNs"], U64_MAX);
  const perUnit = digits(fields?.["perUnit"], U64_MAX);
  if (fullAtTicks === undefined || perNs === undefined || perUnit === undefined) return undefined;
  const old = Bucket.ofTicks({ perNs, perUnit }, 1n);
  return old && carried(limit.succeeding(old), old, { fullAtTicks, held: 0n }, nowNs);
}

export function keptSliding(
  limit: Sliding,
  stored: string,
  nowNs: bigint,
): Kept<Sliding, SlidingState> | undefined {
  const fields = fieldsOf(stored, "sliding");
  const perNs = digits(fields?.["perNs"], CLOCK_END_NS);
  const parts = fields?.["parts"];
  const record = fields && recordOf(fields);
  if (perNs === undefined || typeof parts !== "number" || record === undefined) return undefined;
  const old = slidingOf(perNs, parts);
  return old && carried(limit, old, { record, held: 0n }, nowNs);
}

function carried<
  Limit extends { carryOver(old: Limit, state: State, nowNs: bigint): State },
  State,
>(limit: Limit, old: Limit, state: State, nowNs: bigint): Kept<Limit, State> {
  return { limit, state: limit.carryOver(old, state, nowNs) };
}

function slidingOf(perNs: bigint, parts: number): Sliding | undefined {
  try {
    return Sliding.of({ max: 1n, perNs, parts });
  } catch {
    return undefined;
  }
}

function recordOf({ times, newest, counts }: Fields): SlidingRecord | undefined {
  if (times !== undefined) {
    const timesNs = listOf(times, LOG_UNITS, (time) => digits(time, CLOCK_END_NS));
    const newestFirst = timesNs?.every((time, at) => at === 0 || time <= (timesNs[at - 1] ?? 0n));
    return timesNs && newestFirst ? { timesNs } : undefined;
  }
  const part = digits(newest, U64_MAX);
  const kept = listOf(counts, COUNTS, countOf);
  return part === undefined || kept === undefined ? undefined : { newest: part, counts: kept };
}

function countOf(value: unknown): bigint | undefined {
  const fits = typeof value === "number" && Number.isInteger(value) && value >= 0;
  return fits && value <= Number(U32_MAX) ? BigInt(value) : undefined;
}

type Fields = Readonly<Record<string, unknown>>;

function text(kind: string, fields: Fields): string {
  const spelled = (_: string, value: unknown): unknown =>
    typeof value === "bigint" ? value.toString() : value;
  return JSON.stringify({ v: VERSION, [kind]: fields }, spelled);
}

function fieldsOf(stored: string, kind: string): Fields | undefined {
  let value: unknown;
  try {
    value = JSON.parse(stored);
  } catch {
    return undefined;
  }
  const object = objectOf(value);
  return object?.["v"] === VERSION ? objectOf(object[kind]) : undefined;
}

function objectOf(value: unknown): Fields | undefined {
  return typeof value === "object" && value !== null ? (value as Fields) : undefined;
}

function listOf(
  value: unknown,
  lengthMax: number,
  read: (item: unknown) => bigint | undefined,
): bigint[] | undefined {
  if (!Array.isArray(value) || value.length > lengthMax) return undefined;
  const items = value.map(read);
  return items.every((item) => item !== undefined) ? items : undefined;
}

/** A number from 0 to `max`, in its canonical form only. */
export function digits(value: unknown, max: bigint): bigint | undefined {
  if (typeof value !== "string" || !/^(0|[1-9][0-9]{0,30})$/.test(value)) return undefined;
  const number = BigInt(value);
  return number <= max ? number : undefined;
}

const VERSION = 1;
