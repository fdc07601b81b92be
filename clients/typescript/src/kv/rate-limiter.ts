import type { Decision } from "../core/decision.js";
import { CLOCK_END_NS } from "../core/numbers.js";
import { systemClock, type Clock } from "../shared/clock.js";
import { consoleLogger, printable, type Logger } from "../shared/log.js";
import { notify } from "../shared/notify.js";
import { limitOf, storeOf, usersOf, type RateLimitEnv } from "./environment.js";
import { KvInvalidError, whole } from "./errors.js";
import { defaultLimit, MS_NS, ready, type KvLimit, type Ready } from "./limit.js";
import { planFor, type Outcome, type Plan } from "./plan.js";
import type { KeyValue } from "./store.js";

/** The sender of a message: a non-empty text, or a whole number. */
export type UserId = string | number | bigint;

/** The options of a limiter. */
export interface KvRateLimiterOptions {
  /** The limit of all users; default: 20 per hour, in a fixed window. */
  readonly limit?: KvLimit;
  /** Another limit for one user; it receives the limit of all users. */
  readonly limitFor?: (userId: string, limit: KvLimit) => KvLimit | "unlimited" | undefined;
  /** Gets one line when the store is unavailable; default: `console.warn`. */
  readonly logger?: Logger;
  readonly clock?: Pick<Clock, "wallMs" | "after">;
  /** The time-out of each of the two calls of the store; default: 2 000 ms. */
  readonly storeTimeoutMs?: number;
}

/** One message. */
export interface CheckOptions {
  /** The cost; default: 1. A cost of 0 only looks. */
  readonly cost?: number;
  /** Milliseconds since 1970; default: now. */
  readonly nowMs?: number;
}

/** The result of a check. */
export interface RateLimitResult {
  /** Whether to proceed. Denied messages do not count. */
  readonly allowed: boolean;
  /**
   * How many more messages of cost 1 would be allowed now; `Infinity` if unlimited. Undefined if
   * the count could not be read.
   */
  readonly remaining: number | undefined;
  /** The capacity of the limit that decided; `Infinity` if unlimited. */
  readonly limit: number;
  /** The wait before the next attempt; 0 when allowed, `null` when no wait helps. */
  readonly retryAfterMs: number | null;
  /**
   * Time until the limit is fresh again without further messages. Undefined if the count could not
   * be read.
   */
  readonly resetAfterMs: number | undefined;
  /** Allowed, although the store could not be read or written. */
  readonly failedOpen: boolean;
}

/**
 * A rate limit per user over a key-value namespace that can only get and put, such as Workers KV.
 *
 * Such a namespace has no way to change a value in one step, and may take a minute or more to show
 * a change everywhere. So messages of one user that arrive at the same time, or at different
 * locations, can be admitted beyond the limit. Workers KV also refuses more than one write per
 * second to the same key, and what cannot be written is not counted. This protects against cost,
 * not against an attack: for an exact limit use the Rust library, or store a state of
 * `tidegate/core` where one caller at a time changes it (a Durable Object).
 */
export class KvRateLimiter {
  readonly #store: KeyValue;
  readonly #limit: KvLimit;
  readonly #ready: Ready;
  readonly #limitFor: KvRateLimiterOptions["limitFor"];
  readonly #logger: Logger;
  readonly #clock: Pick<Clock, "wallMs" | "after">;
  readonly #storeTimeoutMs: number;

  /** Throws a `KvInvalidError` that names the field. */
  constructor(store: KeyValue, options: KvRateLimiterOptions = {}) {
    this.#store = store;
    this.#limit = options.limit ?? defaultLimit;
    this.#ready = ready(this.#limit);
    this.#limitFor = options.limitFor;
    this.#logger = options.logger ?? consoleLogger;
    this.#clock = options.clock ?? systemClock;
    const timeoutMs = options.storeTimeoutMs ?? 2_000;
    this.#storeTimeoutMs = whole("storeTimeoutMs", timeoutMs, 1, TIMER_MS_MAX);
  }

  /**
   * The limiter of a Worker's environment. Throws a `KvInvalidError` that names the variable. The
   * result of `limitFor` takes precedence over `RATE_LIMIT_USERS`.
   */
  static fromEnv(
    env: RateLimitEnv,
    options: Omit<KvRateLimiterOptions, "limit"> = {},
  ): KvRateLimiter {
    const users = usersOf(env);
    const limitFor = (userId: string, limit: KvLimit): KvLimit | "unlimited" | undefined => {
      const own = options.limitFor?.(userId, limit);
      if (own !== undefined) return own;
      const max = users.get(userId);
      return typeof max === "number" ? { ...limit, max } : max;
    };
    return new KvRateLimiter(storeOf(env), { ...options, limit: limitOf(env), limitFor });
  }

  /**
   * Counts the message if it is allowed. Rejects with a `KvInvalidError` if the user's id or a
   * number is invalid; never because of the store.
   */
  async check(userId: UserId, options: CheckOptions = {}): Promise<RateLimitResult> {
    const user = textOf(userId);
    const cost = BigInt(whole("cost", options.cost ?? 1, 0, Number.MAX_SAFE_INTEGER));
    const nowMs = whole("nowMs", options.nowMs ?? this.#clock.wallMs(), 0, NOW_MS_MAX);
    const limit = this.#limitFor?.(user, this.#limit) ?? this.#limit;
    if (limit === "unlimited") return UNLIMITED;
    const by = limit === this.#limit ? this.#ready : ready(limit);
    const plan = planFor(by, user, cost, BigInt(nowMs) * MS_NS);
    if (new TextEncoder().encode(plan.key).length > KEY_BYTES_MAX) {
      // The store would fail, and every user with a long id would be allowed.
      throw new KvInvalidError("userId", `makes a key of more than ${KEY_BYTES_MAX} bytes`);
    }
    return this.#decide(plan, user);
  }

  async #decide(plan: Plan, user: string): Promise<RateLimitResult> {
    const { key, fresh } = plan;
    let known: Outcome | undefined;
    try {
      const stored = await this.#inTime(() => this.#store.get(key));
      known = stored === null ? fresh : plan.outcome(stored);
    } catch (error) {
      this.#log(user, fresh.decision, `cannot be read: ${textOfError(error)}`);
      return unreadable(fresh.decision);
    }
    const outcome = known ?? fresh;
    // The count is unknown. Counting starts anew, so that one bad value does no more harm.
    if (known === undefined) {
      this.#log(user, outcome.decision, `has no count under ${printable(key)}`);
    }
    const isStored = await this.#keep(key, outcome, user);
    if (known === undefined) return unreadable(outcome.decision);
    return resultOf(outcome.decision, !isStored);
  }

  /** Whether the outcome is stored. */
  async #keep(key: string, { decision, value, ttlS }: Outcome, user: string): Promise<boolean> {
    if (value === null) return true;
    try {
      await this.#inTime(() => this.#store.put(key, value, { expirationTtl: ttlS }));
      return true;
    } catch (error) {
      this.#log(user, decision, `cannot be written: ${textOfError(error)}`);
      return false;
    }
  }

  /** The result of the store, unless it throws, rejects, or times out. */
  async #inTime<T>(call: () => Promise<T>): Promise<T> {
    let stop: (() => void) | undefined;
    const late = new Promise<never>((_, reject) => {
      const problem = new Error(`no response within ${this.#storeTimeoutMs} ms`);
      stop = this.#clock.after(this.#storeTimeoutMs, () => reject(problem));
    });
    try {
      return await Promise.race([call(), late]);
    } finally {
      stop?.();
    }
  }

  #log(user: string, { allowed }: Decision, problem: string): void {
    const verdict = allowed ? "allowed" : "denied";
    notify(() =>
      this.#logger(`Rate limit: user ${printable(user)} is ${verdict}; the store ${problem}`),
    );
  }
}

/** `KvRateLimiter.fromEnv(env, options).check(userId, options)`, for a Worker that checks once. */
export async function checkRateLimit(
  env: RateLimitEnv,
  userId: UserId,
  options: Omit<KvRateLimiterOptions, "limit"> & CheckOptions = {},
): Promise<RateLimitResult> {
  return KvRateLimiter.fromEnv(env, options).check(userId, options);
}

function resultOf(decision: Decision, storeFailed: boolean): RateLimitResult {
  const { allowed, remaining, limit, wait, resetNs } = decision;
  return {
    allowed,
    remaining: Number(remaining),
    limit: Number(limit),
    retryAfterMs: wait === null ? 0 : typeof wait === "bigint" ? wholeMs(wait) : null,
    resetAfterMs: wholeMs(resetNs ?? CLOCK_END_NS),
    failedOpen: storeFailed && allowed,
  };
}

/** The result where the count is unknown: what a fresh one would leave would be a guess. */
function unreadable(decision: Decision): RateLimitResult {
  return { ...resultOf(decision, true), remaining: undefined, resetAfterMs: undefined };
}

/** Rounded up, so that no retry comes too early. */
function wholeMs(ns: bigint): number {
  return Number((ns + MS_NS - 1n) / MS_NS);
}

function textOf(userId: UserId): string {
  if (typeof userId === "number" && !Number.isSafeInteger(userId)) {
    throw new KvInvalidError("userId", `is ${userId}, not a whole number below 2^53`);
  }
  if (!["string", "number", "bigint"].includes(typeof userId) || userId === "") {
    throw new KvInvalidError("userId", "is neither a number nor a non-empty text");
  }
  return String(userId);
}

function textOfError(error: unknown): string {
  return printable(error instanceof Error ? error.message : String(error));
}

const UNLIMITED: RateLimitResult = Object.freeze({
  allowed: true,
  remaining: Infinity,
  limit: Infinity,
  retryAfterMs: 0,
  resetAfterMs: 0,
  failedOpen: false,
});
/** The maximum of Workers KV. */
const KEY_BYTES_MAX = 512;
const NOW_MS_MAX = Number(CLOCK_END_NS / MS_NS);
/** Timers of JavaScript count in 31 bits; a few are kept for rounding. */
const TIMER_MS_MAX = 0x7fff_fff0;
