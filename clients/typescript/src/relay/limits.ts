/** The bounds of a sender. */

import { InvalidError } from "./errors.js";

/** How much a sender stores, how long it waits, and how often it tries. */
export interface SendLimits {
  /** New messages that may be queued. */
  readonly queueMessagesMax: number;
  readonly queueBytesMax: number;
  /**
   * Sent messages that are stored in case the relay denies them. Without room, new ones are queued.
   */
  readonly recentMessagesMax: number;
  readonly recentBytesMax: number;
  /**
   * For how long they are stored, in milliseconds: at least as long as a denial can take to arrive,
   * and at most, when their room is not needed.
   */
  readonly recentMsMin: number;
  readonly recentMsMax: number;
  /** How often one message is sent at most, including the first time. */
  readonly attemptsMax: number;
  /** The shortest and the longest wait, in milliseconds, whatever the relay requests. */
  readonly waitMsMin: number;
  readonly waitMsMax: number;
}

export const defaultSendLimits: SendLimits = Object.freeze({
  queueMessagesMax: 1_024,
  queueBytesMax: 4 * 1_024 * 1_024,
  recentMessagesMax: 32_768,
  recentBytesMax: 16 * 1_024 * 1_024,
  recentMsMin: 10_000,
  recentMsMax: 60_000,
  attemptsMax: 10,
  waitMsMin: 1,
  waitMsMax: 60_000,
});

/** The defaults with the given values. Throws an `InvalidError` that names an invalid one. */
export function sendLimits(given: Partial<SendLimits> = {}): SendLimits {
  const limits = { ...defaultSendLimits, ...given };
  for (const [name, value] of Object.entries(limits)) positiveInteger(name, value);
  notAbove(limits, "waitMsMin", "waitMsMax");
  notAbove(limits, "recentMsMin", "recentMsMax");
  return limits;
}

function notAbove(limits: SendLimits, min: keyof SendLimits, max: keyof SendLimits): void {
  if (limits[min] <= limits[max]) return;
  throw new InvalidError(`${min} (${limits[min]}) is above ${max} (${limits[max]})`);
}

/** The value, if it is a positive integer within the range of timers. */
export function positiveInteger(name: string, value: number): number {
  if (!Number.isInteger(value) || value < 1 || value > TIMER_MS_MAX) {
    throw new InvalidError(`${name} is ${value}, not an integer from 1 to ${TIMER_MS_MAX}`);
  }
  return value;
}

/** Timers of JavaScript count in 31 bits; a few are kept for rounding. */
const TIMER_MS_MAX = 0x7fff_fff0;
