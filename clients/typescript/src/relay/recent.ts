/** Messages that were sent recently, and that the relay may still deny. */

/** A sent message: its bytes stay the same, however often it is sent. */
export interface Entry {
  /** Its position in the order of sending. */
  readonly order: number;
  readonly messageId: Uint8Array;
  /** The id in a comparable form. */
  readonly key: string;
  readonly bytes: Uint8Array;
  /** How often it has been sent. */
  attempts: number;
  sentAtMs: number;
  /** From the message before it to this one. */
  sinceLastMs: number;
  /** Which transmission it was, of all. */
  transmission: number;
  /** Whether it was sent at a learned pace, or at once. */
  paced: boolean;
}

/** The bounds of a `Recent`. */
export interface RecentBounds {
  readonly messagesMax: number;
  readonly bytesMax: number;
  /** Younger ones may still be denied, and always stay. */
  readonly ageMsMin: number;
  /** Older ones are removed, even if there is room. */
  readonly ageMsMax: number;
}

/**
 * A bounded store of sent messages. A message that may still be denied is never removed to make
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
   * Removes as many as may and must be removed for this many more messages and bytes to fit.
   * Returns 0 if they fit, or else in how many milliseconds to try again.
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

  /** Stores a message. There has to be room for it, and none with its id. */
  add(entry: Entry): void {
    this.#entries.set(entry.key, entry);
    this.#bytes += entry.bytes.length;
  }

  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /** How many messages were sent from a time on, before the given transmission. */
  countSent(fromMs: number, before: number): number {
    let count = 0;
    for (const { sentAtMs, transmission } of this.#entries.values()) {
      if (transmission >= before) break;
      if (sentAtMs >= fromMs) count++;
    }
    return count;
  }

  /** Removes and returns the message with this key. */
  take(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes.length;
    return entry;
  }

  /** Removes all messages; returns those that are not too old, the oldest first. */
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
