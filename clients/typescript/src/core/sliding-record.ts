/** The record of a sliding window: single units while they are few, then counts by sub-window. */

import { divCeil, least, less, most, U32_MAX } from "./numbers.js";

/** The grid of sub-windows: part `i` covers the times `t` with `floor(t · parts / perNs) = i`. */
export interface Grid {
  readonly perNs: bigint;
  readonly parts: number;
}

/** The time of each unit, newest first. */
export interface Log {
  readonly timesNs: readonly bigint[];
}

/** Units by sub-window, newest first; `newest` is the sub-window of the first count. */
export interface Parts {
  readonly newest: bigint;
  readonly counts: readonly bigint[];
}

export type SlidingRecord = Log | Parts;

/** How many units are recorded one by one. */
export const LOG_UNITS = 8;
export const PARTS_MAX = 15;
export const EMPTY: SlidingRecord = Object.freeze({ timesNs: [] });

/** The record without what has left the window. */
export function current(record: SlidingRecord, grid: Grid, nowNs: bigint): SlidingRecord {
  if ("timesNs" in record) {
    return { timesNs: record.timesNs.filter((timeNs) => timeNs + grid.perNs > nowNs) };
  }
  const newest = most(partAt(grid, nowNs), record.newest);
  const counts = shifted(record.counts, newest - record.newest, grid.parts);
  return counts.every((count) => count === 0n) ? EMPTY : { newest, counts };
}

/** Units in the record. */
export function unitsIn(record: SlidingRecord): bigint {
  if ("timesNs" in record) return BigInt(record.timesNs.length);
  return record.counts.reduce((sum, count) => sum + count, 0n);
}

/** When the record falls to `amount` or fewer, if nothing is added. It holds more now. */
export function fallsToNs(record: SlidingRecord, grid: Grid, amount: bigint): bigint {
  if ("timesNs" in record) {
    const timeNs = record.timesNs[Number(amount)];
    return timeNs === undefined ? 0n : timeNs + grid.perNs;
  }
  // The oldest part that has to leave is the one whose count passes `amount`.
  const leavesIn = record.newest + BigInt(grid.parts + 1);
  let sum = 0n;
  for (const [age, count] of record.counts.entries()) {
    sum += count;
    if (sum > amount) return partStartNs(grid, less(leavesIn, BigInt(age)));
  }
  return 0n;
}

/** A current record with `amount` more units, charged now. */
export function added(
  record: SlidingRecord,
  grid: Grid,
  amount: bigint,
  nowNs: bigint,
): SlidingRecord {
  if (amount === 0n) return record;
  if ("timesNs" in record && unitsIn(record) + amount <= BigInt(LOG_UNITS)) {
    const timeNs = most(record.timesNs[0] ?? 0n, nowNs);
    return { timesNs: [...Array<bigint>(Number(amount)).fill(timeNs), ...record.timesNs] };
  }
  const before = byParts(record, grid);
  const newest = most(before.newest, partAt(grid, nowNs));
  const [first = 0n, ...older] = shifted(before.counts, newest - before.newest, grid.parts);
  return { newest, counts: [least(first + amount, U32_MAX), ...older] };
}

/** The record without its oldest `amount` units. It holds at least as many. */
export function withoutOldest(record: SlidingRecord, amount: bigint): SlidingRecord {
  if ("timesNs" in record) {
    return { timesNs: record.timesNs.slice(0, record.timesNs.length - Number(amount)) };
  }
  const counts = [...record.counts];
  let left = amount;
  for (let age = counts.length - 1; age >= 0; age--) {
    const count = counts[age] ?? 0n;
    const taken = least(left, count);
    counts[age] = count - taken;
    left -= taken;
  }
  return { newest: record.newest, counts };
}

/**
 * The record on the grid `to`, no part of it leaving earlier than it may. What has left the old
 * window is gone. What does not fit a shorter one goes to its end: an edit back at the same time
 * finds it, and a later one does not.
 */
export function regridded(
  record: SlidingRecord,
  from: Grid,
  to: Grid,
  nowNs: bigint,
): SlidingRecord {
  if ("timesNs" in record) {
    // A unit at this time leaves the new window at the edit itself.
    const oldestNs = less(nowNs, to.perNs);
    const kept = record.timesNs.filter((timeNs) => timeNs + from.perNs >= nowNs);
    return { timesNs: kept.map((timeNs) => most(timeNs, oldestNs)) };
  }
  const left = current(record, from, nowNs);
  return "timesNs" in left ? left : regriddedParts(left, from, to, nowNs);
}

function regriddedParts(record: Parts, from: Grid, to: Grid, nowNs: bigint): Parts {
  const oldest = less(partAt(to, nowNs), BigInt(to.parts));
  const partAfter = (age: number): bigint => {
    // No count is older than the first part of the clock.
    const part = less(record.newest, BigInt(age));
    const startNs = partStartNs(from, part);
    const lastNs = most(partStartNs(from, part + 1n) - 1n, startNs);
    return most(partAt(to, least(lastNs, most(nowNs, startNs))), oldest);
  };
  const filled = [...record.counts.entries()].filter(([, count]) => count > 0n);
  const newest = filled[0] === undefined ? 0n : partAfter(filled[0][0]);
  const counts = Array<bigint>(COUNTS).fill(0n);
  for (const [age, count] of filled) {
    const ageAfter = Number(least(newest - partAfter(age), BigInt(to.parts)));
    counts[ageAfter] = least((counts[ageAfter] ?? 0n) + count, U32_MAX);
  }
  return { newest, counts };
}

/** The record counted by sub-window. */
function byParts(record: SlidingRecord, grid: Grid): Parts {
  if (!("timesNs" in record)) return record;
  const newest = partAt(grid, record.timesNs[0] ?? 0n);
  const counts = Array<bigint>(COUNTS).fill(0n);
  for (const timeNs of record.timesNs) {
    const age = Number(less(newest, partAt(grid, timeNs)));
    if (age <= grid.parts) counts[age] = (counts[age] ?? 0n) + 1n;
  }
  return { newest, counts };
}

/** The counts as seen `by` parts later, without those older than the window. */
function shifted(counts: readonly bigint[], by: bigint, parts: number): bigint[] {
  const kept = parts + 1;
  const gap = Number(least(by, BigInt(kept)));
  const after = Array<bigint>(COUNTS).fill(0n);
  for (let age = gap; age < kept; age++) after[age] = counts[age - gap] ?? 0n;
  return after;
}

function partAt({ perNs, parts }: Grid, nowNs: bigint): bigint {
  return (nowNs * BigInt(parts)) / perNs;
}

/** The first nanosecond of a part. */
function partStartNs({ perNs, parts }: Grid, part: bigint): bigint {
  return divCeil(part * perNs, BigInt(parts));
}

/** The current sub-window and as many earlier ones as there can be. */
export const COUNTS = PARTS_MAX + 1;
