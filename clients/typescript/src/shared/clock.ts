/** The source of time. Everything that waits uses a `Clock`, so no test has to. */

/** Time and timers. */
export interface Clock {
  /** Milliseconds that never step back, from an arbitrary start. */
  monotonicMs(): number;
  /** Milliseconds since 1970. */
  wallMs(): number;
  /**
   * Calls back once, not before that many milliseconds; never if the returned function is called
   * first.
   */
  after(delayMs: number, callback: () => void): () => void;
}

/** The system's clock. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  after(delayMs, callback) {
    // Some runtimes cut off fractions of a millisecond and call back that much too early.
    const timer = setTimeout(callback, Math.ceil(delayMs) + 1);
    return () => clearTimeout(timer);
  },
};
