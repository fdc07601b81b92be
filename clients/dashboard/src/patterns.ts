// Patterns for the values of attributes, as bans and overrides have them.

import { keyChips } from "./parts.ts";
import type { Key, Matches } from "./types.ts";

/**
 * A pattern that matches this value alone. Text with `*`, `..` or a slash, or that begins with `=`,
 * would be read as a pattern; networks are patterns on purpose where the attribute is an address.
 */
export function exactly(name: string, value: string): string {
  const isAddress = name === "ip" && /^[0-9a-fA-F.:]+(\/\d+)?$/.test(value);
  return !isAddress && /[*/:]|\.\.|^=|^[\d.]+$/.test(value) ? `=${value}` : value;
}

export function exactMatch(key: Key): Matches {
  const match: Matches = {};
  for (const [name, value] of Object.entries(key)) {
    if (value !== null) match[name] = exactly(name, value);
  }
  return match;
}

/** Patterns as chips. */
export function matchChips(match: Matches): HTMLElement {
  const entries = Object.entries(match).map(([name, value]): [string, string] => [
    name,
    Array.isArray(value) ? value.join(", ") : String(value),
  ]);
  return keyChips(Object.fromEntries(entries));
}
