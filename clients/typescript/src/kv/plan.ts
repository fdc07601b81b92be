/** Where a limit stores the state of a user, and how it is read and written. Pure. */

import type { Decision, Step } from "../core/decision.js";
import { CLOCK_END_NS } from "../core/numbers.js";
import type { Window } from "../core/window.js";
import type { Ready } from "./limit.js";
import { bucketText, digits, keptBucket, keptSliding, slidingText, type Kept } from "./state.js";
import { expirationTtl } from "./store.js";

/** A prepared check: everything but the store. */
export interface Plan {
  readonly key: string;
  /** The outcome if nothing is stored. */
  readonly fresh: Outcome;
  /** The outcome for the stored text, or `undefined` if it is invalid. */
  outcome(stored: string): Outcome | undefined;
}

export interface Outcome {
  readonly decision: Decision;
  /** What to store; `null` if it is stored already. */
  readonly value: string | null;
  readonly ttlS: number;
}

export function planFor(limit: Ready, userId: string, cost: bigint, nowNs: bigint): Plan {
  switch (limit.algorithm) {
    case "window":
      return windowPlan(limit.by, userId, cost, nowNs);
    case "sliding": {
      const fresh = { limit: limit.by, state: limit.by.fresh() };
      const read = (stored: string) => keptSliding(limit.by, stored, nowNs);
      return statePlan({ userId, cost, nowNs, fresh, read, write: slidingText });
    }
    case "bucket": {
      const fresh = { limit: limit.by, state: limit.by.fresh() };
      const read = (stored: string) => keptBucket(limit.by, stored, nowNs);
      return statePlan({ userId, cost, nowNs, fresh, read, write: bucketText });
    }
  }
}

/** A key for each window, with the count as its value. */
function windowPlan(by: Window, userId: string, cost: bigint, nowNs: bigint): Plan {
  const windowKey = nowNs / by.perNs;
  const endsNs = (windowKey + 1n) * by.perNs;
  const ttlS = expirationTtl(nowNs, endsNs);
  const outcome = (used: bigint): Outcome => {
    const { decision, state } = by.check({ endsNs, used, held: 0n }, cost, nowNs);
    return { decision, value: state.used > used ? state.used.toString() : null, ttlS };
  };
  return {
    key: `${PREFIX}${userId}:${windowKey}`,
    fresh: outcome(0n),
    outcome(stored) {
      const used = digits(stored, COUNT_MAX);
      return used === undefined ? undefined : outcome(used);
    },
  };
}

interface Checking<Limit, State> {
  readonly userId: string;
  readonly cost: bigint;
  readonly nowNs: bigint;
  readonly fresh: Kept<Limit, State>;
  readonly read: (stored: string) => Kept<Limit, State> | undefined;
  readonly write: (limit: Limit, state: State) => string;
}

/** One key for each user, with the whole state as its value. */
function statePlan<
  Limit extends { check(state: State, cost: bigint, nowNs: bigint): Step<State> },
  State,
>({ userId, cost, nowNs, fresh, read, write }: Checking<Limit, State>): Plan {
  const outcome = (kept: Kept<Limit, State>, stored: string | null): Outcome => {
    const { decision, state } = kept.limit.check(kept.state, cost, nowNs);
    const freshAtNs = decision.resetNs === null ? CLOCK_END_NS : nowNs + decision.resetNs;
    const value = write(kept.limit, state);
    // A state from another limit is written although nothing was charged: from now on it refills as
    // this limit says, and the reported wait is true.
    const isChanged = stored === null ? state !== fresh.state : value !== stored;
    return { decision, value: isChanged ? value : null, ttlS: expirationTtl(nowNs, freshAtNs) };
  };
  return {
    key: PREFIX + withoutColons(userId),
    fresh: outcome(fresh, null),
    outcome(stored) {
      const kept = read(stored);
      return kept === undefined ? undefined : outcome(kept, stored);
    },
  };
}

/**
 * The key of a fixed window has a second colon. That of a state has none, whatever the user's id.
 */
function withoutColons(userId: string): string {
  return userId.replace(/[%:]/g, (character) => (character === ":" ? "%3A" : "%25"));
}

const PREFIX = "ratelimit:";
const COUNT_MAX = BigInt(Number.MAX_SAFE_INTEGER);
