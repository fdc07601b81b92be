import { peekBy, type Algorithm, type Committed, type Refunded } from "./algorithm.js";
import { decision, type Decision, type Outcome, type Step } from "./decision.js";
import { within } from "./errors.js";
import { clamped, CLOCK_END_NS, least, less, most, U32_MAX, units } from "./numbers.js";

/** The numbers of a window. */
export interface WindowNumbers {
  /** Units per window, below 2^32. */
  readonly max: bigint;
  readonly perNs: bigint;
  /** On the grid of multiples of `perNs` since the clock's origin, or opened by the first charge. */
  readonly aligned: boolean;
}

export interface WindowState {
  /** When the open window ends; it may run past the end of the clock. */
  readonly endsNs: bigint;
  /** Units charged in the open window. */
  readonly used: bigint;
  /** Units held by reservations. They stay held when the window ends. */
  readonly held: bigint;
}

/**
 * A fixed window: at most `max` units in each window of length `perNs`.
 *
 * A window in which nothing is used is not open; a hold alone does not open it.
 */
export class Window implements Algorithm<Window, WindowState> {
  readonly max: bigint;
  readonly perNs: bigint;
  readonly aligned: boolean;

  private constructor({ max, perNs, aligned }: WindowNumbers) {
    this.max = max;
    this.perNs = perNs;
    this.aligned = aligned;
  }

  /** Throws a `LimitError` if a number is zero or too large. */
  static of(numbers: WindowNumbers): Window {
    within("max", numbers.max, U32_MAX);
    within("per", numbers.perNs, CLOCK_END_NS);
    return new Window(numbers);
  }

  fresh(): WindowState {
    return FRESH;
  }

  check(state: WindowState, cost: bigint, nowNs: bigint): Step<WindowState> {
    const current = this.#current(state, clamped(nowNs));
    const decided = this.#decide(current, units(cost), clamped(nowNs));
    if (!decided.allowed || cost === 0n) return { decision: decided, state };
    return { decision: decided, state: { ...current, used: current.used + cost } };
  }

  peek(state: WindowState, cost: bigint, nowNs: bigint): Decision {
    return peekBy((charged) => this.check(state, charged, nowNs), cost);
  }

  refund(state: WindowState, amount: bigint, nowNs: bigint): Refunded<WindowState> {
    const current = this.#current(state, clamped(nowNs));
    const given = least(units(amount), current.used);
    if (given === 0n) return { given, state };
    return { given, state: settled({ ...current, used: current.used - given }) };
  }

  hold(state: WindowState, amount: bigint, nowNs: bigint): Step<WindowState> {
    const current = this.#current(state, clamped(nowNs));
    const decided = this.#decide(current, units(amount), clamped(nowNs));
    if (!decided.allowed || amount === 0n) return { decision: decided, state };
    return { decision: decided, state: { ...current, held: current.held + amount } };
  }

  commit(
    state: WindowState,
    amount: bigint,
    actual: bigint,
    nowNs: bigint,
  ): Committed<WindowState> {
    const current = this.#current(state, clamped(nowNs));
    const released = least(units(amount), current.held);
    const held = current.held - released;
    const room = less(this.max, current.used + held);
    const fitting = least(units(actual), most(room, released));
    const charged = least(fitting, less(U32_MAX, current.used));
    const after = charged > 0n ? { ...current, used: current.used + charged } : state;
    return { charged, state: settled({ ...after, held }) };
  }

  /** A count stays below 2^32. */
  count(state: WindowState, cost: bigint, nowNs: bigint): Committed<WindowState> {
    const current = this.#current(state, clamped(nowNs));
    const charged = least(units(cost), less(U32_MAX, current.used));
    if (charged === 0n) return { charged, state };
    return { charged, state: { ...current, used: current.used + charged } };
  }

  cancel(state: WindowState, amount: bigint, nowNs: bigint): WindowState {
    return this.commit(state, amount, 0n, nowNs).state;
  }

  succeeding(_old: Window): Window {
    return this;
  }

  /** An open window keeps its end and its count; a new length applies to the next one. */
  carryOver(_old: Window, state: WindowState, _nowNs: bigint): WindowState {
    return state;
  }

  /** The current state: an ended window is replaced by one that `nowNs` would open. */
  #current(state: WindowState, nowNs: bigint): WindowState {
    if (state.used > 0n && nowNs < state.endsNs) return state;
    const startNs = this.aligned ? nowNs - (nowNs % this.perNs) : nowNs;
    // The end that a hold left behind matters only to a clock that has stepped back behind the hold.
    return { endsNs: most(startNs + this.perNs, state.endsNs), used: 0n, held: state.held };
  }

  /** The one decision, on a state that is current. */
  #decide(current: WindowState, cost: bigint, nowNs: bigint): Decision {
    const taken = current.used + current.held;
    const outcome = this.#outcome(taken, cost, current.held);
    const takenAfter = outcome === "allow" ? taken + cost : taken;
    const untilEndNs = less(current.endsNs, nowNs);
    return decision({
      outcome,
      limit: this.max,
      nowNs,
      roomTicks: less(this.max, takenAfter),
      lackTicks: untilEndNs,
      spentTicks: takenAfter > 0n ? untilEndNs : 0n,
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

/** An empty window becomes the fresh state. */
function settled(state: WindowState): WindowState {
  return state.used === 0n && state.held === 0n ? FRESH : state;
}

const FRESH: WindowState = Object.freeze({ endsNs: 0n, used: 0n, held: 0n });
