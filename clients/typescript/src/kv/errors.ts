/** What the caller of the check did wrong. A store that fails is no error: the message passes. */

/** A setting, a user id, a cost or a time that cannot be used. `field` says which one. */
export class KvInvalidError extends Error {
  readonly code = "invalid";
  readonly field: string;

  constructor(field: string, problem: string) {
    super(`${field} ${problem}`);
    this.name = new.target.name;
    this.field = field;
  }
}

/** The value, if it is a whole number from `min` to `max`. */
export function whole(field: string, value: number, min: number, max: number): number {
  if (Number.isSafeInteger(value) && value >= min && value <= max) return value;
  throw new KvInvalidError(field, `is ${value}: expected a whole number from ${min} to ${max}`);
}
