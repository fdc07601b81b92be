/** Messages that were sent a short while ago, and that the relay may still refuse. */

/** A message on its way: its bytes stay the same, however often it is sent. */
export interface Entry {
  /** Its place in the order in which the caller sent. */
  readonly order: number;
  readonly messageId: Uint8Array;
  /** The id, as something that can be compared. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** How often it has been sent. */
  attempts: number;
  sentAtMs: number;
  /** From the message before it to this one. */
  sinceLastMs: number;
  /** Whether it was sent in a round of the pace, or at once. */
  inRound: boolean;
}

/** What a `Recent` may hold, and for how long. */
export interface RecentBounds {
  readonly messagesMax: number;
  readonly bytesMax: number;
  /** Younger ones may still be refused, and stay whatever happens. */
  readonly ageMsMin: number;
  /** Older ones are not kept, even if there is room. */
  readonly ageMsMax: number;
}

/**
 * A bounded memory of what was sent. A message that may still be refused is never forgotten to make
 * room for another: the other one has to wait.
 */
export class Recent {
  readonly #bounds: RecentBounds;
  /** In the order of sending. */
  readonly #entries = new Map<string, Entry>();
  #bytes = 0;

  constructor(bounds: RecentBounds) {
    this.#bounds = bounds;
  }

  /**
   * Forgets as much as may be forgotten and has to be, for so many more messages and bytes to fit in.
   * Returns 0 if they do, or else in how many milliseconds to ask again.
   */
  makeRoom(messages: number, bytes: number, nowMs: number): number {
    const { ageMsMin, ageMsMax } = this.#bounds;
    for (const { key, sentAtMs } of this.#entries.values()) {
      const ageMs = nowMs - sentAtMs;
      const fits = this.#fits(messages, bytes);
      if (fits && ageMs < ageMsMax) return 0;
      if (!fits && ageMs < ageMsMin) return ageMsMin - ageMs;
      this.take(key);
    }
    return this.#fits(messages, bytes) ? 0 : ageMsMin;
  }

  /** Remembers a message. There has to be room for it, and none with its id. */
  add(entry: Entry): void {
    this.#entries.set(entry.key, entry);
    this.#bytes += entry.bytes.length;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** The message with this key, which is then no longer remembered. */
  take(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes.length;
    return entry;
  }

  /** All that are not too old, the oldest first. None is remembered any longer. */
  takeAll(nowMs: number): Entry[] {
    const entries = [...this.#entries.values()];
    this.#entries.clear();
    this.#bytes = 0;
    return entries.filter(({ sentAtMs }) => nowMs - sentAtMs < this.#bounds.ageMsMax);
  }

  #fits(messages: number, bytes: number): boolean {
    const { messagesMax, bytesMax } = this.#bounds;
    return this.#entries.size + messages <= messagesMax && this.#bytes + bytes <= bytesMax;
  }
}

export function keyOf(messageId: Uint8Array): string {
  return Array.from(messageId, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
