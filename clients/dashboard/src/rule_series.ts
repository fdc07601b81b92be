// Counts of each rule: in steps of ten seconds, and the last ten seconds for the rate now.

import type { Counts, History, RuleCounts } from "./types.ts";

const STEP_MS = 10_000;
/** How much earlier than expected the event that ends a step may be. */
const EARLY_MS = 500;
const POINTS_MAX = 90;
/** Rules that counts are kept of; those of others are not shown. */
const RULES_MAX = 2000;
/** Seconds that the rate now is a mean of. */
const NOW_SECONDS = 10;

export interface Series {
  readonly allowed: number[];
  readonly denied: number[];
  readonly shadow: number[];
}

export const ruleId = (domain: string, name: string): string => JSON.stringify([domain, name]);

const zero = (): Counts => ({ allowed: 0, denied: 0, shadow_denied: 0 });

function addTo(sum: Counts, counts: Counts | undefined): void {
  sum.allowed += counts?.allowed ?? 0;
  sum.denied += counts?.denied ?? 0;
  sum.shadow_denied += counts?.shadow_denied ?? 0;
}

export class RuleSeries {
  /** Unix milliseconds at which each step ended. */
  readonly time: number[] = [];
  readonly #series = new Map<string, Series>();
  /** The step that is not over yet. */
  readonly #current = new Map<string, Counts>();
  /** Whether the current step began before the events that are known. */
  #isPartial = false;
  #recent: { readonly at: number; readonly rules: ReadonlyMap<string, Counts> }[] = [];

  clear(): void {
    this.time.length = 0;
    this.#series.clear();
    this.#current.clear();
    this.#recent = [];
  }

  /** The counts in the steps that are over. */
  get(domain: string, name: string): Series | undefined {
    return this.#series.get(ruleId(domain, name));
  }

  /** Decisions per second, over the last ten seconds. */
  now(domain: string, name: string): Counts {
    const id = ruleId(domain, name);
    const sum = zero();
    for (const { rules } of this.#recent) addTo(sum, rules.get(id));
    const seconds = Math.max(1, this.#recent.length);
    return {
      allowed: sum.allowed / seconds,
      denied: sum.denied / seconds,
      shadow_denied: sum.shadow_denied / seconds,
    };
  }

  /** The sum of all counts that are kept. */
  total(domain: string, name: string): Counts {
    const id = ruleId(domain, name);
    const series = this.#series.get(id);
    const add = (values: readonly number[] = []): number => values.reduce((sum, n) => sum + n, 0);
    const sum = {
      allowed: add(series?.allowed),
      denied: add(series?.denied),
      shadow_denied: add(series?.shadow),
    };
    addTo(sum, this.#current.get(id));
    return sum;
  }

  /** The rules with the most decisions in the last ten seconds. */
  busiest(max: number): { domain: string; name: string; counts: Counts }[] {
    const ids = new Set(this.#recent.flatMap(({ rules }) => [...rules.keys()]));
    const all = ({ allowed, denied, shadow_denied }: Counts): number =>
      allowed + denied + shadow_denied;
    return [...ids]
      .map((id) => {
        const [domain, name] = JSON.parse(id) as [string, string];
        return { domain, name, counts: this.now(domain, name) };
      })
      .sort((a, b) => all(b.counts) - all(a.counts))
      .slice(0, max);
  }

  load(history: History["rules"]): void {
    this.time.length = 0;
    this.#series.clear();
    this.time.push(...history.time_ms.slice(-POINTS_MAX));
    for (const { domain, name, allowed, denied, shadow_denied } of history.rules) {
      if (this.#series.size >= RULES_MAX) break;
      this.#series.set(ruleId(domain, name), {
        allowed: allowed.slice(-POINTS_MAX),
        denied: denied.slice(-POINTS_MAX),
        shadow: shadow_denied.slice(-POINTS_MAX),
      });
    }
    const ended = this.time.at(-1) ?? 0;
    this.#current.clear();
    const since = this.#recent.filter(({ at }) => at > ended);
    for (const { rules } of since) this.#addToCurrent(rules);
    this.#isPartial = since.length === this.#recent.length;
  }

  /** Adds a second. Returns whether a step is over that was not known from its beginning. */
  add(timeMs: number, rules: readonly RuleCounts[]): boolean {
    const counts = new Map(rules.map((rule) => [ruleId(rule.domain, rule.name), rule]));
    this.#recent.push({ at: timeMs, rules: counts });
    if (this.#recent.length > NOW_SECONDS) this.#recent.shift();
    this.#addToCurrent(counts);
    const ended = this.time.at(-1);
    if (ended !== undefined && timeMs < ended + STEP_MS - EARLY_MS) return false;
    const wasPartial = this.#isPartial && ended !== undefined;
    this.#isPartial = false;
    this.#endStep(timeMs);
    return wasPartial;
  }

  #addToCurrent(rules: ReadonlyMap<string, Counts>): void {
    for (const [id, counts] of rules) {
      const sum = this.#current.get(id) ?? zero();
      addTo(sum, counts);
      if (this.#current.size < RULES_MAX) this.#current.set(id, sum);
    }
  }

  #endStep(timeMs: number): void {
    for (const id of this.#current.keys()) {
      if (this.#series.has(id) || this.#series.size >= RULES_MAX) continue;
      const zeros = (): number[] => this.time.map(() => 0);
      this.#series.set(id, { allowed: zeros(), denied: zeros(), shadow: zeros() });
    }
    this.time.push(timeMs);
    const isFull = this.time.length > POINTS_MAX;
    if (isFull) this.time.shift();
    for (const [id, series] of this.#series) {
      const counts = this.#current.get(id);
      series.allowed.push(counts?.allowed ?? 0);
      series.denied.push(counts?.denied ?? 0);
      series.shadow.push(counts?.shadow_denied ?? 0);
      const all = [series.allowed, series.denied, series.shadow];
      if (isFull) for (const values of all) values.shift();
      if (all.every((values) => values.every((n) => n === 0))) this.#series.delete(id);
    }
    this.#current.clear();
  }
}
