/** Log lines and their escaping. */

/** Writes one line, given without its line break. */
export type Logger = (line: string) => void;

export const consoleLogger: Logger = (line) => console.warn(line);

/**
 * Text from outside, escaped for one log line: control and formatting characters and line
 * separators become `\u{…}`, and text longer than 256 characters is cut.
 */
export function printable(text: string): string {
  const cut = text.length > TEXT_LENGTH_MAX ? `${text.slice(0, TEXT_LENGTH_MAX)}…` : text;
  return cut.replace(UNPRINTABLE, (character) => {
    return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
  });
}

const TEXT_LENGTH_MAX = 256;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
