/** The log lines of this client. */

import { printable } from "../shared/log.js";
import type { RateLimited } from "./messages.js";

/** The line about a denial, with the relay's own number, whatever the wait is. */
export function denialLine({ reason, retryAfterMs }: RateLimited): string {
  return `Rate limited by relay: ${printable(reason)}. Retry after ${retryAfterMs}ms`;
}
