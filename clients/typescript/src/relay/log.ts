/** The lines that this client logs. */

import { printable } from "../shared/log.js";
import type { RateLimited } from "./messages.js";

/** The line about a refusal, with the relay's own number, whatever is made of it. */
export function refusalLine({ reason, retryAfterMs }: RateLimited): string {
  return `Rate limited by relay: ${printable(reason)}. Retry after ${retryAfterMs}ms`;
}
