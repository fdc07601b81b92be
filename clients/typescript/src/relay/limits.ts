/** The bounds of a sender. */

import { InvalidError } from "./errors.js";

/** How much a sender keeps, how long it waits, and how often it tries. */
export interface SendLimits {
  /** New messages that may wait for their turn. */
  readonly queueMessagesMax: number;
  readonly queueBytesMax: number;
  /** Sent messages that are remembered in case the relay refuses them. Without room, new ones wait. */
  readonly recentMessagesMax: number;
  readonly recentBytesMax: number;
  /**
   * For how long they are remembered, in milliseconds: at least as long as a refusal can take to come
   * back, and at most, when their room is not needed.
   */
  readonly recentMsMin: number;
  readonly recentMsMax: number;
  /** How often one message is sent at most, the first time included. */
  readonly attemptsMax: number;
  /** The shortest and the longest wait, in milliseconds, whatever the relay asks for. */
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

/** The defaults with what is given instead. Throws an `InvalidError` that names what is wrong. */
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

/** The value, if it is a positive integer that a timer can take. */
export function positiveInteger(name: string, value: number): number {
  if (!Number.isInteger(value) || value < 1 || value > TIMER_MS_MAX) {
    throw new InvalidError(`${name} is ${value}, not an integer from 1 to ${TIMER_MS_MAX}`);
  }
  return value;
}

/** Timers of JavaScript count in 31 bits; a few are kept for rounding. */
const TIMER_MS_MAX = 0x7fff_fff0;
