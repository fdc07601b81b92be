/**
 * How fast to send again after a refusal. Pure: it is told what happened, and says what to do.
 *
 * The relay acknowledges nothing: that a message went through shows only in that no refusal comes back.
 * So messages go out in rounds, one message each, with a pause in between.
 *
 * The pause is the time in which the relay grants one message, as far as that is known: the longest that
 * lay between a refused message and the one before it, plus the wait that the relay asked for. With an
 * honest relay this is exact after one or two refusals, and then there are no more.
 *
 * Until then the pause is also long enough for a refusal to come back, so that no later message can
 * overtake a refused one. Where that takes longer than the relay's pace, a round has 1, 2, 4, …
 * messages, or a fast relay far away would be used like a slow one.
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
    /** Whether it was sent in a round, rather than before the first refusal. */
    readonly inRound: boolean;
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
  #learning = true;
  #perMessageMs = 0;
  #roundTripMs = 0;
  #count = 1;
  /** Rounds since the last refusal. */
  #quiet = 0;

  constructor(pauseMsMax: number) {
    this.#pauseMsMax = pauseMsMax;
  }

  /** Forgets everything: nothing waits any more. */
  reset(): void {
    this.#learning = true;
    this.#perMessageMs = 0;
    this.#roundTripMs = 0;
    this.#count = 1;
    this.#quiet = 0;
  }

  refused({ waitMs, message }: Lesson): void {
    const perMessageMs = waitMs + (message?.sinceLastMs ?? 0);
    this.#perMessageMs = Math.min(Math.max(this.#perMessageMs, perMessageMs), this.#pauseMsMax);
    this.#roundTripMs = Math.max(this.#roundTripMs, message?.roundTripMs ?? 0);
    if (message?.inRound) this.#learning = false;
    this.#count = 1;
    this.#quiet = 0;
  }

  /** What to send now. To be called when the pause of the round before is over. */
  round(): Round {
    if (this.#quiet > 0 && this.#settleMs() > this.#perMessageMs) {
      this.#count = Math.min(this.#count * 2, COUNT_MAX);
    }
    if (!this.#learning && this.#quiet >= QUIET_ROUNDS) {
      // A hiccup on the way looks like a slow relay. It must not be remembered for ever.
      this.#perMessageMs -= this.#perMessageMs / HASTE;
      this.#quiet = 0;
    }
    this.#quiet++;
    return { count: this.#count, pauseMs: Math.max(this.#perMessageMs, this.#settleMs()) };
  }

  /** How long to wait for a refusal that may be on its way. */
  #settleMs(): number {
    return this.#learning ? Math.min(this.#roundTripMs * ROUND_TRIPS, SETTLE_MS_MAX) : 0;
  }
}

const COUNT_MAX = 1_024;
const QUIET_ROUNDS = 32;
const HASTE = 8;
const ROUND_TRIPS = 2;
const SETTLE_MS_MAX = 2_000;
