// What the daemon does now: the history at load, then one event per second. All arrays are bounded.

import { get } from "./api.ts";
import { RuleSeries } from "./rule_series.ts";
import type { History, Overview } from "./types.ts";

/** Points that are kept, of one second each. */
export const POINTS_MAX = 900;

/** `refused`: the daemon responds, and sends no events. */
export type Connection = "connecting" | "live" | "refused" | "gone";

/** Hidden tabs give their connection back after this time. */
const HIDDEN_MS = 15_000;
const RETRY_MS_MIN = 500;
/** Streams that fail in a row before that is reported, if the daemon responds. */
const REFUSED_MIN = 3;
const RETRY_MS_MAX = 10_000;

export class Live {
  readonly time: number[] = [];
  readonly allowed: number[] = [];
  readonly denied: number[] = [];
  readonly shadow: number[] = [];
  readonly p50: (number | null)[] = [];
  readonly p99: (number | null)[] = [];
  readonly rules = new RuleSeries();
  last: Overview | null = null;
  connection: Connection = "connecting";

  readonly #listeners = new Set<() => void>();
  #source: EventSource | null = null;
  #retry: number | undefined;
  #retryMs = RETRY_MS_MIN;
  #refused = 0;
  #hidden: number | undefined;
  #isOn = false;
  readonly #checkSession: () => Promise<boolean>;

  /** `checkSession` reports whether this client may still listen. */
  constructor(checkSession: () => Promise<boolean>) {
    this.#checkSession = checkSession;
    document.addEventListener("visibilitychange", () => this.#visibilityChanged());
  }

  /** Calls `act` after every event and every change of the connection. */
  subscribe(act: () => void, signal: AbortSignal): void {
    this.#listeners.add(act);
    signal.addEventListener("abort", () => this.#listeners.delete(act));
  }

  start(): void {
    if (this.#isOn) return;
    this.#isOn = true;
    this.#open();
  }

  stop(): void {
    this.#isOn = false;
    this.#close();
  }

  /** Forgets everything, for another client. */
  clear(): void {
    for (const series of this.#series()) series.length = 0;
    this.rules.clear();
    this.last = null;
  }

  #series(): (number | null)[][] {
    return [this.time, this.allowed, this.denied, this.shadow, this.p50, this.p99];
  }

  #open(): void {
    this.#close();
    const source = new EventSource("/admin/v1/events");
    this.#source = source;
    source.addEventListener("open", () => void this.#loadHistory(source));
    source.addEventListener("overview", (event) => {
      if (this.#source !== source) return;
      this.#retryMs = RETRY_MS_MIN;
      this.#refused = 0;
      this.connection = "live";
      const isMissing = this.#add(JSON.parse((event as MessageEvent<string>).data) as Overview);
      if (isMissing) void this.#loadHistory(source);
      this.#notify();
    });
    source.addEventListener("error", () => {
      if (this.#source !== source) return;
      this.#refused += 1;
      const isKnown = this.connection === "gone" || this.connection === "refused";
      this.#failed(isKnown ? this.connection : "connecting");
    });
  }

  #close(): void {
    window.clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #failed(connection: Connection): void {
    this.#close();
    this.connection = connection;
    this.#notify();
    this.#retry = window.setTimeout(() => void this.#tryAgain(), this.#retryMs);
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_MS_MAX);
  }

  async #tryAgain(): Promise<void> {
    let mayListen = true;
    try {
      mayListen = await this.#checkSession();
    } catch {
      this.#refused = 0;
      if (this.#isOn && this.#source === null) this.#failed("gone");
      return;
    }
    if (this.#refused >= REFUSED_MIN) {
      this.connection = "refused";
      this.#notify();
    }
    if (this.#isOn && mayListen) this.#open();
  }

  #visibilityChanged(): void {
    window.clearTimeout(this.#hidden);
    if (!this.#isOn) return;
    if (document.visibilityState === "hidden") {
      this.#hidden = window.setTimeout(() => this.#close(), HIDDEN_MS);
    } else if (this.#source === null) {
      this.connection = "connecting";
      this.#open();
    }
  }

  async #loadHistory(source: EventSource): Promise<void> {
    let history: History;
    try {
      history = await get<History>("history");
    } catch {
      return;
    }
    if (this.#source !== source) return;
    const seen = this.last;
    for (const series of this.#series()) series.length = 0;
    const perSecond = 1000 / history.step_ms;
    const rates = (counts: readonly number[]): number[] => counts.map((n) => n * perSecond);
    this.time.push(...history.time_ms.map((ms) => ms / 1000));
    this.allowed.push(...rates(history.allowed));
    this.denied.push(...rates(history.denied));
    this.shadow.push(...rates(history.shadow_denied));
    this.p50.push(...history.p50_us);
    this.p99.push(...history.p99_us);
    this.rules.load(history.rules);
    if (seen && seen.time_ms / 1000 > (this.time.at(-1) ?? 0)) this.#addPoint(seen);
    this.#trim();
    this.#notify();
  }

  /** Adds an event. Returns whether a part of what it ends is in the history only. */
  #add(overview: Overview): boolean {
    this.last = overview;
    this.#addPoint(overview);
    this.#trim();
    return this.rules.add(overview.time_ms, overview.rules);
  }

  #addPoint(overview: Overview): void {
    const seconds = overview.time_ms / 1000;
    if (seconds <= (this.time.at(-1) ?? 0)) return;
    const perSecond = 1000 / overview.step_ms;
    this.time.push(seconds);
    this.allowed.push(overview.allowed * perSecond);
    this.denied.push(overview.denied * perSecond);
    this.shadow.push(overview.shadow_denied * perSecond);
    this.p50.push(overview.p50_us);
    this.p99.push(overview.p99_us);
  }

  #trim(): void {
    for (const series of this.#series()) {
      if (series.length > POINTS_MAX) series.splice(0, series.length - POINTS_MAX);
    }
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}
