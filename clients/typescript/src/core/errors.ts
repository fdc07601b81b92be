/** Errors of invalid limits. */

/** A number that is invalid for a limit. `field` names it. */
export class LimitError extends Error {
  readonly code = "invalid-limit";
  readonly field: string;

  constructor(field: string, problem: string) {
    super(`${field} ${problem}`);
    this.name = new.target.name;
    this.field = field;
  }
}

/** The value, if it is from 1 to `max`. */
export function within(field: string, value: bigint, max: bigint): bigint {
  if (value < 1n) throw new LimitError(field, "must be at least 1 (zero does not mean unlimited)");
  if (value > max) throw new LimitError(field, `must be at most ${max}`);
  return value;
}
