/** Calling what belongs to the caller of this package: its listeners and its logger. */

/**
 * Calls it. What it throws is not the affair of whoever has something to tell, who goes on; nor is it
 * swallowed: it is thrown where nobody but the platform's handler of uncaught errors catches it.
 */
export function tell(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
