import type { Algorithm, Committed, Refunded } from "./algorithm.js";
import { decision, uncharged, type Decision, type Step } from "./decision.js";
import { within } from "./errors.js";
import { clamped, CLOCK_END_NS, less, most, units } from "./numbers.js";

/** The numbers of a cooldown. */
export interface CooldownNumbers {
  readonly gapNs: bigint;
  /** Whether a denied attempt restarts the gap. */
  readonly extendedByRefusals: boolean;
}

export interface CooldownState {
  /** The start of the gap; `null` when there is none. */
  readonly sinceNs: bigint | null;
}

/**
 * A minimum gap between admissions. The cost does not matter.
 *
 * It counts operations, not units: a cancelled hold or a refund releases nothing.
 */
export class Cooldown implements Algorithm<Cooldown, CooldownState> {
  readonly gapNs: bigint;
  readonly extendedByRefusals: boolean;

  private constructor({ gapNs, extendedByRefusals }: CooldownNumbers) {
    this.gapNs = gapNs;
    this.extendedByRefusals = extendedByRefusals;
  }

  /** Throws a `LimitError` if the gap is zero or longer than the clock. */
  static of(numbers: CooldownNumbers): Cooldown {
    within("cooldown", numbers.gapNs, CLOCK_END_NS);
    return new Cooldown(numbers);
  }

  fresh(): CooldownState {
    return { sinceNs: null };
  }

  check(state: CooldownState, cost: bigint, nowNs: bigint): Step<CooldownState> {
    const now = clamped(nowNs);
    const isOver = this.#overAtNs(state) <= now;
    const starts = units(cost) > 0n && (isOver || this.extendedByRefusals);
    const after = starts ? { sinceNs: most(state.sinceNs ?? 0n, now) } : state;
    const leftNs = less(this.#overAtNs(after), now);
    const decided = decision({
      outcome: isOver ? "allow" : "deny-for-now",
      limit: 1n,
      nowNs: now,
      roomTicks: isOver && cost === 0n ? 1n : 0n,
      lackTicks: leftNs,
      spentTicks: leftNs,
      ticksPerUnit: 1n,
      ticksPerNs: 1n,
    });
    return { decision: decided, state: after };
  }

  peek(state: CooldownState, cost: bigint, nowNs: bigint): Decision {
    // A peek must not extend the gap that it reports.
    const plain = new Cooldown({ gapNs: this.gapNs, extendedByRefusals: false });
    const look = plain.check(state, 0n, nowNs).decision;
    return uncharged(plain.check(state, cost, nowNs).decision, look);
  }

  refund(state: CooldownState, _amount: bigint, _nowNs: bigint): Refunded<CooldownState> {
    return { given: 0n, state };
  }

  hold(state: CooldownState, amount: bigint, nowNs: bigint): Step<CooldownState> {
    return this.check(state, amount, nowNs);
  }

  commit(
    state: CooldownState,
    _amount: bigint,
    actual: bigint,
    _nowNs: bigint,
  ): Committed<CooldownState> {
    return { charged: actual, state };
  }

  count(state: CooldownState, cost: bigint, nowNs: bigint): Committed<CooldownState> {
    return this.commit(state, 0n, cost, nowNs);
  }

  cancel(state: CooldownState, _amount: bigint, _nowNs: bigint): CooldownState {
    return state;
  }

  succeeding(_old: Cooldown): Cooldown {
    return this;
  }

  /** The gap keeps its start; only its length changes. */
  carryOver(_old: Cooldown, state: CooldownState, _nowNs: bigint): CooldownState {
    return state;
  }

  #overAtNs(state: CooldownState): bigint {
    return state.sinceNs === null ? 0n : state.sinceNs + this.gapNs;
  }
}
