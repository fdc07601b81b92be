/** The namespace that stores counts. */

/** The interface of a key-value namespace. A `KVNamespace` of Workers implements it. */
export interface KeyValue {
  /** The value, or `null` if there is none. */
  get(key: string): Promise<string | null>;
  /** Stores a value for this many whole seconds. Workers accept no fewer than 60. */
  put(key: string, value: string, options: { expirationTtl: number }): Promise<void>;
}

/**
 * The time, in whole seconds, that a key has to be stored to be valid until `untilNs`.
 *
 * A store that adds this to the second of the call must not be early. So the time is counted from
 * the beginning of the second of `nowNs` to the end of the last one.
 */
export function expirationTtl(nowNs: bigint, untilNs: bigint): number {
  const ttlS = (untilNs + SECOND_NS - 1n) / SECOND_NS - nowNs / SECOND_NS;
  return Math.max(Number(ttlS), TTL_S_MIN);
}

const SECOND_NS = 1_000_000_000n;
/** The minimum of Workers KV. */
const TTL_S_MIN = 60;
