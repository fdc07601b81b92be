/** The lines that this client logs. */

import type { RateLimited } from "./messages.js";

/** Takes one line, without its line break. */
export type Logger = (line: string) => void;

export const consoleLogger: Logger = (line) => console.warn(line);

/** The line about a refusal, with the relay's own number, whatever is made of it. */
export function refusalLine({ reason, retryAfterMs }: RateLimited): string {
  return `Rate limited by relay: ${printable(reason)}. Retry after ${retryAfterMs}ms`;
}

/**
 * Text from outside, fit for one line of a log: control and formatting characters and line
 * separators are written as `\u{…}`, and what is longer than 256 characters is cut.
 */
export function printable(text: string): string {
  const cut = text.length > TEXT_LENGTH_MAX ? `${text.slice(0, TEXT_LENGTH_MAX)}…` : text;
  return cut.replace(UNPRINTABLE, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

const TEXT_LENGTH_MAX = 256;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
