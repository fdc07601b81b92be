/** The namespace that counts are kept in. */

/** What the check needs of a key-value namespace. A `KVNamespace` of Workers is one. */
export interface KeyValue {
  /** The value, or `null` where there is none. */
  get(key: string): Promise<string | null>;
  /** Keeps a value for so many whole seconds. Workers take no fewer than 60. */
  put(key: string, value: string, options: { expirationTtl: number }): Promise<void>;
}

/**
 * How long a key has to be kept that is needed until `untilNs`, in whole seconds.
 *
 * A store that adds this to the second in which it was asked must not be early. So the time is
 * counted from the beginning of the second that `nowNs` lies in, to the end of the last one.
 */
export function expirationTtl(nowNs: bigint, untilNs: bigint): number {
  const ttlS = (untilNs + SECOND_NS - 1n) / SECOND_NS - nowNs / SECOND_NS;
  return Math.max(Number(ttlS), TTL_S_MIN);
}

const SECOND_NS = 1_000_000_000n;
/** The shortest that Workers KV takes. */
const TTL_S_MIN = 60;
