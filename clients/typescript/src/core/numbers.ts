/** Unbounded integers, and the bounds of the Rust library. */

/** The end of the clock: time saturates there. */
export const CLOCK_END_NS = 2n ** 63n - 1n;
export const U32_MAX = 2n ** 32n - 1n;
export const U64_MAX = 2n ** 64n - 1n;

export function least(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

export function most(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

/** `a - b`, or zero where that is negative. */
export function less(a: bigint, b: bigint): bigint {
  return a > b ? a - b : 0n;
}

/** `a / b`, rounded up; `a` is not negative and `b` is above zero. */
export function divCeil(a: bigint, b: bigint): bigint {
  return (a + b - 1n) / b;
}

/** The greatest common divisor; both are above zero. */
export function gcd(a: bigint, b: bigint): bigint {
  while (b !== 0n) [a, b] = [b, a % b];
  return a;
}

/** A time within the clock; later times become its end. */
export function clamped(nowNs: bigint): bigint {
  if (nowNs < 0n) throw new RangeError(`the time is ${nowNs} ns, before the clock's origin`);
  return least(nowNs, CLOCK_END_NS);
}

/** Units of cost, if they are a number from 0 to 2^64 − 1. */
export function units(amount: bigint): bigint {
  if (amount >= 0n && amount <= U64_MAX) return amount;
  throw new RangeError(`${amount} is not a number of units from 0 to ${U64_MAX}`);
}
