/** Where a limit keeps what it knows about a user, and how it reads and writes that. Pure. */

import type { Decision, Step } from "../core/decision.js";
import { CLOCK_END_NS } from "../core/numbers.js";
import type { Window } from "../core/window.js";
import type { Ready } from "./limit.js";
import { bucketText, digits, keptBucket, keptSliding, slidingText, type Kept } from "./state.js";
import { expirationTtl } from "./store.js";

/** One check that has been prepared: all but the store. */
export interface Plan {
  readonly key: string;
  /** The answer where nothing is stored. */
  readonly fresh: Answer;
  /** The answer to what is stored, or `undefined` if nobody can read it. */
  answer(stored: string): Answer | undefined;
}

export interface Answer {
  readonly decision: Decision;
  /** What to store; `null` if that is there already. */
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
  const answer = (used: bigint): Answer => {
    const { decision, state } = by.check({ endsNs, used, held: 0n }, cost, nowNs);
    return { decision, value: state.used > used ? state.used.toString() : null, ttlS };
  };
  return {
    key: `${PREFIX}${userId}:${windowKey}`,
    fresh: answer(0n),
    answer(stored) {
      const used = digits(stored, COUNT_MAX);
      return used === undefined ? undefined : answer(used);
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
  const answer = (kept: Kept<Limit, State>, stored: string | null): Answer => {
    const { decision, state } = kept.limit.check(kept.state, cost, nowNs);
    const freshAtNs = decision.resetNs === null ? CLOCK_END_NS : nowNs + decision.resetNs;
    const value = write(kept.limit, state);
    // A state that was kept under another limit is written although nothing was charged: from now
    // on it refills as this limit says, and the wait that was told is true.
    const isNews = stored === null ? state !== fresh.state : value !== stored;
    return { decision, value: isNews ? value : null, ttlS: expirationTtl(nowNs, freshAtNs) };
  };
  return {
    key: PREFIX + withoutColons(userId),
    fresh: answer(fresh, null),
    answer(stored) {
      const kept = read(stored);
      return kept === undefined ? undefined : answer(kept, stored);
    },
  };
}

/** The key of a fixed window has a second colon. That of a state has none, whoever it is of. */
function withoutColons(userId: string): string {
  return userId.replace(/[%:]/g, (character) => (character === ":" ? "%3A" : "%25"));
}

const PREFIX = "ratelimit:";
const COUNT_MAX = BigInt(Number.MAX_SAFE_INTEGER);
