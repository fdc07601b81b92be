/** The limits that can be stored in a key-value namespace. */

import { Bucket } from "../core/bucket.js";
import { LimitError } from "../core/errors.js";
import { Sliding } from "../core/sliding.js";
import { Window } from "../core/window.js";
import { KvInvalidError, whole } from "./errors.js";

/**
 * The algorithm that counts messages.
 *
 * - `window`: `max` in each window of the clock; around its edge up to twice as many in one length.
 * - `sliding`: `max` in *every* window of that length.
 * - `bucket`: `burst` at once, refilled evenly at `max` per window.
 */
export const algorithms = ["window", "sliding", "bucket"] as const;
export type KvAlgorithm = (typeof algorithms)[number];

/** A limit: `max` messages per `windowMs` milliseconds. */
export interface KvLimit {
  readonly max: number;
  readonly windowMs: number;
  /** Default: `window`. */
  readonly algorithm?: KvAlgorithm;
  /** Only for a `bucket`: its capacity; default: `max`. */
  readonly burst?: number;
  /** Only for a `sliding` window: the number of its parts, from 1 to 15; default: 10. */
  readonly parts?: number;
}

/** The default limit: 20 messages per hour and user. */
export const defaultLimit: Required<Pick<KvLimit, "max" | "windowMs" | "algorithm">> =
  Object.freeze({ max: 20, windowMs: 3_600_000, algorithm: "window" });

/** A validated limit, ready to decide. */
export type Ready =
  | { readonly algorithm: "window"; readonly by: Window }
  | { readonly algorithm: "sliding"; readonly by: Sliding }
  | { readonly algorithm: "bucket"; readonly by: Bucket };

/** Throws a `KvInvalidError` that names the field. */
export function ready(limit: KvLimit): Ready {
  const { algorithm = defaultLimit.algorithm, burst, parts } = limit;
  const max = BigInt(whole("max", limit.max, 1, MAX_MAX));
  const perNs = BigInt(whole("windowMs", limit.windowMs, 1, WINDOW_MS_MAX)) * MS_NS;
  if (burst !== undefined && algorithm !== "bucket") {
    throw new KvInvalidError("burst", `belongs to a bucket, not to algorithm "${algorithm}"`);
  }
  if (parts !== undefined && algorithm !== "sliding") {
    throw new KvInvalidError("parts", `belongs to a sliding window, not to "${algorithm}"`);
  }
  switch (algorithm) {
    case "window":
      return { algorithm, by: Window.of({ max, perNs, aligned: true }) };
    case "sliding":
      return {
        algorithm,
        by: Sliding.of({ max, perNs, parts: whole("parts", parts ?? 10, 1, 15) }),
      };
    case "bucket":
      return {
        algorithm,
        by: bucket(max, perNs, BigInt(whole("burst", burst ?? limit.max, 1, MAX_MAX))),
      };
    default:
      throw new KvInvalidError(
        "algorithm",
        `is "${String(algorithm)}": expected ${oneOf(algorithms)}`,
      );
  }
}

function bucket(max: bigint, perNs: bigint, burst: bigint): Bucket {
  if ((burst * perNs) / max > REFILL_NS_MAX) {
    throw new KvInvalidError("burst", "takes more than 100 years to refill; use a smaller one");
  }
  try {
    return Bucket.of({ count: max, periodNs: perNs, burst });
  } catch (error) {
    if (error instanceof LimitError) throw new KvInvalidError(error.field, problemOf(error));
    throw error;
  }
}

function problemOf({ field, message }: LimitError): string {
  return message.slice(field.length + 1);
}

/** `a, b or c`, for messages. */
export function oneOf(words: readonly string[]): string {
  return `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}

export const MAX_MAX = 2 ** 32 - 1;
/** 366 days. */
export const WINDOW_MS_MAX = 366 * 86_400_000;
/** A hundred years: well within the clock, which ends in 2262. */
const REFILL_NS_MAX = 36_525n * 86_400_000_000_000n;
export const MS_NS = 1_000_000n;
