/** Lines for a log, and what may stand in them. */

/** Takes one line, without its line break. */
export type Logger = (line: string) => void;

export const consoleLogger: Logger = (line) => console.warn(line);

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
