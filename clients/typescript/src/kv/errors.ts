/** Errors of the caller. An outage of the store is no error: the message is allowed. */

/** An invalid setting, user id, cost or time. `field` names it. */
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
