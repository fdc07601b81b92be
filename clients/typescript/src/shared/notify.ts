/** Calls of the caller's functions: listeners and the logger. */

/**
 * Calls a function of the caller. An error that it throws neither interrupts this package nor is
 * swallowed: it is thrown where only the platform's handler of uncaught errors catches it.
 */
export function notify(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
