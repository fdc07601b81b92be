/**
 * How fast to send after a denial. Pure: it receives events, and returns what to do.
 *
 * The relay acknowledges nothing: that a message was accepted shows only in that no denial comes
 * back. Waiting for that after each message would waste the round trip. So this keeps a model of
 * the relay's bucket, and sends when the model has a token, however many messages are on their way.
 *
 * A denial reveals two things:
 *
 * - The next token. The message was denied when it arrived, and the wait counts from then. A message
 *   that is sent as much later takes as long to arrive, and finds the token. So times are compared
 *   as times of sending, and the distance does not matter.
 * - The time per token: at least the wait, and, if the message before took the last token, exactly
 *   the time since that message plus the wait. The longest such sum counts. With an honest relay
 *   it is right after one or two denials, and then there are no more.
 *
 * Tokens that the relay gains while the sender waits are used at once, up to as many as it was seen
 * to accept at once.
 *
 * The network can make a sum too long. It is shortened towards the longest wait, which the network
 * cannot change, until a denial confirms it; and now and then by an eighth, because the relay may
 * grant more than before.
 */

/** What one denial reveals. */
export interface Lesson {
  /** When it arrived. */
  readonly nowMs: number;
  /** The wait that the relay requests. */
  readonly waitMs: number;
  /** The denied message, if it is known. */
  readonly message?: {
    readonly sentAtMs: number;
    /** From the message before it to this one; undefined if that one was denied, too. */
    readonly sinceLastMs: number | undefined;
    /** The messages that were sent after it; undefined if one of them was denied before it. */
    readonly after: { readonly count: number; readonly lastSentAtMs: number } | undefined;
    /** How many messages were accepted within twice the wait before it. */
    readonly together: number;
    /** Whether it was sent at this pace, or before the first denial. */
    readonly paced: boolean;
  };
}

/** A model of the relay's bucket, learned since the first denial. */
export class Pace {
  readonly #perMessageMsMax: number;
  #anyDenied = false;
  /** The time per token, as far as it is known. */
  #perMessageMs = 0;
  /** The part of it that is certain. */
  #certainMs = 0;
  /** The time per token before it was shortened. */
  #beforeMs: number | undefined;
  /** How many tokens the relay keeps, as far as it is known. */
  #burst = 1;
  /** When the next token is there, as a time of sending. */
  #nextMs = 0;
  #roundTripMs: number | undefined;
  /** Messages since the last denial, or since the pace was last changed, and when that was. */
  #quiet = 0;
  #quietSinceMs = 0;
  #quietSinceDenial = 0;

  constructor(perMessageMsMax: number) {
    this.#perMessageMsMax = perMessageMsMax;
  }

  /** Resets everything: nothing is queued any more. */
  reset(): void {
    this.#anyDenied = false;
    this.#perMessageMs = 0;
    this.#certainMs = 0;
    this.#beforeMs = undefined;
    this.#burst = 1;
    this.#nextMs = 0;
    this.#roundTripMs = undefined;
    this.#quiet = 0;
    this.#quietSinceDenial = 0;
  }

  /** When the next message may be sent. */
  get nextMs(): number {
    return this.#nextMs;
  }

  /** How long after it was sent a message is decided, as far as it is known. */
  get settleMs(): number {
    return Math.max(settledInMs(this.#roundTripMs ?? 0), SETTLE_MS_MIN);
  }

  /** The time per message. */
  get perMessageMs(): number {
    return this.#perMessageMs;
  }

  denied({ nowMs, waitMs, message }: Lesson): void {
    const sumMs = Math.min(waitMs + this.#sinceLastMs(message), this.#perMessageMsMax);
    this.#certainMs = Math.max(this.#certainMs, Math.min(waitMs, this.#perMessageMsMax));
    if (this.#beforeMs !== undefined && sumMs * HASTE >= this.#beforeMs * (HASTE - 1)) {
      // It was right before it was shortened.
      this.#certainMs = Math.max(this.#certainMs, Math.min(sumMs, this.#beforeMs));
    }
    this.#beforeMs = undefined;
    this.#perMessageMs = Math.max(this.#perMessageMs, sumMs);
    if (message === undefined) {
      this.#nextMs = Math.max(this.#nextMs, nowMs + waitMs);
    } else {
      this.#learnRoundTrip(nowMs - message.sentAtMs, message.paced);
      // Up to three tokens come in twice the wait.
      if (!this.#anyDenied) this.#burst = Math.max(1, message.together - 3);
      else if (message.paced && this.#quietSinceDenial > 0 && message.sinceLastMs === 0) {
        this.#burst = Math.ceil(this.#burst / 2);
      }
      const slackMs = Math.min(this.#roundTripMs ?? 0, SLACK_MS_MAX);
      const tokenMs = message.sentAtMs + waitMs;
      const nextMs = tokenMs + this.#takenAfter(tokenMs, message.after) * this.#perMessageMs;
      // The relay knows better than the model.
      this.#nextMs = message.after ? nextMs + slackMs : Math.max(this.#nextMs, nextMs + slackMs);
    }
    this.#anyDenied = true;
    this.#quietSinceDenial = 0;
    this.#noteChange(nowMs);
  }

  /** How many of so many messages to send now. They count as sent. */
  grant(nowMs: number, messages: number): number {
    if (!this.#anyDenied) return messages;
    // What the relay's bucket gains beyond its burst is lost.
    this.#nextMs = Math.max(this.#nextMs, nowMs - (this.#burst - 1) * this.#perMessageMs);
    if (nowMs < this.#nextMs) return 0;
    const due = Math.floor((nowMs - this.#nextMs) / this.#perMessageMs) + 1;
    const count = Math.min(due, messages);
    this.#nextMs += count * this.#perMessageMs;
    this.#quiet += count;
    this.#quietSinceDenial += count;
    this.#hasten(nowMs);
    return count;
  }

  /** So many of the last messages were not sent. */
  unsent(count: number): void {
    if (this.#anyDenied) this.#nextMs -= count * this.#perMessageMs;
  }

  /** The time since the message before, as far as it says something about the time per token. */
  #sinceLastMs(message: Lesson["message"]): number {
    if (message === undefined) return 0;
    const { paced, sinceLastMs } = message;
    // Only an accepted message can have taken the last token.
    if (sinceLastMs === undefined) return 0;
    // After a pause the relay has tokens, unless the network has moved messages together.
    return paced && sinceLastMs > this.#perMessageMs * PAUSE ? 0 : sinceLastMs;
  }

  /**
   * How many tokens may have been taken, from a time on, by messages that were sent after a denied
   * one. Each of them that is denied corrects this.
   */
  #takenAfter(tokenMs: number, after: NonNullable<Lesson["message"]>["after"]): number {
    if (after === undefined || after.lastSentAtMs < tokenMs) return 0;
    const tokens = Math.floor((after.lastSentAtMs - tokenMs) / this.#perMessageMs) + 1;
    return Math.min(tokens, after.count);
  }

  #learnRoundTrip(roundTripMs: number, paced: boolean): void {
    const known = this.#roundTripMs;
    // Of many that were sent at once, most have waited for each other: the quickest shows the
    // distance. Later ones show the current distance.
    if (!paced) this.#roundTripMs = Math.min(known ?? roundTripMs, roundTripMs);
    else if (this.#quietSinceDenial > 0) this.#roundTripMs = roundTripMs;
    else this.#roundTripMs = Math.max(known ?? roundTripMs, roundTripMs);
  }

  /** Shortens the time per message, if there has been no denial for long enough. */
  #hasten(nowMs: number): void {
    const quietMs = nowMs - this.#quietSinceMs;
    const uncertainMs = this.#perMessageMs - this.#certainMs;
    if (uncertainMs > this.#perMessageMs / UNCERTAIN) {
      if (this.#quiet < QUIET_MESSAGES || quietMs < (this.#roundTripMs ?? 0)) return;
      this.#beforeMs = this.#perMessageMs;
      this.#perMessageMs -= uncertainMs / 2;
      // If it was too long, the relay has gained tokens since.
      this.#nextMs -= (this.#quietSinceDenial * uncertainMs) / 2;
    } else {
      const enoughMs = Math.max(QUIET_ROUND_TRIPS * (this.#roundTripMs ?? 0), QUIET_MS_MIN);
      if (this.#quiet < QUIET_MESSAGES_CERTAIN || quietMs < enoughMs) return;
      this.#beforeMs = this.#perMessageMs;
      this.#perMessageMs -= this.#perMessageMs / HASTE;
      this.#certainMs = this.#perMessageMs;
    }
    this.#noteChange(nowMs);
  }

  #noteChange(nowMs: number): void {
    this.#quiet = 0;
    this.#quietSinceMs = nowMs;
  }
}

/** When everything that was sent is decided, if denials take this long to come back. */
export function settledInMs(roundTripMs: number): number {
  return Math.min(roundTripMs * ROUND_TRIPS, SETTLE_MS_MAX);
}

/** A pace is uncertain if more than this part of it is. */
const UNCERTAIN = 32;
const QUIET_MESSAGES = 4;
const QUIET_MESSAGES_CERTAIN = 64;
const QUIET_ROUND_TRIPS = 64;
const QUIET_MS_MIN = 60_000;
const HASTE = 8;
/** A message that comes so many times later than the pace has it comes after a pause. */
const PAUSE = 1.5;
/** One is how long a denial has taken so far; the next may take longer. */
const ROUND_TRIPS = 2;
/** Even next to the relay, a busy machine needs time. */
const SETTLE_MS_MIN = 10;
const SETTLE_MS_MAX = 2_000;
/** What the network may vary without a denial, where the relay's burst is not used up. */
const SLACK_MS_MAX = 25;
