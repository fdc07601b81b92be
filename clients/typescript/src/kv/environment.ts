/** Settings from the environment of a Worker. */

import { printable } from "../shared/log.js";
import { KvInvalidError } from "./errors.js";
import { algorithms, defaultLimit, MAX_MAX, oneOf, WINDOW_MS_MAX, type KvLimit } from "./limit.js";
import type { KeyValue } from "./store.js";

/** The environment of a Worker. Variables may be numbers: wrangler allows both. */
export interface RateLimitEnv {
  /** The namespace: a dedicated one is easy to purge. */
  readonly RATE_LIMIT_KV: KeyValue;
  /** Messages per window and user; default: 20. */
  readonly RATE_LIMIT_MAX?: string | number | undefined;
  /** Length of the window in milliseconds; default: 3 600 000. */
  readonly RATE_LIMIT_WINDOW_MS?: string | number | undefined;
  /** `window`, `sliding` or `bucket`; default: `window`. */
  readonly RATE_LIMIT_ALGORITHM?: string | undefined;
  /** Users with another maximum, such as `123=100,456=unlimited`; default: none. */
  readonly RATE_LIMIT_USERS?: string | undefined;
}

/** The variables, without the namespace. */
export type Variables = Omit<RateLimitEnv, "RATE_LIMIT_KV">;

/** The limit of the environment. Throws a `KvInvalidError` that names the variable. */
export function limitOf(env: Variables): KvLimit & typeof defaultLimit {
  return {
    max: number(env, "RATE_LIMIT_MAX", defaultLimit.max, MAX_MAX),
    windowMs: number(env, "RATE_LIMIT_WINDOW_MS", defaultLimit.windowMs, WINDOW_MS_MAX),
    algorithm: algorithmOf(env),
  };
}

/** The namespace of the environment. Throws a `KvInvalidError` where none is bound. */
export function storeOf(env: RateLimitEnv): KeyValue {
  const store: Partial<KeyValue> | undefined = env.RATE_LIMIT_KV;
  if (typeof store?.get === "function" && typeof store.put === "function") {
    return env.RATE_LIMIT_KV;
  }
  const hint = "add it to kv_namespaces in the Worker's configuration";
  throw new KvInvalidError("RATE_LIMIT_KV", `is not bound to a key-value namespace; ${hint}`);
}

/** Users with another maximum. Throws a `KvInvalidError` that names the variable. */
export function usersOf({ RATE_LIMIT_USERS: given }: Variables): ReadonlyMap<string, UserMax> {
  const users = new Map<string, UserMax>();
  if (given === undefined) return users;
  for (const entry of String(given).split(",")) {
    const [, user, max] = /^ *([1-9][0-9]{0,19}) *= *([0-9]{1,10}|unlimited) *$/.exec(entry) ?? [];
    const value = max === "unlimited" ? max : Number(max);
    const fits = value === "unlimited" || (value >= 1 && value <= MAX_MAX);
    if (user === undefined || !fits || users.has(user)) {
      throw wrong("RATE_LIMIT_USERS", given, "users and maxima such as 123=100,456=unlimited");
    }
    users.set(user, value);
  }
  return users;
}

/** Messages per window of one user. */
export type UserMax = number | "unlimited";

function number(
  env: Variables,
  name: "RATE_LIMIT_MAX" | "RATE_LIMIT_WINDOW_MS",
  byDefault: number,
  max: number,
): number {
  const given = env[name];
  if (given === undefined) return byDefault;
  const text = String(given);
  const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : 0;
  if (value >= 1 && value <= max) return value;
  throw wrong(name, text, `a whole number from 1 to ${max}`);
}

function algorithmOf({ RATE_LIMIT_ALGORITHM: given }: Variables) {
  if (given === undefined) return defaultLimit.algorithm;
  const algorithm = algorithms.find((name) => name === given);
  if (algorithm !== undefined) return algorithm;
  throw wrong("RATE_LIMIT_ALGORITHM", given, oneOf(algorithms));
}

function wrong(name: string, given: unknown, expected: string): KvInvalidError {
  return new KvInvalidError(name, `is "${printable(String(given))}": expected ${expected}`);
}
