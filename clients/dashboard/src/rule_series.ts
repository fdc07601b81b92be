// Counts of each rule: in steps of ten seconds, and the last ten seconds for the rate now.

import type { Counts, History, RuleCounts } from "./types.ts";

const STEP_MS = 10_000;
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

export class RuleSeries {
  /** Unix milliseconds at which each step begins. */
  readonly time: number[] = [];
  readonly #series = new Map<string, Series>();
  #recent: { readonly at: number; readonly counts: Map<string, Counts> }[] = [];

  clear(): void {
    this.time.length = 0;
    this.#series.clear();
    this.#recent = [];
  }

  get(domain: string, name: string): Series | undefined {
    return this.#series.get(ruleId(domain, name));
  }

  /** Decisions per second, over the last ten seconds. */
  now(domain: string, name: string): Counts {
    const id = ruleId(domain, name);
    const sum: Counts = { allowed: 0, denied: 0, shadow_denied: 0 };
    for (const { counts } of this.#recent) {
      const step = counts.get(id);
      sum.allowed += step?.allowed ?? 0;
      sum.denied += step?.denied ?? 0;
      sum.shadow_denied += step?.shadow_denied ?? 0;
    }
    const seconds = Math.max(1, this.#recent.length);
    return {
      allowed: sum.allowed / seconds,
      denied: sum.denied / seconds,
      shadow_denied: sum.shadow_denied / seconds,
    };
  }

  /** The rules with the most decisions in the last ten seconds. */
  busiest(max: number): { domain: string; name: string; counts: Counts }[] {
    const ids = new Set(this.#recent.flatMap(({ counts }) => [...counts.keys()]));
    const total = ({ allowed, denied, shadow_denied }: Counts): number =>
      allowed + denied + shadow_denied;
    return [...ids]
      .map((id) => {
        const [domain, name] = JSON.parse(id) as [string, string];
        return { domain, name, counts: this.now(domain, name) };
      })
      .sort((a, b) => total(b.counts) - total(a.counts))
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
  }

  add(timeMs: number, rules: readonly RuleCounts[]): void {
    this.#advance(timeMs);
    const counts = new Map<string, Counts>();
    for (const rule of rules) {
      const id = ruleId(rule.domain, rule.name);
      counts.set(id, rule);
      const series = this.#series.get(id) ?? this.#create(id);
      if (!series) continue;
      addToLast(series.allowed, rule.allowed);
      addToLast(series.denied, rule.denied);
      addToLast(series.shadow, rule.shadow_denied);
    }
    this.#recent.push({ at: timeMs, counts });
    if (this.#recent.length > NOW_SECONDS) this.#recent.shift();
  }

  /** Begins a step if the last one is over. */
  #advance(timeMs: number): void {
    const last = this.time.at(-1);
    if (last !== undefined && timeMs < last + STEP_MS) return;
    this.time.push(Math.floor(timeMs / STEP_MS) * STEP_MS);
    const isFull = this.time.length > POINTS_MAX;
    if (isFull) this.time.shift();
    for (const [id, series] of this.#series) {
      for (const values of [series.allowed, series.denied, series.shadow]) {
        values.push(0);
        if (isFull) values.shift();
      }
      if (Object.values(series).every((values: number[]) => values.every((n) => n === 0))) {
        this.#series.delete(id);
      }
    }
  }

  #create(id: string): Series | undefined {
    if (this.#series.size >= RULES_MAX) return undefined;
    const zeros = (): number[] => this.time.map(() => 0);
    const series = { allowed: zeros(), denied: zeros(), shadow: zeros() };
    this.#series.set(id, series);
    return series;
  }
}

function addToLast(values: number[], count: number): void {
  values[values.length - 1] = (values.at(-1) ?? 0) + count;
}
