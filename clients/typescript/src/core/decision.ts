/** The answer to one check. A denial is an answer, not an error. */

import { CLOCK_END_NS, divCeil } from "./numbers.js";

/**
 * How long a refused caller should wait: so many nanoseconds (a retry then succeeds if nobody else
 * came, and no earlier), `"never"` (the cost is above the capacity, or the clock ends first), or
 * `"unknown"` (units are held by somebody).
 */
export type Wait = bigint | "never" | "unknown";

export interface Decision {
  /** Whether the caller may go ahead. The cost has been charged if so, and not otherwise. */
  readonly allowed: boolean;
  /** The capacity of the limit that decided, in units of cost. */
  readonly limit: bigint;
  /** Units that the next caller could be charged at this same time. */
  readonly remaining: bigint;
  /** `null` when allowed. */
  readonly wait: Wait | null;
  /** Until the limit is as good as fresh if nobody comes; `null` when the clock ends first. */
  readonly resetNs: bigint | null;
}

/** A decision and the state that it leaves behind. */
export interface Step<State> {
  readonly decision: Decision;
  readonly state: State;
}

/** The bare answer, with the kind of wait that a refusal calls for. */
export type Outcome = "allow" | "deny-for-now" | "deny-for-ever" | "deny-unknown";

/** What a decision is made of, in the ticks that its limit counts in. */
export interface Findings {
  readonly outcome: Outcome;
  readonly limit: bigint;
  readonly nowNs: bigint;
  /** What is left after this decision. */
  readonly roomTicks: bigint;
  /** What a refused cost lacks. */
  readonly lackTicks: bigint;
  /** What has to pass until the limit is as good as fresh. */
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

/** The decision where nothing was charged: what is left is what a look found. */
export function uncharged(answer: Decision, look: Decision): Decision {
  return { ...answer, remaining: look.remaining, resetNs: look.resetNs };
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

/** Nanoseconds until so many ticks have passed, rounded up; `null` beyond the end of the clock. */
function nanos({ nowNs, ticksPerNs }: Findings, ticks: bigint): bigint | null {
  const passedNs = divCeil(ticks, ticksPerNs);
  return nowNs + passedNs <= CLOCK_END_NS ? passedNs : null;
}
