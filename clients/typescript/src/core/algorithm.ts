/** The interface of every limit over a clock. */

import { uncharged, type Decision, type Step } from "./decision.js";

/**
 * A limit over the state of one key. States are immutable values; the caller stores them and passes
 * the time, in nanoseconds since the origin of its clock.
 *
 * A cost of 0 only looks: it changes nothing. Time may run backwards between calls; a step back
 * never refunds anything.
 *
 * `Self` is the limit itself: states migrate to another limit of the same kind.
 */
export interface Algorithm<Self, State> {
  /** The state of an unknown key. */
  fresh(): State;
  /** Charges `cost` if it fits, else charges nothing. */
  check(state: State, cost: bigint, nowNs: bigint): Step<State>;
  /** Whether `check` would allow `cost`, and the state of the limit without charging it. */
  peek(state: State, cost: bigint, nowNs: bigint): Decision;
  /** Refunds up to `amount` charged units, never more than is still outstanding. */
  refund(state: State, amount: bigint, nowNs: bigint): Refunded<State>;
  /** Holds `amount` units if they fit. They shrink the capacity until they are settled. */
  hold(state: State, amount: bigint, nowNs: bigint): Step<State>;
  /** Turns a hold of `amount` units into a charge of `actual`. */
  commit(state: State, amount: bigint, actual: bigint, nowNs: bigint): Committed<State>;
  /** Charges `cost` whether or not it fits: as much as the state can count and the debt allows. */
  count(state: State, cost: bigint, nowNs: bigint): Committed<State>;
  /** Releases a hold of `amount` units. */
  cancel(state: State, amount: bigint, nowNs: bigint): State;
  /** This limit, ready to take over states of `old` without losing precision. */
  succeeding(old: Self): Self;
  /** The state under this limit after the edit from `old`. An edit never refills. */
  carryOver(old: Self, state: State, nowNs: bigint): State;
}

export interface Refunded<State> {
  /** How many units were refunded. */
  readonly given: bigint;
  readonly state: State;
}

export interface Committed<State> {
  /** How much of the actual cost was charged. */
  readonly charged: bigint;
  readonly state: State;
}

/**
 * Charges `cost` in full, whatever is left, and allows it if a whole unit was left before: for costs
 * that are known only afterwards. A cost of 0 is allowed if one is left now.
 *
 * A denial is charged as well, so its wait is the time until a unit is left again.
 */
export function checkPostpaid<Self, State>(
  limit: Algorithm<Self, State>,
  state: State,
  cost: bigint,
  nowNs: bigint,
): Step<State> {
  const before = limit.peek(state, 1n, nowNs);
  const after = cost === 0n ? state : limit.count(state, cost, nowNs).state;
  const look = limit.peek(after, before.allowed ? 0n : 1n, nowNs);
  return { decision: before.allowed ? uncharged(before, look) : look, state: after };
}

/** The peek that corresponds to a check. */
export function peekBy<State>(check: (cost: bigint) => Step<State>, cost: bigint): Decision {
  return uncharged(check(cost).decision, check(0n).decision);
}
