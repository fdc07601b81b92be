/** Received messages on their way to listeners. */

import { notify } from "../shared/notify.js";
import type { Envelope } from "./envelope.js";
import { InboxFullError } from "./errors.js";

/**
 * Called with every message. An error that it throws affects no other listener, and is not caught.
 */
export type MessageListener = (message: Envelope) => void;

/** The bounds of messages that are not read. */
export interface InboxLimits {
  readonly messagesMax: number;
  readonly bytesMax: number;
}

/**
 * Delivers messages. Without a listener they are stored for the first one, up to the limits; the
 * loss beyond that is reported once per overflow.
 */
export class Inbox {
  readonly #limits: InboxLimits;
  readonly #lost: (error: InboxFullError) => void;
  readonly #listeners = new Set<(message: Envelope, bytes: number) => void>();
  readonly #held: Backlog;
  readonly #iterators = new Set<MessageIterator>();
  #ended = false;

  constructor(limits: InboxLimits, lost: (error: InboxFullError) => void) {
    this.#limits = limits;
    this.#lost = lost;
    this.#held = new Backlog(limits, lost);
  }

  deliver(message: Envelope, bytes: number): void {
    // Stored messages go first, also if there is a listener by now.
    if (this.#listeners.size === 0 || !this.#held.empty) this.#held.push(message, bytes);
    else this.#pass(message, bytes);
  }

  listen(listener: (message: Envelope, bytes: number) => void): () => void {
    // A listener that is added twice is called twice, and removed once at a time.
    const own = (message: Envelope, bytes: number): void => listener(message, bytes);
    this.#listeners.add(own);
    // Not before the caller has the function that removes the listener.
    if (!this.#held.empty) queueMicrotask(() => this.#release());
    return () => this.#listeners.delete(own);
  }

  iterate(): AsyncIterableIterator<Envelope> {
    const backlog = new Backlog(this.#limits, this.#lost);
    const iterator: MessageIterator = new MessageIterator(backlog, () => {
      stop();
      this.#iterators.delete(iterator);
    });
    const stop = this.listen((message, bytes) => iterator.push(message, bytes));
    this.#iterators.add(iterator);
    if (this.#ended) queueMicrotask(() => iterator.end());
    return iterator;
  }

  /** No more messages come. Iterators end after what they still have. */
  end(): void {
    this.#ended = true;
    for (const iterator of this.#iterators) iterator.end();
  }

  #release(): void {
    while (this.#listeners.size > 0) {
      const held = this.#held.shift();
      if (held === undefined) return;
      this.#pass(held.message, held.bytes);
    }
  }

  #pass(message: Envelope, bytes: number): void {
    for (const listener of [...this.#listeners]) {
      notify(() => listener(message, bytes));
    }
  }
}

interface Held {
  readonly message: Envelope;
  readonly bytes: number;
}

/** A bounded queue that reports when it begins to lose messages. */
class Backlog {
  readonly #limits: InboxLimits;
  readonly #lost: (error: InboxFullError) => void;
  readonly #items: Held[] = [];
  #bytes = 0;
  #overflowing = false;

  constructor(limits: InboxLimits, lost: (error: InboxFullError) => void) {
    this.#limits = limits;
    this.#lost = lost;
  }

  get empty(): boolean {
    return this.#items.length === 0;
  }

  push(message: Envelope, bytes: number): void {
    const { messagesMax, bytesMax } = this.#limits;
    if (this.#items.length < messagesMax && this.#bytes + bytes <= bytesMax) {
      this.#items.push({ message, bytes });
      this.#bytes += bytes;
    } else if (!this.#overflowing) {
      this.#overflowing = true;
      const kept = `${this.#items.length} received messages (${this.#bytes} bytes)`;
      this.#lost(new InboxFullError(`${kept} are not read yet; new ones are lost`));
    }
  }

  shift(): Held | undefined {
    const item = this.#items.shift();
    if (item === undefined) return undefined;
    this.#bytes -= item.bytes;
    this.#overflowing = false;
    return item;
  }
}

class MessageIterator implements AsyncIterableIterator<Envelope> {
  readonly #backlog: Backlog;
  readonly #stop: () => void;
  readonly #waiting: ((result: IteratorResult<Envelope>) => void)[] = [];
  #ended = false;

  constructor(backlog: Backlog, stop: () => void) {
    this.#backlog = backlog;
    this.#stop = stop;
  }

  push(message: Envelope, bytes: number): void {
    const next = this.#waiting.shift();
    if (next !== undefined) next({ done: false, value: message });
    else this.#backlog.push(message, bytes);
  }

  end(): void {
    this.#ended = true;
    this.#stop();
    for (const next of this.#waiting.splice(0)) next({ done: true, value: undefined });
  }

  next(): Promise<IteratorResult<Envelope>> {
    const held = this.#backlog.shift();
    if (held !== undefined) return Promise.resolve({ done: false, value: held.message });
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return(): Promise<IteratorResult<Envelope>> {
    this.end();
    while (this.#backlog.shift() !== undefined);
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
