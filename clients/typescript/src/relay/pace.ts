/**
 * How fast to send again after a denial. Pure: it receives events, and returns what to do.
 *
 * The relay acknowledges nothing: that a message was accepted shows only in that no denial comes
 * back. So messages are sent in rounds, and the pause after a round is long enough for a denial to
 * come back. If a part of a round is denied, it is the end of it: nothing is sent behind it that
 * could overtake it. Only where the relay's bucket gains a token within the round, the next message
 * of the same round may.
 *
 * The pause is at least the time in which the relay grants one message, as far as that is known:
 * the longest time between a denied message and the one before it, plus the wait that the relay
 * requested. With an honest relay this is exact after one or two denials, and then there are no
 * more.
 *
 * A round is one message, unless the relay grants more in the time that a denial takes to come
 * back. Then rounds grow one by one, and are halved by a denial. This costs a fast relay far away
 * some of its speed, but keeps the rounds in order.
 *
 * The time of a denial is that of the last round that was denied. Before the first one, it is that
 * of the quickest of all that were sent at once.
 */

/** What one denial reveals. */
export interface Lesson {
  /** The wait that the relay requests. */
  readonly waitMs: number;
  /** The denied message, if it is known. */
  readonly message?: {
    /** From the message before it to this one. */
    readonly sinceLastMs: number;
    /** From sending it to its denial. */
    readonly roundTripMs: number;
    /** Whether it was sent in a round, or before the first denial. */
    readonly inRound: boolean;
  };
}

/** This many messages now, then a pause. */
export interface Round {
  /** Infinite if nothing has been denied: then there is no pace to keep. */
  readonly count: number;
  readonly pauseMs: number;
}

/** The pace learned since the first denial. */
export class Pace {
  readonly #pauseMsMax: number;
  #anyDenied = false;
  #perMessageMs = 0;
  #settleMs: number | undefined;
  #count = 1;
  /** Rounds since the last denial. */
  #quiet = 0;

  constructor(pauseMsMax: number) {
    this.#pauseMsMax = pauseMsMax;
  }

  /** Resets everything: nothing is queued any more. */
  reset(): void {
    this.#anyDenied = false;
    this.#perMessageMs = 0;
    this.#settleMs = undefined;
    this.#count = 1;
    this.#quiet = 0;
  }

  denied({ waitMs, message }: Lesson): void {
    this.#anyDenied = true;
    const perMessageMs = waitMs + (message?.sinceLastMs ?? 0);
    this.#perMessageMs = Math.min(Math.max(this.#perMessageMs, perMessageMs), this.#pauseMsMax);
    if (message !== undefined) this.#learnSettle(message.roundTripMs, message.inRound);
    // A whole round may be denied, one by one. It is halved once.
    if (this.#quiet > 0) this.#count = Math.ceil(this.#count / 2);
    this.#quiet = 0;
  }

  #learnSettle(roundTripMs: number, inRound: boolean): void {
    const settleMs = Math.max(settledInMs(roundTripMs), SETTLE_MS_MIN);
    const known = this.#settleMs;
    // Of many that were sent at once, most have waited for each other: the quickest shows the
    // distance. A round is small, and shows the current distance.
    if (!inRound) this.#settleMs = Math.min(known ?? settleMs, settleMs);
    else if (this.#quiet > 0) this.#settleMs = settleMs;
    else this.#settleMs = Math.max(known ?? settleMs, settleMs);
  }

  /** What to send now. Call it when the pause of the previous round is over. */
  round(): Round {
    if (!this.#anyDenied) return { count: Infinity, pauseMs: 0 };
    if (this.#quiet >= QUIET_ROUNDS) {
      // A hiccup of the network looks like a slow relay. It must not last forever.
      this.#perMessageMs -= this.#perMessageMs / HASTE;
      this.#quiet = 1;
    }
    const settleMs = this.#settleMs ?? 0;
    if (settleMs <= this.#perMessageMs) this.#count = 1;
    else if (this.#quiet > 0) this.#count++;
    this.#quiet++;
    return { count: this.#count, pauseMs: Math.max(this.#perMessageMs, settleMs) };
  }

  /** The last round was cut short, to at least one message. Rounds grow from the tried count. */
  cut(count: number): void {
    if (this.#anyDenied) this.#count = count;
  }
}

/** When everything that was sent is decided, if denials take this long to come back. */
export function settledInMs(roundTripMs: number): number {
  return Math.min(roundTripMs * ROUND_TRIPS, SETTLE_MS_MAX);
}

const QUIET_ROUNDS = 32;
const HASTE = 8;
/** One is how long a denial has taken so far; the next may take longer. */
const ROUND_TRIPS = 2;
/** Even next to the relay, a busy machine needs time. */
const SETTLE_MS_MIN = 10;
const SETTLE_MS_MAX = 2_000;
