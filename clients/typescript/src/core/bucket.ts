import { peekBy, type Algorithm, type Committed, type Refunded } from "./algorithm.js";
import { decision, type Decision, type Outcome, type Step } from "./decision.js";
import { LimitError, within } from "./errors.js";
import {
  clamped,
  CLOCK_END_NS,
  divCeil,
  gcd,
  least,
  less,
  most,
  U64_MAX,
  units,
} from "./numbers.js";

/** The numbers of a bucket. */
export interface BucketNumbers {
  /** `count` units per `periodNs` are refilled. */
  readonly count: bigint;
  readonly periodNs: bigint;
  /** The whole capacity. */
  readonly burst: bigint;
  /** How far commits may overdraw, or `"all"`: as far as a state can express; default: not at all. */
  readonly debt?: bigint | "all";
}

/** How many ticks make a nanosecond, and how many a unit of cost. */
export interface Ticks {
  readonly perNs: bigint;
  readonly perUnit: bigint;
}

export interface BucketState {
  /** When the bucket is full again, in ticks since the clock's origin. */
  readonly fullAtTicks: bigint;
  /** Units held by reservations. */
  readonly held: bigint;
}

/**
 * A token bucket: `burst` units of capacity, refilled continuously at a rate.
 *
 * In any interval of length T it admits at most `burst + floor(rate · T)` units, exactly. It counts
 * in ticks so small that both a nanosecond and a unit of cost are whole numbers of them, so no rate
 * is ever rounded.
 */
export class Bucket implements Algorithm<Bucket, BucketState> {
  readonly burst: bigint;
  readonly debt: bigint | "all";
  readonly ticks: Ticks;
  readonly #capacityTicks: bigint;

  private constructor(burst: bigint, debt: bigint | "all", ticks: Ticks) {
    this.burst = burst;
    this.debt = debt;
    this.ticks = ticks;
    this.#capacityTicks = burst * ticks.perUnit;
  }

  /** Throws a `LimitError` if a number is zero, or cannot be represented exactly. */
  static of({ count, periodNs, burst, debt = 0n }: BucketNumbers): Bucket {
    within("rate", count, U64_MAX);
    within("period", periodNs, CLOCK_END_NS);
    within("burst", burst, U64_MAX);
    const divisor = gcd(count, periodNs);
    const ticks = { perNs: count / divisor, perUnit: periodNs / divisor };
    const problem = misfit(burst, debt, ticks);
    if (problem !== undefined) throw problem;
    return new Bucket(burst, debt, ticks);
  }

  /** The bucket of a stored state, as far as it matters to the state. */
  static ofTicks(ticks: Ticks, burst: bigint): Bucket | undefined {
    const fits = ticks.perNs > 0n && ticks.perUnit > 0n && misfit(burst, 0n, ticks) === undefined;
    return fits ? new Bucket(burst, 0n, ticks) : undefined;
  }

  fresh(): BucketState {
    return { fullAtTicks: 0n, held: 0n };
  }

  check(state: BucketState, cost: bigint, nowNs: bigint): Step<BucketState> {
    const now = clamped(nowNs);
    const levelTicks = this.#levelTicks(state, now);
    const wantedTicks = levelTicks + this.#costTicks(units(cost));
    const outcome = this.#outcome(wantedTicks, cost, state.held);
    const allowed = outcome === "allow";
    const levelAfter = allowed ? wantedTicks : levelTicks;
    const decided = decision({
      outcome,
      limit: this.burst,
      nowNs: now,
      roomTicks: less(this.#capacityTicks, levelAfter),
      lackTicks: less(wantedTicks, this.#capacityTicks),
      spentTicks: levelAfter,
      ticksPerUnit: this.ticks.perUnit,
      ticksPerNs: this.ticks.perNs,
    });
    if (!allowed || cost === 0n) return { decision: decided, state };
    const fullAtTicks = this.#nowTicks(now) + levelAfter;
    return { decision: decided, state: { ...state, fullAtTicks } };
  }

  peek(state: BucketState, cost: bigint, nowNs: bigint): Decision {
    return peekBy((charged) => this.check(state, charged, nowNs), cost);
  }

  refund(state: BucketState, amount: bigint, nowNs: bigint): Refunded<BucketState> {
    const levelTicks = this.#levelTicks(state, clamped(nowNs));
    const outstandingTicks = levelTicks - this.#costTicks(state.held);
    const givenTicks = least(this.#costTicks(units(amount)), outstandingTicks);
    const given = divCeil(givenTicks, this.ticks.perUnit);
    if (givenTicks === 0n) return { given, state };
    const fullAtTicks = this.#fullAtTicks(levelTicks - givenTicks, clamped(nowNs));
    return { given, state: { ...state, fullAtTicks } };
  }

  hold(state: BucketState, amount: bigint, nowNs: bigint): Step<BucketState> {
    const step = this.check(state, amount, nowNs);
    if (!step.decision.allowed) return step;
    return { ...step, state: { ...step.state, held: state.held + amount } };
  }

  commit(
    state: BucketState,
    amount: bigint,
    actual: bigint,
    nowNs: bigint,
  ): Committed<BucketState> {
    const settled = least(units(amount), state.held);
    const levelTicks = this.#levelTicks(state, clamped(nowNs)) - this.#costTicks(settled);
    const mostTicks = FULL_AT_TICKS_MAX - this.#nowTicks(clamped(nowNs));
    const overdrawnTicks =
      this.debt === "all" ? mostTicks : this.#capacityTicks + this.#costTicks(this.debt);
    const roomTicks = less(least(overdrawnTicks, mostTicks), levelTicks);
    const room = least(roomTicks / this.ticks.perUnit, U64_MAX);
    // Held units can always be charged, even where an edit has lowered the burst.
    const charged = least(units(actual), most(room, settled));
    const fullAtTicks = this.#fullAtTicks(levelTicks + this.#costTicks(charged), clamped(nowNs));
    return { charged, state: { fullAtTicks, held: state.held - settled } };
  }

  count(state: BucketState, cost: bigint, nowNs: bigint): Committed<BucketState> {
    const counted = this.commit(state, 0n, cost, nowNs);
    return counted.charged > 0n ? counted : { charged: 0n, state };
  }

  cancel(state: BucketState, amount: bigint, nowNs: bigint): BucketState {
    return this.commit(state, amount, 0n, nowNs).state;
  }

  /**
   * The same numbers counted in ticks that divide the old ones, where such ticks fit, so that the
   * consumed units carry over exactly, there and back.
   */
  succeeding(old: Bucket): Bucket {
    const factor = old.ticks.perUnit / gcd(old.ticks.perUnit, this.ticks.perUnit);
    const finer = { perNs: this.ticks.perNs * factor, perUnit: this.ticks.perUnit * factor };
    const fits = misfit(this.burst, this.debt, finer) === undefined;
    return fits ? new Bucket(this.burst, this.debt, finer) : this;
  }

  carryOver(old: Bucket, state: BucketState, nowNs: bigint): BucketState {
    const { perNs, perUnit } = this.ticks;
    if (perNs === old.ticks.perNs && perUnit === old.ticks.perUnit) return state;
    const oldTicks = old.#levelTicks(state, clamped(nowNs));
    const levelTicks = divCeil(oldTicks * perUnit, old.ticks.perUnit);
    return { fullAtTicks: this.#fullAtTicks(levelTicks, clamped(nowNs)), held: state.held };
  }

  #outcome(wantedTicks: bigint, cost: bigint, held: bigint): Outcome {
    if (wantedTicks <= this.#capacityTicks) return "allow";
    if (cost > this.burst) return "deny-for-ever";
    return cost + held > this.burst ? "deny-unknown" : "deny-for-now";
  }

  /** How far the bucket is from full, in ticks, never less than the held units. */
  #levelTicks(state: BucketState, nowNs: bigint): bigint {
    return most(less(state.fullAtTicks, this.#nowTicks(nowNs)), this.#costTicks(state.held));
  }

  #nowTicks(nowNs: bigint): bigint {
    return nowNs * this.ticks.perNs;
  }

  #costTicks(cost: bigint): bigint {
    return cost * this.ticks.perUnit;
  }

  /**
   * When a bucket of this level is full again, cut to the range of a state: longer than the clock.
   */
  #fullAtTicks(levelTicks: bigint, nowNs: bigint): bigint {
    return least(this.#nowTicks(nowNs) + levelTicks, FULL_AT_TICKS_MAX);
  }
}

/** Why these numbers have no exact arithmetic within the bounds of the Rust library. */
function misfit(burst: bigint, debt: bigint | "all", ticks: Ticks): LimitError | undefined {
  if (ticks.perNs > PER_NS_MAX) {
    return new LimitError("rate", "is not exact: its reduced count must be below 2^32");
  }
  if (ticks.perUnit > CLOCK_END_NS) {
    return new LimitError("rate", "is not exact: its reduced period must be below 2^63 ns");
  }
  // A debt without a bound is cut to what a state can express.
  const bounded = debt === "all" ? 0n : units(debt);
  if ((burst + bounded) * ticks.perUnit < CAPACITY_TICKS_MAX) return undefined;
  const field = burst * ticks.perUnit >= CAPACITY_TICKS_MAX ? "burst" : "debt";
  return new LimitError(field, "is not exact: it takes too long to refill at this rate");
}

const PER_NS_MAX = 2n ** 32n - 1n;
const CAPACITY_TICKS_MAX = 2n ** 95n;
export const FULL_AT_TICKS_MAX = 2n ** 96n - 1n;
