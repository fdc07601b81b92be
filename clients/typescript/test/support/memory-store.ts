import type { KeyValue } from "tidegate/kv";

/** A namespace in memory that expires keys as Workers KV does: in whole seconds. */
export class MemoryStore implements KeyValue {
  readonly entries = new Map<string, { value: string; ttlS: number; expiresS: number }>();
  nowMs = 0;

  async get(key: string): Promise<string | null> {
    const entry = this.entries.get(key);
    if (entry === undefined || this.nowMs / 1_000 >= entry.expiresS) return null;
    return entry.value;
  }

  async put(key: string, value: string, { expirationTtl }: { expirationTtl: number }) {
    if (!Number.isInteger(expirationTtl) || expirationTtl < 60) {
      throw new Error(`400 Invalid expiration_ttl of ${expirationTtl}`);
    }
    const expiresS = Math.floor(this.nowMs / 1_000) + expirationTtl;
    this.entries.set(key, { value, ttlS: expirationTtl, expiresS });
  }

  /** All keys with their values. */
  contents(): Record<string, string> {
    return Object.fromEntries([...this.entries].map(([key, { value }]) => [key, value]));
  }
}
