import type { Decision } from "../core/decision.js";
import { CLOCK_END_NS } from "../core/numbers.js";
import { systemClock, type Clock } from "../shared/clock.js";
import { consoleLogger, printable, type Logger } from "../shared/log.js";
import { tell } from "../shared/tell.js";
import { limitOf, storeOf, usersOf, type RateLimitEnv } from "./environment.js";
import { KvInvalidError, whole } from "./errors.js";
import { defaultLimit, MS_NS, ready, type KvLimit, type Ready } from "./limit.js";
import { planFor, type Answer, type Plan } from "./plan.js";
import type { KeyValue } from "./store.js";

/** Who sends the message: a text that is not empty, or a whole number. */
export type UserId = string | number | bigint;

/** How a limiter is made. */
export interface KvRateLimiterOptions {
  /** The limit of everybody; default: 20 per hour, in a fixed window. */
  readonly limit?: KvLimit;
  /** The limit of one user, where it is not that of everybody; it is given the latter. */
  readonly limitFor?: (userId: string, limit: KvLimit) => KvLimit | "unlimited" | undefined;
  /** Gets one line when the store cannot answer; default: `console.warn`. */
  readonly logger?: Logger;
  readonly clock?: Pick<Clock, "wallMs" | "after">;
  /** How long the store may take for each of the two calls; default: 2 000 ms. */
  readonly storeTimeoutMs?: number;
}

/** One message. */
export interface CheckOptions {
  /** What it costs; default: 1. A cost of 0 is a look that changes nothing. */
  readonly cost?: number;
  /** Milliseconds since 1970; default: now. */
  readonly nowMs?: number;
}

/** What the caller of a check learns. */
export interface RateLimitResult {
  /** Whether to go ahead. Refused messages do not count. */
  readonly allowed: boolean;
  /** How many more messages of cost 1 would be allowed now; `Infinity` for the unlimited. */
  readonly remaining: number;
  /** The capacity of the limit that decided; `Infinity` for the unlimited. */
  readonly limit: number;
  /** Wait so long before the next attempt; 0 when allowed, `null` when no wait helps. */
  readonly retryAfterMs: number | null;
  /** Until the limit is as good as fresh if nothing more comes. */
  readonly resetAfterMs: number;
  /** Allowed, although the store could not be read or written. */
  readonly failedOpen: boolean;
}

/**
 * A rate limit per user over a key-value namespace that can only get and put, such as Workers KV.
 *
 * Such a namespace has no way to change a value in one step, and may take a minute or more to show
 * a change everywhere. So messages of one user that arrive at the same time, or in different
 * places, can be admitted beyond the limit. Workers KV also refuses more than one write per second
 * to the same key, and what cannot be written is not counted. This protects against cost, not
 * against an attack: whoever needs an exact number uses the Rust library, or keeps a state of
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

  /** Throws a `KvInvalidError` that names what is wrong. */
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
   * The limiter of a Worker's environment. Throws a `KvInvalidError` that names the variable. What
   * `limitFor` says about a user goes before what `RATE_LIMIT_USERS` says.
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
   * number cannot be used; never because of the store.
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
      // The store would fail, and let everybody through who has a long name.
      throw new KvInvalidError("userId", `makes a key of more than ${KEY_BYTES_MAX} bytes`);
    }
    return this.#decide(plan, user);
  }

  async #decide(plan: Plan, user: string): Promise<RateLimitResult> {
    const { key, fresh } = plan;
    let known: Answer | undefined;
    try {
      const stored = await this.#inTime(() => this.#store.get(key));
      known = stored === null ? fresh : plan.answer(stored);
    } catch (error) {
      this.#log(user, fresh.decision, `cannot be read: ${textOfError(error)}`);
      return resultOf(fresh.decision, true);
    }
    const answer = known ?? fresh;
    // Nobody knows what was counted. Counting starts anew, so that one bad value does no more harm.
    if (known === undefined) {
      this.#log(user, answer.decision, `has no count under ${printable(key)}`);
    }
    const isKept = await this.#keep(key, answer, user);
    return resultOf(answer.decision, known === undefined || !isKept);
  }

  /** Whether the store has what the answer leaves behind. */
  async #keep(key: string, { decision, value, ttlS }: Answer, user: string): Promise<boolean> {
    if (value === null) return true;
    try {
      await this.#inTime(() => this.#store.put(key, value, { expirationTtl: ttlS }));
      return true;
    } catch (error) {
      this.#log(user, decision, `cannot be written: ${textOfError(error)}`);
      return false;
    }
  }

  /** What the store says, unless it throws, rejects, or takes too long. */
  async #inTime<T>(ask: () => Promise<T>): Promise<T> {
    let stop: (() => void) | undefined;
    const late = new Promise<never>((_, reject) => {
      const problem = new Error(`no answer within ${this.#storeTimeoutMs} ms`);
      stop = this.#clock.after(this.#storeTimeoutMs, () => reject(problem));
    });
    try {
      return await Promise.race([ask(), late]);
    } finally {
      stop?.();
    }
  }

  #log(user: string, { allowed }: Decision, problem: string): void {
    const fate = allowed ? "let through" : "refused";
    tell(() =>
      this.#logger(`Rate limit: user ${printable(user)} is ${fate}; the store ${problem}`),
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

/** Rounded up, so that nobody comes back too early. */
function wholeMs(ns: bigint): number {
  return Number((ns + MS_NS - 1n) / MS_NS);
}

function textOf(userId: UserId): string {
  if (typeof userId === "number" && !Number.isSafeInteger(userId)) {
    throw new KvInvalidError("userId", `is ${userId}, not a whole number below 2^53`);
  }
  if (!["string", "number", "bigint"].includes(typeof userId) || userId === "") {
    throw new KvInvalidError("userId", "is neither a number nor a text that is not empty");
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
/** What Workers KV takes. */
const KEY_BYTES_MAX = 512;
const NOW_MS_MAX = Number(CLOCK_END_NS / MS_NS);
/** Timers of JavaScript count in 31 bits; a few are kept for rounding. */
const TIMER_MS_MAX = 0x7fff_fff0;
