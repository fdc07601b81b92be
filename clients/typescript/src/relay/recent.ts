/** Messages that were sent a short while ago, and that the relay may still refuse. */

/** A message on its way: its bytes stay the same, however often it is sent. */
export interface Entry {
  /** Its place in the order in which the caller sent. */
  readonly order: number;
  readonly messageId: Uint8Array;
  readonly bytes: Uint8Array;
  /** How often it has been sent. */
  attempts: number;
  sentAtMs: number;
  /** From the message before it to this one. */
  sinceLastMs: number;
}

/** What a `Recent` may hold. */
export interface RecentBounds {
  readonly messagesMax: number;
  readonly bytesMax: number;
  readonly ageMsMax: number;
}

/** A bounded memory of what was sent: the oldest leave when it is full, and with their age. */
export class Recent {
  readonly #bounds: RecentBounds;
  /** In the order of sending. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(bounds: RecentBounds) {
    this.#bounds = bounds;
  }

  /** Remembers a message. Of two with the same id, the later one is remembered. */
  add(entry: Entry): void {
    this.#forgetOld(entry.sentAtMs);
    this.#remove(keyOf(entry.messageId));
    this.#entries.set(keyOf(entry.messageId), entry);
    this.#bytes += entry.bytes.length;
    for (const key of this.#entries.keys()) {
      const { messagesMax, bytesMax } = this.#bounds;
      if (this.#entries.size <= messagesMax && this.#bytes <= bytesMax) break;
      this.#remove(key);
    }
  }

  /** The message with this id, which is then no longer remembered. */
  take(messageId: Uint8Array, nowMs: number): Entry | undefined {
    this.#forgetOld(nowMs);
    return this.#remove(keyOf(messageId));
  }

  /** All of them, the oldest first. None is remembered any longer. */
  takeAll(nowMs: number): Entry[] {
    this.#forgetOld(nowMs);
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    this.#bytes = 0;
    return entries;
  }

  #forgetOld(nowMs: number): void {
    for (const [key, entry] of this.#entries) {
      if (nowMs - entry.sentAtMs < this.#bounds.ageMsMax) break;
      this.#remove(key);
    }
  }

  #remove(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes.length;
    return entry;
  }
}

function keyOf(messageId: Uint8Array): string {
  return Array.from(messageId, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
