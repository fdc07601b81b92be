/** What every limit over a clock can do. */

import { uncharged, type Decision, type Step } from "./decision.js";

/**
 * A limit over the state of one key. States are plain values that are never changed; the caller
 * keeps them and brings the time, in nanoseconds since the origin of its clock.
 *
 * A cost of 0 is a look: it changes nothing. Time may run backwards between calls; a step back never
 * gives anything back.
 *
 * `Self` is the limit itself: states go over to another limit of the same kind.
 */
export interface Algorithm<Self, State> {
  /** The state of a key that was never seen. */
  fresh(): State;
  /** Charges `cost` if it fits, else charges nothing. */
  check(state: State, cost: bigint, nowNs: bigint): Step<State>;
  /** Whether `check` would allow `cost`, and what is there without charging it. */
  peek(state: State, cost: bigint, nowNs: bigint): Decision;
  /** Gives back up to `amount` units that were charged, never more than is still outstanding. */
  refund(state: State, amount: bigint, nowNs: bigint): Refunded<State>;
  /** Sets `amount` units aside if they fit. They shrink the capacity until they are settled. */
  hold(state: State, amount: bigint, nowNs: bigint): Step<State>;
  /** Turns a hold of `amount` units into a charge of `actual`. */
  commit(state: State, amount: bigint, actual: bigint, nowNs: bigint): Committed<State>;
  /** Gives a hold of `amount` units back. */
  cancel(state: State, amount: bigint, nowNs: bigint): State;
  /** This limit, ready to take over states of `old` without losing precision. */
  succeeding(old: Self): Self;
  /** The state that goes on under this limit after the edit from `old`. An edit never refills. */
  carryOver(old: Self, state: State, nowNs: bigint): State;
}

export interface Refunded<State> {
  /** How many units were given back. */
  readonly given: bigint;
  readonly state: State;
}

export interface Committed<State> {
  /** How much of the actual cost was charged. */
  readonly charged: bigint;
  readonly state: State;
}

/** The look that follows from a check. */
export function peekBy<State>(check: (cost: bigint) => Step<State>, cost: bigint): Decision {
  return uncharged(check(cost).decision, check(0n).decision);
}
