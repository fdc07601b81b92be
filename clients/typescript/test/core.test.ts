import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Bucket,
  checkPostpaid,
  Cooldown,
  LimitError,
  Sliding,
  Window,
  type Algorithm,
} from "tidegate/core";

import { amount, spelled, vectors, type Case, type Given } from "./support/vectors.js";

type Build<Limit> = (given: Given) => Limit;

/** Replays a case, and returns its number of steps. */
function replay<Limit extends Algorithm<Limit, State>, State>(
  build: Build<Limit>,
  { name, limit: given, steps }: Case,
): number {
  let limit = build(given);
  let state = limit.fresh();
  for (const [index, step] of steps.entries()) {
    const nowNs = BigInt(step.at_ns);
    const units = (field: string): bigint => amount(step, field);
    const meets = (result: unknown): void =>
      assert.deepEqual(result, step.expect, `${name}, step ${index}: ${JSON.stringify(step)}`);
    switch (step.op) {
      case "check": {
        const result = limit.check(state, units("cost"), nowNs);
        meets(spelled(result.decision));
        state = result.state;
        break;
      }
      case "check_postpaid": {
        const result = checkPostpaid(limit, state, units("cost"), nowNs);
        meets(spelled(result.decision));
        state = result.state;
        break;
      }
      case "peek":
        meets(spelled(limit.peek(state, units("cost"), nowNs)));
        break;
      case "hold": {
        const result = limit.hold(state, units("units"), nowNs);
        meets(spelled(result.decision));
        state = result.state;
        break;
      }
      case "commit": {
        const result = limit.commit(state, units("units"), units("actual"), nowNs);
        meets({ charged: result.charged.toString() });
        state = result.state;
        break;
      }
      case "cancel":
        state = limit.cancel(state, units("units"), nowNs);
        break;
      case "refund": {
        const result = limit.refund(state, units("units"), nowNs);
        meets({ given: result.given.toString() });
        state = result.state;
        break;
      }
      case "edit": {
        assert.ok(step.limit);
        const next = build(step.limit).succeeding(limit);
        state = next.carryOver(limit, state, nowNs);
        limit = next;
        break;
      }
      default:
        assert.fail(`${name}, step ${index} has an unknown verb: ${JSON.stringify(step)}`);
    }
  }
  return steps.length;
}

function all<Limit extends Algorithm<Limit, State>, State>(
  kind: string,
  build: Build<Limit>,
): { cases: number; steps: number } {
  const cases = vectors(kind);
  const steps = cases.map((one) => replay<Limit, State>(build, one));
  return { cases: cases.length, steps: steps.reduce((sum, count) => sum + count, 0) };
}

// The numbers, so that none can drop out unnoticed. If there are more, change them here.
test("every vector of buckets", () => {
  const build = (given: Given): Bucket =>
    Bucket.of({
      count: amount(given, "count"),
      periodNs: amount(given, "period_ns"),
      burst: amount(given, "burst"),
      debt: given["debt"] === "all" ? "all" : amount(given, "debt"),
    });
  assert.deepEqual(all("bucket", build), { cases: 29, steps: 366 });
});

test("every vector of windows", () => {
  const build = (given: Given): Window =>
    Window.of({
      max: amount(given, "max"),
      perNs: amount(given, "per_ns"),
      aligned: given["aligned"] === true,
    });
  assert.deepEqual(all("window", build), { cases: 26, steps: 326 });
});

test("every vector of sliding windows", () => {
  const build = (given: Given): Sliding =>
    Sliding.of({
      max: amount(given, "max"),
      perNs: amount(given, "per_ns"),
      parts: Number(amount(given, "parts")),
    });
  assert.deepEqual(all("sliding", build), { cases: 29, steps: 357 });
});

test("every vector of cooldowns", () => {
  const build = (given: Given): Cooldown =>
    Cooldown.of({
      gapNs: amount(given, "gap_ns"),
      extendedByRefusals: given["extended_by_refusals"] === true,
    });
  assert.deepEqual(all("cooldown", build), { cases: 20, steps: 198 });
});

test("invalid limits", () => {
  const bucket = { count: 1n, periodNs: 1_000n, burst: 1n };
  const window = { max: 1n, perNs: 1n, aligned: true };
  const sliding = { max: 1n, perNs: 1_000n, parts: 10 };
  for (const [field, make] of [
    ["rate", () => Bucket.of({ ...bucket, count: 0n })],
    ["rate", () => Bucket.of({ ...bucket, count: 2n ** 32n + 1n })],
    ["period", () => Bucket.of({ ...bucket, periodNs: 0n })],
    ["period", () => Bucket.of({ ...bucket, periodNs: 2n ** 63n })],
    ["burst", () => Bucket.of({ ...bucket, burst: 0n })],
    ["burst", () => Bucket.of({ ...bucket, periodNs: 2n ** 62n - 1n, burst: 2n ** 34n })],
    ["debt", () => Bucket.of({ ...bucket, periodNs: 2n ** 62n - 1n, debt: 2n ** 34n })],
    ["max", () => Window.of({ ...window, max: 0n })],
    ["max", () => Window.of({ ...window, max: 2n ** 32n })],
    ["per", () => Window.of({ ...window, perNs: -1n })],
    ["max", () => Sliding.of({ ...sliding, max: 2n ** 32n })],
    ["per", () => Sliding.of({ ...sliding, perNs: 0n })],
    ["parts", () => Sliding.of({ ...sliding, parts: 0 })],
    ["parts", () => Sliding.of({ ...sliding, parts: 16 })],
    ["parts", () => Sliding.of({ ...sliding, perNs: 9n })],
    ["cooldown", () => Cooldown.of({ gapNs: 0n, extendedByRefusals: false })],
  ] as const) {
    const named = (error: unknown): boolean => error instanceof LimitError && error.field === field;
    assert.throws(make, named, `${field}: ${String(make)}`);
  }
});

test("invalid times and costs", () => {
  const limit = Window.of({ max: 1n, perNs: 1n, aligned: true });
  assert.throws(() => limit.check(limit.fresh(), 1n, -1n), RangeError);
  assert.throws(() => limit.check(limit.fresh(), -1n, 0n), RangeError);
  assert.throws(() => limit.check(limit.fresh(), 2n ** 64n, 0n), RangeError);
});

// As the library: nothing has been charged, so a clock that steps back finds the state as it was.
test("a postpaid cost that a bucket has no room for leaves its state", () => {
  const limit = Bucket.of({ count: 1n, periodNs: 1n, burst: 2n });
  const held = limit.hold(limit.fresh(), 2n, 0n).state;
  const { decision, state } = checkPostpaid(limit, held, 1n, 1n);
  assert.equal(decision.allowed, false);
  assert.deepEqual(state, held);
});
