/** Messages that are queued. */

import { QueueFullError } from "./errors.js";
import type { Entry } from "./recent.js";

/** The bounds of a queue for new messages. */
export interface QueueBounds {
  readonly messagesMax: number;
  readonly bytesMax: number;
}

/** Messages in the order in which the caller sent them. */
export class Queue {
  readonly #bounds: QueueBounds;
  readonly #entries: Entry[] = [];
  readonly #keys = new Set<string>();
  #bytes = 0;

  constructor(bounds: QueueBounds) {
    this.#bounds = bounds;
  }

  get length(): number {
    return this.#entries.length;
  }

  get first(): Entry | undefined {
    return this.#entries[0];
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** Throws a `QueueFullError` if there is no room for a new message. */
  checkRoom(bytes: number): void {
    const { messagesMax, bytesMax } = this.#bounds;
    const { length } = this;
    if (length >= messagesMax) {
      const all = `${length} messages are queued`;
      throw new QueueFullError(`${all}, the maximum is ${messagesMax}`, length);
    }
    if (this.#bytes + bytes > bytesMax) {
      const all = `${this.#bytes} bytes are queued`;
      throw new QueueFullError(`${all}, ${bytes} more would exceed ${bytesMax}`, length);
    }
  }

  /**
   * Inserts a message in order, also if the queue is full: an accepted message is never dropped.
   */
  insert(entry: Entry): void {
    let at = this.#entries.length;
    while (at > 0 && (this.#entries[at - 1]?.order ?? 0) > entry.order) at--;
    this.#entries.splice(at, 0, entry);
    this.#keys.add(entry.key);
    this.#bytes += entry.bytes.length;
  }

  shift(): Entry | undefined {
    const entry = this.#entries.shift();
    if (entry === undefined) return undefined;
    this.#keys.delete(entry.key);
    this.#bytes -= entry.bytes.length;
    return entry;
  }

  takeAll(): Entry[] {
    this.#keys.clear();
    this.#bytes = 0;
    return this.#entries.splice(0);
  }
}
