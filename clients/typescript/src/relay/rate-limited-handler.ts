/** The sender's side of the relay's limit: what to do when the relay denies a message. */

import { systemClock, type Clock } from "../shared/clock.js";
import { consoleLogger, type Logger } from "../shared/log.js";
import { notify } from "../shared/notify.js";
import { readPayload, type Envelope } from "./envelope.js";
import { ClosedError, InvalidError } from "./errors.js";
import { sendLimits, type SendLimits } from "./limits.js";
import { denialLine } from "./log.js";
import { MessageType, rateLimited, type RateLimited } from "./messages.js";
import { Pace, settledInMs, type Lesson } from "./pace.js";
import { Queue } from "./queue.js";
import { keyOf, Recent, type Entry } from "./recent.js";

/** A message that this sender has accepted. */
export interface OutgoingMessage {
  readonly messageId: Uint8Array;
  /** The envelope, encoded. */
  readonly bytes: Uint8Array;
  /** How often it has been sent. */
  readonly attempts: number;
}

/** What happens to a denied message. */
export type DenialOutcome =
  /** It will be sent again. */
  | "queued"
  /** It has been sent as often as allowed, and will not be sent again. */
  | "gave-up"
  /** The message is unknown: the relay gave no id, or one that is not stored. */
  | "unknown";

/** One denial. */
export interface Denial {
  readonly reason: string;
  /** The wait that the relay requests. */
  readonly retryAfterMs: bigint;
  /** How long this sender waits because of it. */
  readonly waitMs: number;
  /** The denied message's id; empty if the relay gave none. */
  readonly messageId: Uint8Array;
  readonly outcome: DenialOutcome;
}

/** The functions that a handler calls. */
export interface RateLimitedHandlerOptions {
  /** Passes bytes to the socket. May throw; then nothing has been sent. */
  readonly transmit: (bytes: Uint8Array) => void;
  readonly limits?: Partial<SendLimits>;
  readonly logger?: Logger;
  readonly clock?: Clock;
  readonly onRateLimited?: (denial: Denial) => void;
  /** A message is given up: it was denied as often as allowed. */
  readonly onGaveUp?: (message: OutgoingMessage) => void;
  /** `transmit` failed for a queued message. It stays queued for the next turn. */
  readonly onTransmitError?: (error: unknown) => void;
}

/** What a handler still had when it was stopped, in the order of sending. */
export interface Leftovers {
  /** Denied, or never sent. */
  readonly unsent: OutgoingMessage[];
  /** Sent recently, and not denied so far. Most of them will have arrived. */
  readonly uncertain: OutgoingMessage[];
}

/**
 * Sends messages, and sends them again when the relay denies them.
 *
 * While it backs off, new messages queue behind the denied ones, so that all of them are sent in
 * the order of `send`, at the pace that the relay grants. Messages that were already on their way
 * behind a denied one may still overtake it. The same bytes are sent again, with the same message
 * id.
 *
 * Nothing is sent that could not be sent again: without room to store one more message, new ones
 * are queued as well.
 */
export class RateLimitedHandler {
  readonly #options: RateLimitedHandlerOptions;
  readonly #limits: SendLimits;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #pace: Pace;
  readonly #recent: Recent;
  /** The queued messages, in order. While something is queued, a timer runs. */
  readonly #queue: Queue;
  #order = 0;
  #transmissions = 0;
  /** The newest transmission that was denied. */
  #newestDenied = 0;
  #lastSentAtMs: number | undefined;
  /** Nothing is sent before this time, whatever the pace: the relay's last wait. */
  #notBeforeMs = 0;
  /** Nor before this time: by then, everything that was sent is decided. */
  #settledAtMs = 0;
  /** When there is room to store another message, if there is none. */
  #roomAtMs: number | undefined;
  /** Runs while messages are queued, or may still be denied. */
  #timer: { readonly dueMs: number; readonly cancel: () => void } | undefined;
  #stopped = false;
  #idle: { resolve: () => void; reject: (error: Error) => void }[] = [];

  constructor(options: RateLimitedHandlerOptions) {
    this.#options = options;
    this.#limits = sendLimits(options.limits);
    this.#clock = options.clock ?? systemClock;
    this.#log = options.logger ?? consoleLogger;
    this.#pace = new Pace(this.#limits.waitMsMax);
    this.#recent = new Recent({
      messagesMax: this.#limits.recentMessagesMax,
      bytesMax: this.#limits.recentBytesMax,
      ageMsMin: this.#limits.recentMsMin,
      ageMsMax: this.#limits.recentMsMax,
    });
    this.#queue = new Queue({
      messagesMax: this.#limits.queueMessagesMax,
      bytesMax: this.#limits.queueBytesMax,
    });
  }

  /** How many messages are queued. */
  get waiting(): number {
    return this.#queue.length;
  }

  /** Whether new messages are queued instead of sent at once. */
  get backingOff(): boolean {
    return this.#timer !== undefined;
  }

  /**
   * Sends an encoded envelope, now or in its turn.
   *
   * Throws a `QueueFullError` when too much is queued, an `InvalidError` for an id that is empty or
   * that of a queued or stored message, a `ClosedError` after `stop`, and whatever `transmit`
   * throws; in all these cases the message was not accepted.
   */
  send(messageId: Uint8Array, bytes: Uint8Array): "sent" | "queued" {
    if (this.#stopped) throw new ClosedError("this sender was stopped", 1000);
    const nowMs = this.#clock.monotonicMs();
    const roomInMs = this.#recent.makeRoom(1, bytes.length, nowMs);
    const entry = this.#newEntry(messageId, bytes);
    if (!this.backingOff && roomInMs === 0) {
      this.#transmit(entry, false);
      return "sent";
    }
    this.#queue.checkRoom(bytes.length);
    this.#queue.insert(entry);
    if (!this.backingOff) this.#roomAtMs = nowMs + roomInMs;
    this.#schedule();
    return "queued";
  }

  /**
   * Handles an envelope if it is the relay's denial, and returns whether it was. Throws a
   * `WireError` if it is one and malformed.
   *
   * One with a recipient came from another client, through the relay. Obeying it would let any
   * client silence this one, so it is ignored.
   */
  handle(envelope: Envelope): boolean {
    if (envelope.type !== MessageType.RATE_LIMITED || envelope.toAddress !== "") return false;
    const limited = readPayload(envelope, rateLimited) ?? { retryAfterMs: 0n, reason: "" };
    if (!this.#stopped) this.#denied(limited, envelope.messageId);
    return true;
  }

  /**
   * Resolves as soon as nothing is queued; rejects with a `ClosedError` when the handler is
   * stopped.
   */
  idle(): Promise<void> {
    if (this.#stopped) return Promise.reject(new ClosedError("this sender was stopped", 1000));
    if (!this.backingOff) return Promise.resolve();
    return new Promise((resolve, reject) => this.#idle.push({ resolve, reject }));
  }

  /** Sends nothing more, and returns what is left. A second call returns nothing. */
  stop(): Leftovers {
    this.#stopped = true;
    this.#timer?.cancel();
    this.#timer = undefined;
    const idle = this.#idle.splice(0);
    for (const { reject } of idle) reject(new ClosedError("this sender was stopped", 1000));
    const uncertain = this.#recent.takeAll(this.#clock.monotonicMs());
    uncertain.sort((a, b) => a.order - b.order);
    return { unsent: this.#queue.takeAll(), uncertain };
  }

  #newEntry(messageId: Uint8Array, bytes: Uint8Array): Entry {
    if (messageId.length === 0) throw new InvalidError("a message needs an id");
    const key = keyOf(messageId);
    if (this.#queue.has(key) || this.#recent.has(key)) {
      // A denial contains only the id: of two with the same, one would be lost.
      throw new InvalidError("the id is that of a message that is queued or was sent recently");
    }
    const { recentBytesMax } = this.#limits;
    if (bytes.length > recentBytesMax) {
      const size = `the message has ${bytes.length} bytes`;
      throw new InvalidError(`${size}, the maximum is ${recentBytesMax}`);
    }
    return {
      order: this.#order++,
      messageId: messageId.slice(),
      key,
      bytes,
      attempts: 0,
      sentAtMs: 0,
      sinceLastMs: 0,
      transmission: 0,
      paced: false,
    };
  }

  #denied(limited: RateLimited, messageId: Uint8Array): void {
    const nowMs = this.#clock.monotonicMs();
    const entry = this.#recent.take(keyOf(messageId));
    const waitMs = this.#waitMs(limited.retryAfterMs, entry?.attempts ?? 1);
    this.#pace.denied({ nowMs, waitMs, ...(entry && { message: this.#lessonOf(entry, waitMs) }) });
    let outcome: DenialOutcome = "unknown";
    if (entry !== undefined) {
      outcome = entry.attempts < this.#limits.attemptsMax ? "queued" : "gave-up";
      // Also when the queue is full: it was accepted, so it is not dropped. There are at most as
      // many of these as stored messages.
      if (outcome === "queued") this.#queue.insert(entry);
    }
    // A denied message has freed some room, and every turn checks.
    this.#roomAtMs = undefined;
    this.#notBeforeMs = Math.max(this.#notBeforeMs, nowMs + waitMs);
    if (entry !== undefined) this.#settle(entry, nowMs);
    this.#schedule();
    notify(() => this.#log(denialLine(limited)));
    notify(() => this.#options.onRateLimited?.({ ...limited, waitMs, messageId, outcome }));
    if (entry !== undefined && outcome === "gave-up") notify(() => this.#options.onGaveUp?.(entry));
  }

  /** All that was sent after a denied message is decided first, so that none of it is overtaken. */
  #settle({ paced, sentAtMs, transmission }: Entry, nowMs: number): void {
    const decidedInMs = paced ? this.#pace.settleMs : settledInMs(nowMs - sentAtMs);
    const lastSentAtMs = this.#lastSentAtMs ?? sentAtMs;
    this.#settledAtMs = Math.max(this.#settledAtMs, lastSentAtMs + decidedInMs);
    // It was the last one. Denials come in the order of the messages, so there are no others.
    if (transmission === this.#transmissions) this.#settledAtMs = 0;
  }

  /** What the denial of a sent message reveals. */
  #lessonOf(entry: Entry, waitMs: number): NonNullable<Lesson["message"]> {
    const { sentAtMs, sinceLastMs, transmission, paced } = entry;
    const isNewest = transmission > this.#newestDenied;
    const isAlone = transmission !== this.#newestDenied + 1 || transmission === 1;
    if (isNewest) this.#newestDenied = transmission;
    return {
      sentAtMs,
      sinceLastMs: isAlone ? sinceLastMs : undefined,
      after: isNewest
        ? { count: this.#transmissions - transmission, lastSentAtMs: this.#lastSentAtMs ?? 0 }
        : undefined,
      together: this.backingOff ? 0 : this.#recent.countSent(sentAtMs - 2 * waitMs, transmission),
      paced,
    };
  }

  /**
   * The relay's wait within the limits; doubled with every attempt if waiting that long does not
   * help.
   */
  #waitMs(retryAfterMs: bigint, attempts: number): number {
    const { waitMsMin, waitMsMax } = this.#limits;
    const requested = retryAfterMs > BigInt(waitMsMax) ? waitMsMax : Number(retryAfterMs);
    const doublings = Math.max(0, Math.min(attempts, ATTEMPTS_COUNTED) - ATTEMPTS_TRUSTED);
    return Math.min(Math.max(requested, waitMsMin) * 2 ** doublings, waitMsMax);
  }

  /** Sets the timer for the next turn. */
  #schedule(): void {
    const dueMs = this.#dueMs();
    if (this.#timer?.dueMs === dueMs) return;
    this.#timer?.cancel();
    const delayMs = Math.max(0, dueMs - this.#clock.monotonicMs());
    this.#timer = { dueMs, cancel: this.#clock.after(delayMs, () => this.#turn()) };
  }

  /** When to send the next message; if none is queued, when all that were sent are decided. */
  #dueMs(): number {
    const paceMs = Math.max(this.#notBeforeMs, this.#settledAtMs, this.#pace.nextMs);
    if (this.#queue.length > 0) return Math.max(paceMs, this.#roomAtMs ?? 0);
    return Math.max(paceMs, (this.#lastSentAtMs ?? 0) + this.#pace.settleMs);
  }

  /** Sends what is due, or ends the back-off if nothing is queued. */
  #turn(): void {
    this.#timer = undefined;
    this.#roomAtMs = undefined;
    const { first } = this.#queue;
    if (first === undefined) {
      this.#pace.reset();
      this.#notBeforeMs = 0;
      this.#settledAtMs = 0;
      for (const { resolve } of this.#idle.splice(0)) resolve();
      return;
    }
    const nowMs = this.#clock.monotonicMs();
    const roomInMs = this.#recent.makeRoom(1, first.bytes.length, nowMs);
    if (roomInMs > 0) this.#roomAtMs = nowMs + roomInMs;
    else this.#sendDue(nowMs);
    this.#schedule();
  }

  /** Sends the queued messages that are due, or as many as there is room to store. */
  #sendDue(nowMs: number): void {
    const count = this.#pace.grant(nowMs, this.#queue.length);
    const due: Entry[] = [];
    let bytes = 0;
    for (let next = this.#queue.first; next !== undefined; next = this.#queue.first) {
      if (due.length === count) break;
      bytes += next.bytes.length;
      if (this.#recent.makeRoom(due.length + 1, bytes, nowMs) > 0) break;
      this.#queue.shift();
      due.push(next);
    }
    // A message that is sent by a callback of `transmit` has to queue.
    this.#timer = { dueMs: Infinity, cancel: () => {} };
    let sent = 0;
    try {
      for (const entry of due) {
        this.#transmit(entry, true);
        sent++;
      }
    } catch (error) {
      for (const entry of due.slice(sent)) this.#queue.insert(entry);
      this.#notBeforeMs = nowMs + Math.max(this.#pace.perMessageMs, this.#limits.waitMsMin);
      notify(() => this.#options.onTransmitError?.(error));
    } finally {
      this.#timer = undefined;
      this.#pace.unsent(count - sent);
    }
  }

  #transmit(entry: Entry, paced: boolean): void {
    const nowMs = this.#clock.monotonicMs();
    const sinceLastMs = nowMs - (this.#lastSentAtMs ?? nowMs);
    const transmission = this.#transmissions + 1;
    this.#recent.add({
      ...entry,
      attempts: entry.attempts + 1,
      sentAtMs: nowMs,
      sinceLastMs,
      transmission,
      paced,
    });
    try {
      this.#options.transmit(entry.bytes);
    } catch (error) {
      this.#recent.take(entry.key);
      throw error;
    }
    this.#lastSentAtMs = nowMs;
    this.#transmissions = transmission;
  }
}

/** How often the same message may be denied before the relay's waits are considered too short. */
const ATTEMPTS_TRUSTED = 2;
const ATTEMPTS_COUNTED = 20;
