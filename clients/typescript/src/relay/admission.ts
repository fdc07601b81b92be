/** Attempts to connect, as the relay admits them. */

import { notify } from "../shared/notify.js";
import { RefusedError } from "./errors.js";
import type { Settings } from "./options.js";

/**
 * Tries until the relay admits the connection. Waits as long as the relay says, if that is within
 * the time for connecting; other errors end it.
 */
export async function untilAdmitted<T>(
  settings: Settings,
  attempt: (timeoutMs: number) => Promise<T>,
): Promise<T> {
  const { clock, timeoutMs, logger } = settings;
  const endMs = clock.monotonicMs() + timeoutMs;
  for (;;) {
    const leftMs = endMs - clock.monotonicMs();
    try {
      return await attempt(leftMs);
    } catch (error) {
      const waitMs = waitOf(error);
      if (waitMs === undefined || waitMs >= endMs - clock.monotonicMs()) throw error;
      notify(() => logger(`Rate limited by relay: connection refused. Retry after ${waitMs}ms`));
      await pause(settings, Math.max(waitMs, WAIT_MS_MIN));
    }
  }
}

/** How long to wait before the next attempt; undefined if there is none. */
function waitOf(error: unknown): number | undefined {
  const isTemporary =
    error instanceof RefusedError &&
    (error.status === TOO_MANY_REQUESTS || error.status === UNAVAILABLE);
  return isTemporary ? error.retryAfterMs : undefined;
}

/** Rejects with the reason of the signal if it is aborted meanwhile. */
function pause({ clock, options: { signal } }: Settings, ms: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const over = (): void => {
      cancel();
      signal?.removeEventListener("abort", abort);
    };
    const abort = (): void => {
      over();
      reject(signal?.reason);
    };
    const cancel = clock.after(ms, () => {
      over();
      resolve();
    });
    signal?.addEventListener("abort", abort, { once: true });
  });
}

const TOO_MANY_REQUESTS = 429;
const UNAVAILABLE = 503;
/** A relay that says zero must not be tried without a pause. */
const WAIT_MS_MIN = 100;
