import { peekBy, type Algorithm, type Committed, type Refunded } from "./algorithm.js";
import { decision, type Decision, type Outcome, type Step } from "./decision.js";
import { within } from "./errors.js";
import { clamped, CLOCK_END_NS, least, less, most, U32_MAX, units } from "./numbers.js";
import {
  added,
  current,
  EMPTY,
  fallsToNs,
  PARTS_MAX,
  regridded,
  unitsIn,
  withoutOldest,
  type SlidingRecord,
} from "./sliding-record.js";

/** The numbers of a sliding window. */
export interface SlidingNumbers {
  /** Units in every window, below 2^32. */
  readonly max: bigint;
  readonly perNs: bigint;
  /** Sub-windows, from 1 to 15 and at most one per nanosecond. */
  readonly parts: number;
}

export interface SlidingState {
  /** What was charged, and when. */
  readonly record: SlidingRecord;
  /** Units held by reservations. */
  readonly held: bigint;
}

/**
 * A sliding window: at most `max` units in *every* window of length `perNs`.
 *
 * Up to 8 units are stored with their times, and the decision is exact to the nanosecond. Above
 * that, units are counted in `parts` sub-windows, and the oldest is counted whole until it has left
 * entirely: still never more than `max` in any window, and traffic of at most `max` per `(1 +
 * 1/parts) · perNs` is always allowed.
 */
export class Sliding implements Algorithm<Sliding, SlidingState> {
  readonly max: bigint;
  readonly perNs: bigint;
  readonly parts: number;

  private constructor({ max, perNs, parts }: SlidingNumbers) {
    this.max = max;
    this.perNs = perNs;
    this.parts = parts;
  }

  /** Throws a `LimitError` if a number is zero or too large. */
  static of(numbers: SlidingNumbers): Sliding {
    within("max", numbers.max, U32_MAX);
    within("per", numbers.perNs, CLOCK_END_NS);
    within("parts", BigInt(numbers.parts), least(BigInt(PARTS_MAX), numbers.perNs));
    return new Sliding(numbers);
  }

  fresh(): SlidingState {
    return { record: EMPTY, held: 0n };
  }

  check(state: SlidingState, cost: bigint, nowNs: bigint): Step<SlidingState> {
    const now = clamped(nowNs);
    const record = current(state.record, this, now);
    const decided = this.#decide({ ...state, record }, units(cost), now);
    if (!decided.allowed || cost === 0n) return { decision: decided, state };
    return { decision: decided, state: { ...state, record: added(record, this, cost, now) } };
  }

  peek(state: SlidingState, cost: bigint, nowNs: bigint): Decision {
    return peekBy((charged) => this.check(state, charged, nowNs), cost);
  }

  /** Removes the oldest units: the rest may leave later than the refunded ones, never earlier. */
  refund(state: SlidingState, amount: bigint, nowNs: bigint): Refunded<SlidingState> {
    const record = current(state.record, this, clamped(nowNs));
    const given = least(units(amount), unitsIn(record));
    if (given === 0n) return { given, state };
    return { given, state: { ...state, record: withoutOldest(record, given) } };
  }

  hold(state: SlidingState, amount: bigint, nowNs: bigint): Step<SlidingState> {
    const record = current(state.record, this, clamped(nowNs));
    const decided = this.#decide({ ...state, record }, units(amount), clamped(nowNs));
    if (!decided.allowed) return { decision: decided, state };
    return { decision: decided, state: { ...state, held: state.held + amount } };
  }

  commit(
    state: SlidingState,
    amount: bigint,
    actual: bigint,
    nowNs: bigint,
  ): Committed<SlidingState> {
    const record = current(state.record, this, clamped(nowNs));
    const released = least(units(amount), state.held);
    const held = state.held - released;
    const room = less(this.max, unitsIn(record) + held);
    const fitting = least(units(actual), most(room, released));
    const charged = least(fitting, less(U32_MAX, unitsIn(record)));
    if (charged === 0n) return { charged, state: { ...state, held } };
    return { charged, state: { record: added(record, this, charged, clamped(nowNs)), held } };
  }

  /** A count stays below 2^32. */
  count(state: SlidingState, cost: bigint, nowNs: bigint): Committed<SlidingState> {
    const record = current(state.record, this, clamped(nowNs));
    const charged = least(units(cost), less(U32_MAX, unitsIn(record)));
    if (charged === 0n) return { charged, state };
    return { charged, state: { ...state, record: added(record, this, charged, clamped(nowNs)) } };
  }

  cancel(state: SlidingState, amount: bigint, nowNs: bigint): SlidingState {
    return this.commit(state, amount, 0n, nowNs).state;
  }

  succeeding(_old: Sliding): Sliding {
    return this;
  }

  /**
   * Charges keep their times. Where they are already merged into sub-windows and the grid changes,
   * each goes to the last moment at which it can have happened.
   */
  carryOver(old: Sliding, state: SlidingState, nowNs: bigint): SlidingState {
    if (this.perNs === old.perNs && this.parts === old.parts) return state;
    return { record: regridded(state.record, old, this, clamped(nowNs)), held: state.held };
  }

  /** The one decision, on a record that is current. */
  #decide({ record, held }: SlidingState, cost: bigint, nowNs: bigint): Decision {
    const taken = unitsIn(record) + held;
    const outcome = this.#outcome(taken, cost, held);
    const charged = outcome === "allow" ? cost : 0n;
    const waits = outcome === "deny-for-now";
    const freeAtNs = waits ? fallsToNs(record, this, this.max - cost - held) : nowNs;
    const after = added(record, this, charged, nowNs);
    const chargedUntilNs = unitsIn(after) === 0n ? 0n : fallsToNs(after, this, 0n);
    // When units on hold are charged or released is unknown.
    const emptyAtNs = held > 0n ? CLOCK_END_NS + 1n : chargedUntilNs;
    return decision({
      outcome,
      limit: this.max,
      nowNs,
      roomTicks: less(this.max, taken + charged),
      lackTicks: less(freeAtNs, nowNs),
      spentTicks: less(emptyAtNs, nowNs),
      ticksPerUnit: 1n,
      ticksPerNs: 1n,
    });
  }

  #outcome(taken: bigint, cost: bigint, held: bigint): Outcome {
    if (taken + cost <= this.max) return "allow";
    if (cost > this.max) return "deny-for-ever";
    return cost + held > this.max ? "deny-unknown" : "deny-for-now";
  }
}
