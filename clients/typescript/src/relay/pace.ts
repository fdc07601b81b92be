/**
 * How fast to send again after a refusal. Pure: it is told what happened, and says what to do.
 *
 * The relay acknowledges nothing: that a message went through shows only in that no refusal comes back.
 * So messages go out in rounds, and the pause after a round is long enough for a refusal to come back.
 * Whatever a round is refused, its end is: nothing is sent behind it that could overtake it.
 *
 * The pause is at least the time in which the relay grants one message, as far as that is known: the
 * longest that lay between a refused message and the one before it, plus the wait that the relay asked
 * for. With an honest relay this is exact after one or two refusals, and then there are no more.
 *
 * A round is one message, unless the relay grants more in the time that a refusal takes to come back.
 * Then rounds grow one by one, and are halved by a refusal. This costs a fast relay far away some of its
 * speed, but no message its place.
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
  };
}

/** So many messages now, then a pause. */
export interface Round {
  readonly count: number;
  readonly pauseMs: number;
}

/** What has been learned since the first refusal. */
export class Pace {
  readonly #pauseMsMax: number;
  #perMessageMs = 0;
  #settleMs = 0;
  #count = 1;
  /** Rounds since the last refusal. */
  #quiet = 0;

  constructor(pauseMsMax: number) {
    this.#pauseMsMax = pauseMsMax;
  }

  /** Forgets everything: nothing waits any more. */
  reset(): void {
    this.#perMessageMs = 0;
    this.#settleMs = 0;
    this.#count = 1;
    this.#quiet = 0;
  }

  refused({ waitMs, message }: Lesson): void {
    const perMessageMs = waitMs + (message?.sinceLastMs ?? 0);
    this.#perMessageMs = Math.min(Math.max(this.#perMessageMs, perMessageMs), this.#pauseMsMax);
    const settleMs = (message?.roundTripMs ?? 0) * ROUND_TRIPS;
    this.#settleMs = Math.min(Math.max(this.#settleMs, settleMs), SETTLE_MS_MAX);
    // A whole round may be refused, one by one. It is halved once.
    if (this.#quiet > 0) this.#count = Math.ceil(this.#count / 2);
    this.#quiet = 0;
  }

  /** What to send now. To be called when the pause of the round before is over. */
  round(): Round {
    if (this.#quiet >= QUIET_ROUNDS) {
      // A hiccup on the way looks like a slow relay. It must not be remembered for ever.
      this.#perMessageMs -= this.#perMessageMs / HASTE;
      this.#quiet = 1;
    }
    if (this.#settleMs <= this.#perMessageMs) this.#count = 1;
    else if (this.#quiet > 0) this.#count++;
    this.#quiet++;
    return { count: this.#count, pauseMs: Math.max(this.#perMessageMs, this.#settleMs) };
  }
}

const QUIET_ROUNDS = 32;
const HASTE = 8;
/** One is how long a refusal has taken to come back so far; the next may take longer. */
const ROUND_TRIPS = 2;
const SETTLE_MS_MAX = 2_000;
