/**
 * How fast to send again after a refusal. Pure: it is told what happened, and says what to do.
 *
 * The relay acknowledges nothing: that a message went through shows only in that no refusal comes back.
 * So messages go out in rounds, and the pause after a round is long enough for a refusal to come back.
 * If some of a round is refused, it is the end: nothing is sent behind it that could overtake it. Only
 * where the relay's bucket gains a token within the round, the next message of the same round may.
 *
 * The pause is at least the time in which the relay grants one message, as far as that is known: the
 * longest that lay between a refused message and the one before it, plus the wait that the relay asked
 * for. With an honest relay this is exact after one or two refusals, and then there are no more.
 *
 * A round is one message, unless the relay grants more in the time that a refusal takes to come back.
 * Then rounds grow one by one, and are halved by a refusal. This costs a fast relay far away some of its
 * speed, but keeps the rounds in order.
 *
 * How long a refusal takes is what it took for the last round that was refused. Before there is one, it is
 * what the quickest took of all that were sent at once.
 */

/** What there is to learn from one refusal. */
export interface Lesson {
  /** How long the relay asks to wait. */
  readonly waitMs: number;
  /** About the refused message, if it is known. */
  readonly message?: {
    /** From the message before it to this one. */
    readonly sinceLastMs: number;
    /** From sending it to being told. */
    readonly roundTripMs: number;
    /** Whether it was sent in a round, or with whatever else there was before the first refusal. */
    readonly inRound: boolean;
  };
}

/** So many messages now, then a pause. */
export interface Round {
  /** Infinite if nothing has been refused: then there is no pace to keep. */
  readonly count: number;
  readonly pauseMs: number;
}

/** What has been learned since the first refusal. */
export class Pace {
  readonly #pauseMsMax: number;
  #anyRefused = false;
  #perMessageMs = 0;
  #settleMs: number | undefined;
  #count = 1;
  /** Rounds since the last refusal. */
  #quiet = 0;

  constructor(pauseMsMax: number) {
    this.#pauseMsMax = pauseMsMax;
  }

  /** Forgets everything: nothing waits any more. */
  reset(): void {
    this.#anyRefused = false;
    this.#perMessageMs = 0;
    this.#settleMs = undefined;
    this.#count = 1;
    this.#quiet = 0;
  }

  refused({ waitMs, message }: Lesson): void {
    this.#anyRefused = true;
    const perMessageMs = waitMs + (message?.sinceLastMs ?? 0);
    this.#perMessageMs = Math.min(Math.max(this.#perMessageMs, perMessageMs), this.#pauseMsMax);
    if (message !== undefined) this.#learnSettle(message.roundTripMs, message.inRound);
    // A whole round may be refused, one by one. It is halved once.
    if (this.#quiet > 0) this.#count = Math.ceil(this.#count / 2);
    this.#quiet = 0;
  }

  #learnSettle(roundTripMs: number, inRound: boolean): void {
    const settleMs = Math.max(settledInMs(roundTripMs), SETTLE_MS_MIN);
    const known = this.#settleMs;
    // Of many that were sent at once, most have waited for each other: the quickest tells the distance.
    // A round is small, and tells how far it is now.
    if (!inRound) this.#settleMs = Math.min(known ?? settleMs, settleMs);
    else if (this.#quiet > 0) this.#settleMs = settleMs;
    else this.#settleMs = Math.max(known ?? settleMs, settleMs);
  }

  /** What to send now. To be called when the pause of the round before is over. */
  round(): Round {
    if (!this.#anyRefused) return { count: Infinity, pauseMs: 0 };
    if (this.#quiet >= QUIET_ROUNDS) {
      // A hiccup on the way looks like a slow relay. It must not be remembered for ever.
      this.#perMessageMs -= this.#perMessageMs / HASTE;
      this.#quiet = 1;
    }
    const settleMs = this.#settleMs ?? 0;
    if (settleMs <= this.#perMessageMs) this.#count = 1;
    else if (this.#quiet > 0) this.#count++;
    this.#quiet++;
    return { count: this.#count, pauseMs: Math.max(this.#perMessageMs, settleMs) };
  }

  /** The last round was cut short, to at least one message. Rounds grow from what was tried. */
  cut(count: number): void {
    if (this.#anyRefused) this.#count = count;
  }
}

/** When whatever was sent is decided, if refusals take so long to come back. */
export function settledInMs(roundTripMs: number): number {
  return Math.min(roundTripMs * ROUND_TRIPS, SETTLE_MS_MAX);
}

const QUIET_ROUNDS = 32;
const HASTE = 8;
/** One is how long a refusal has taken to come back so far; the next may take longer. */
const ROUND_TRIPS = 2;
/** Also next to the relay, a busy machine takes its time. */
const SETTLE_MS_MIN = 10;
const SETTLE_MS_MAX = 2_000;
