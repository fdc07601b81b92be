import assert from "node:assert/strict";
import { test } from "node:test";

import { Bucket, Sliding, Window, type Algorithm } from "tidegate/core";
import { KvRateLimiter, type KvLimit, type RateLimitResult } from "tidegate/kv";

import { MemoryStore } from "./support/memory-store.js";
import { amount, vectors, type Case, type Given, type VectorStep } from "./support/vectors.js";

const MS_NS = 1_000_000n;

/** The limit in whole milliseconds, if it has one. */
function kvLimit(given: Given): KvLimit | undefined {
  const kind = given["kind"];
  const perNs = amount(given, kind === "bucket" ? "period_ns" : "per_ns");
  if (perNs % MS_NS !== 0n || perNs > 10n ** 18n) return undefined;
  const windowMs = Number(perNs / MS_NS);
  const number = (name: string): number => Number(amount(given, name));
  switch (kind) {
    case "bucket":
      if (!fits(amount(given, "burst"), amount(given, "count"), perNs)) return undefined;
      return { algorithm: "bucket", max: number("count"), windowMs, burst: number("burst") };
    case "sliding":
      return { algorithm: "sliding", max: number("max"), windowMs, parts: number("parts") };
    default:
      return given["aligned"] === true
        ? { algorithm: "window", max: number("max"), windowMs }
        : undefined;
  }
}

/** Whether a bucket is within 2^32 and a hundred years. */
function fits(burst: bigint, count: bigint, perNs: bigint): boolean {
  return burst < 2n ** 32n && count < 2n ** 32n && (burst * perNs) / count < 3n * 10n ** 18n;
}

/** Whether the check over a store supports this step. */
function canReplay(step: VectorStep, before: VectorStep | undefined, limit: KvLimit): boolean {
  const nowNs = BigInt(step.at_ns);
  const wholeMs = nowNs % MS_NS === 0n;
  const costs = step.cost === undefined || BigInt(step.cost) < 2n ** 53n;
  const verbs = ["check", "peek", "edit"].includes(step.op);
  // The keys of fixed windows are by time: a step back is another key.
  const steps = limit.algorithm !== "window" || nowNs >= BigInt(before?.at_ns ?? "0");
  return wholeMs && costs && verbs && steps;
}

/** Replays the supported steps of a case, and returns their number. */
async function replay({ name, limit: given, steps }: Case): Promise<number> {
  const store = new MemoryStore();
  let limit = kvLimit(given);
  for (const [index, step] of steps.entries()) {
    if (step.op === "edit") limit = kvLimit(step.limit ?? {});
    if (limit === undefined || !canReplay(step, steps[index - 1], limit)) return index;
    const nowMs = Number(BigInt(step.at_ns) / MS_NS);
    store.nowMs = nowMs;
    // An edit takes effect with the next look or message.
    const cost = step.op === "check" ? Number(amount(step, "cost")) : 0;
    const result = await new KvRateLimiter(store, { limit }).check("ada", { cost, nowMs });
    if (step.op === "edit") continue;
    meets(result, step, `${name}, step ${index}: ${JSON.stringify(step)}`);
  }
  return steps.length;
}

function meets(result: RateLimitResult, { op, expect }: VectorStep, context: string): void {
  const ms = (text: unknown): number => Math.ceil(Number(String(text).replace("ns", "")) / 1e6);
  assert.equal(result.remaining, Number(expect?.["remaining"]), context);
  assert.equal(result.resetAfterMs, ms(expect?.["reset_ns"]), context);
  assert.equal(result.failedOpen, false, context);
  if (op === "peek") return;
  const wait = expect?.["wait"];
  const retryAfterMs = wait === null ? 0 : wait === "never" ? null : ms(wait);
  assert.equal(result.allowed, expect?.["allowed"], context);
  assert.equal(result.retryAfterMs, retryAfterMs, context);
}

test("vectors through a store, as far as a check supports them", async () => {
  const replayed: Record<string, { cases: number; steps: number }> = {};
  for (const kind of ["bucket", "sliding", "window"]) {
    const steps = await Promise.all(vectors(kind).map(replay));
    const any = steps.filter((count) => count > 0);
    replayed[kind] = { cases: any.length, steps: any.reduce((sum, count) => sum + count, 0) };
  }
  // So that nothing can drop out unnoticed.
  assert.deepEqual(replayed, {
    bucket: { cases: 10, steps: 51 },
    sliding: { cases: 21, steps: 115 },
    window: { cases: 2, steps: 7 },
  });
});

/** Pseudo-random numbers, the same every time (a linear congruential generator). */
function dice(seed: bigint): (sides: number) => number {
  let state = seed;
  return (sides) => {
    state = (state * 6_364_136_223_846_793_005n + 1_442_695_040_888_963_407n) % 2n ** 64n;
    return Number((state >> 33n) % BigInt(sides));
  };
}

interface Twin {
  check(cost: bigint, nowNs: bigint): { allowed: boolean; remaining: bigint };
  edit(limit: KvLimit, nowNs: bigint): void;
}

/** The same limit without a store. */
function twin<Limit extends Algorithm<Limit, State>, State>(
  make: (limit: KvLimit) => Limit,
  first: KvLimit,
): Twin {
  let limit = make(first);
  let state = limit.fresh();
  return {
    check(cost, nowNs) {
      const step = limit.check(state, cost, nowNs);
      state = step.state;
      return step.decision;
    },
    edit(next, nowNs) {
      const successor = make(next).succeeding(limit);
      state = successor.carryOver(limit, state, nowNs);
      limit = successor;
    },
  };
}

const perNs = ({ windowMs }: KvLimit): bigint => BigInt(windowMs) * MS_NS;
const bucket = (limit: KvLimit): Bucket =>
  Bucket.of({
    count: BigInt(limit.max),
    periodNs: perNs(limit),
    burst: BigInt(limit.burst ?? limit.max),
  });
const sliding = (limit: KvLimit): Sliding =>
  Sliding.of({ max: BigInt(limit.max), perNs: perNs(limit), parts: limit.parts ?? 10 });
const fixed = (limit: KvLimit): Window =>
  Window.of({ max: BigInt(limit.max), perNs: perNs(limit), aligned: true });

for (const [name, makeTwin, limits] of [
  [
    "bucket",
    (limit: KvLimit) => twin(bucket, limit),
    [
      { algorithm: "bucket", max: 7, windowMs: 99_991, burst: 12 },
      { algorithm: "bucket", max: 11, windowMs: 77_773, burst: 5 },
    ],
  ],
  [
    "sliding",
    (limit: KvLimit) => twin(sliding, limit),
    [
      { algorithm: "sliding", max: 12, windowMs: 99_991, parts: 7 },
      { algorithm: "sliding", max: 20, windowMs: 99_991, parts: 7 },
    ],
  ],
  ["window", (limit: KvLimit) => twin(fixed, limit), [{ max: 7, windowMs: 99_991 }]],
] as [string, (limit: KvLimit) => Twin, KvLimit[]][]) {
  test(`${name}: a store that removes expired keys decides like one that keeps everything`, async () => {
    for (let seed = 1n; seed <= 20n; seed++) {
      const roll = dice(seed);
      const store = new MemoryStore();
      let limit = limits[0];
      assert.ok(limit);
      const other = makeTwin(limit);
      let nowMs = 1_700_000_000_000 + roll(100_000);
      for (let step = 0; step < 200; step++) {
        nowMs += roll(20) === 0 ? roll(300_000) : roll(9_000);
        store.nowMs = nowMs;
        const nowNs = BigInt(nowMs) * MS_NS;
        const next = limits[roll(limits.length * 4)];
        if (next !== undefined && next !== limit) {
          other.edit(next, nowNs);
          limit = next;
        }
        const cost = roll(4);
        const { allowed, remaining } = await new KvRateLimiter(store, { limit }).check("ada", {
          cost,
          nowMs,
        });
        const expected = other.check(BigInt(cost), nowNs);
        assert.deepEqual(
          { allowed, remaining },
          { allowed: expected.allowed, remaining: Number(expected.remaining) },
          `seed ${seed}, step ${step}: cost ${cost} at ${nowMs}`,
        );
      }
    }
  });
}
