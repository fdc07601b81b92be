import type { Clock } from "tidegate/relay";

interface Timer {
  readonly dueMs: number;
  readonly callback: () => void;
}

/** A clock that moves only by calls. */
export class FakeClock implements Clock {
  #nowMs = 0;
  readonly #timers: Timer[] = [];

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return 1_700_000_000_000 + this.#nowMs;
  }

  after(delayMs: number, callback: () => void): () => void {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    // After all that are due at the same time.
    const later = this.#timers.findIndex(({ dueMs }) => dueMs > timer.dueMs);
    this.#timers.splice(later < 0 ? this.#timers.length : later, 0, timer);
    return () => {
      const index = this.#timers.indexOf(timer);
      if (index >= 0) this.#timers.splice(index, 1);
    };
  }

  /** How many timers are running. */
  get timers(): number {
    return this.#timers.length;
  }

  advance(ms: number): void {
    const untilMs = this.#nowMs + ms;
    while ((this.#timers[0]?.dueMs ?? Infinity) <= untilMs) this.#fire();
    this.#nowMs = untilMs;
  }

  /** Advances until nothing is due any more, and returns how long that took. */
  runOut(mostMs: number): number {
    const startMs = this.#nowMs;
    while (this.#timers.length > 0) {
      if (this.#nowMs - startMs > mostMs) throw new Error(`timers still run after ${mostMs} ms`);
      this.#fire();
    }
    return this.#nowMs - startMs;
  }

  #fire(): void {
    const timer = this.#timers.shift();
    if (timer === undefined) return;
    this.#nowMs = Math.max(this.#nowMs, timer.dueMs);
    timer.callback();
  }
}
