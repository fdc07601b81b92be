import {
  decodeEnvelope,
  encodeEnvelope,
  envelope,
  MessageType,
  payload,
  rateLimited,
  type Envelope,
} from "tidegate/relay";

import type { FakeClock } from "./fake-clock.js";
import { fromUtf8, utf8 } from "./bytes.js";

/** The relay's denial of a message. */
export function denial(messageId: string, retryAfterMs: bigint | number, reason = "no"): Envelope {
  return envelope({
    type: MessageType.RATE_LIMITED,
    messageId: utf8(messageId),
    payload: payload(rateLimited, { retryAfterMs: BigInt(retryAfterMs), reason }),
  });
}

/** An encoded message with a name as its id. */
export function message(name: string): { messageId: Uint8Array; bytes: Uint8Array } {
  const messageId = utf8(name);
  return { messageId, bytes: encodeEnvelope(envelope({ messageId, toAddress: "b@h" })) };
}

/** The name of an encoded message. */
export function nameOf(bytes: Uint8Array): string {
  return fromUtf8(decodeEnvelope(bytes).messageId);
}

/** A relay with one bucket, and a connection to it with latency and in order. */
export class SimulatedRelay {
  readonly delivered: string[] = [];
  denials = 0;
  onDenial: (envelope: Envelope) => void = () => {};
  readonly #clock: FakeClock;
  readonly #perMessageMs: number;
  readonly #burst: number;
  readonly #latencyMs: () => number;
  #fullAtMs = 0;
  #lastArrivalMs = 0;
  #lastResponseMs = 0;

  constructor(
    clock: FakeClock,
    bucket: { perMessageMs: number; burst: number },
    latencyMs: () => number,
  ) {
    this.#clock = clock;
    this.#perMessageMs = bucket.perMessageMs;
    this.#burst = bucket.burst;
    this.#latencyMs = latencyMs;
  }

  /** Puts a message on its way to the relay. */
  readonly transmit = (bytes: Uint8Array): void => {
    const arrivalMs = this.#clock.monotonicMs() + this.#latencyMs();
    this.#lastArrivalMs = Math.max(this.#lastArrivalMs, arrivalMs);
    this.#at(this.#lastArrivalMs, () => this.#arrive(nameOf(bytes)));
  };

  #arrive(name: string): void {
    const nowMs = this.#clock.monotonicMs();
    const fullAtMs = Math.max(this.#fullAtMs, nowMs) + this.#perMessageMs;
    const waitMs = fullAtMs - nowMs - this.#burst * this.#perMessageMs;
    // Times are sums of fractions, which the relay's are not.
    if (waitMs <= 1e-6) {
      this.#fullAtMs = fullAtMs;
      this.delivered.push(name);
      return;
    }
    this.denials++;
    this.#lastResponseMs = Math.max(this.#lastResponseMs, nowMs + this.#latencyMs());
    this.#at(this.#lastResponseMs, () => this.onDenial(denial(name, Math.ceil(waitMs - 1e-6))));
  }

  #at(timeMs: number, callback: () => void): void {
    this.#clock.after(timeMs - this.#clock.monotonicMs(), callback);
  }
}
