/**
 * The limits as pure functions: a state, a cost and a time go in, a decision and a state come out.
 * The results are those of the Rust library, to the nanosecond.
 */

export { checkPostpaid, type Algorithm, type Committed, type Refunded } from "./algorithm.js";
export { Bucket, type BucketNumbers, type BucketState, type Ticks } from "./bucket.js";
export { Cooldown, type CooldownNumbers, type CooldownState } from "./cooldown.js";
export type { Decision, Step, Wait } from "./decision.js";
export { LimitError } from "./errors.js";
export { Sliding, type SlidingNumbers, type SlidingState } from "./sliding.js";
export type { Log, Parts, SlidingRecord } from "./sliding-record.js";
export { Window, type WindowNumbers, type WindowState } from "./window.js";
