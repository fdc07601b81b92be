/** The result of one check. A denial is a result, not an error. */

import { CLOCK_END_NS, divCeil } from "./numbers.js";

/**
 * How long a denied caller should wait: this many nanoseconds (a retry then succeeds if no other
 * caller came, and no earlier), `"never"` (the cost is above the capacity, or the clock ends
 * first), or `"unknown"` (units are held).
 */
export type Wait = bigint | "never" | "unknown";

export interface Decision {
  /** Whether the caller may proceed. The cost has been charged if so, and not otherwise. */
  readonly allowed: boolean;
  /** The capacity of the limit that decided, in units of cost. */
  readonly limit: bigint;
  /** Units that a next request could be charged at this same time. */
  readonly remaining: bigint;
  /** `null` when allowed. */
  readonly wait: Wait | null;
  /**
   * Time until the limit is fresh again without further requests; `null` when the clock ends first.
   */
  readonly resetNs: bigint | null;
}

/** A decision and the state after it. */
export interface Step<State> {
  readonly decision: Decision;
  readonly state: State;
}

/** The verdict, with the kind of wait of a denial. */
export type Outcome = "allow" | "deny-for-now" | "deny-for-ever" | "deny-unknown";

/** The parts of a decision, in the ticks that its limit counts in. */
export interface Findings {
  readonly outcome: Outcome;
  readonly limit: bigint;
  readonly nowNs: bigint;
  /** What is left after this decision. */
  readonly roomTicks: bigint;
  /** What a denied cost lacks. */
  readonly lackTicks: bigint;
  /** What has to pass until the limit is fresh again. */
  readonly spentTicks: bigint;
  readonly ticksPerUnit: bigint;
  readonly ticksPerNs: bigint;
}

export function decision(found: Findings): Decision {
  return {
    allowed: found.outcome === "allow",
    limit: found.limit,
    remaining: found.roomTicks / found.ticksPerUnit,
    wait: waitOf(found),
    resetNs: nanos(found, found.spentTicks),
  };
}

/** The decision where nothing was charged: what is left is what a peek found. */
export function uncharged(decided: Decision, look: Decision): Decision {
  return { ...decided, remaining: look.remaining, resetNs: look.resetNs };
}

function waitOf(found: Findings): Wait | null {
  switch (found.outcome) {
    case "allow":
      return null;
    case "deny-for-ever":
      return "never";
    case "deny-unknown":
      return "unknown";
    case "deny-for-now":
      return nanos(found, found.lackTicks) ?? "never";
  }
}

/**
 * Nanoseconds until this many ticks have passed, rounded up; `null` beyond the end of the clock.
 */
function nanos({ nowNs, ticksPerNs }: Findings, ticks: bigint): bigint | null {
  const passedNs = divCeil(ticks, ticksPerNs);
  return nowNs + passedNs <= CLOCK_END_NS ? passedNs : null;
}
