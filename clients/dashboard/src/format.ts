// Numbers, times and foreign text as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** What is shown of a text at most. */
const TEXT_MAX = 240;

export const count = (value: number): string => WHOLE.format(value);
export const compact = (value: number): string =>
  Math.abs(value) < 10_000 ? TENTHS.format(value) : COMPACT.format(value);

/** A number per second. */
export const rate = (value: number): string => (value === 0 ? "0" : compact(value));

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${TENTHS.format(share * 100)} %`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = value;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${TENTHS.format(size)} ${units[unit]}`;
}

/** Microseconds. */
export function micros(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${TENTHS.format(value)} µs`;
  if (value < 1_000_000) return `${TENTHS.format(value / 1000)} ms`;
  return `${TENTHS.format(value / 1_000_000)} s`;
}

/** Milliseconds, as the two largest units. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  const seconds = Math.ceil(ms / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** A time of today as a clock, any other with its date. */
export function time(value: string | number): string {
  const date = new Date(value);
  if (Number.isNaN(date.getTime())) return String(value);
  const isToday = date.toDateString() === new Date().toDateString();
  return (isToday ? CLOCK : DAY).format(date);
}

/** One or several of a thing. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

function isBidi(code: number): boolean {
  return (
    code === 0x61c ||
    (code >= 0x200b && code <= 0x200f) ||
    (code >= 0x2028 && code <= 0x202e) ||
    (code >= 0x2060 && code <= 0x2069) ||
    code === 0xfeff
  );
}

/** Foreign text with its invisible characters made visible, and cut. */
export function visible(text: string, max = TEXT_MAX): string {
  const cut = text.length > max ? text.slice(0, max) : text;
  let shown = "";
  for (const character of cut) {
    const code = character.codePointAt(0) ?? 0;
    if (character === "\n") shown += "↵";
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || isBidi(code)) {
      shown += `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
    } else shown += character;
  }
  return text.length > max ? `${shown}… (${count(text.length)} characters)` : shown;
}
