import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test, type TestContext } from "node:test";

import type { RateLimitResult } from "tidegate/kv";

import { startWorker, type Worker } from "./support/workers.js";

const HOUR_MS = 3_600_000;
/** Half past the hour, so that both ends of the window are far. */
const NOW_MS = 1_700_001_000_000;
const WINDOW_KEY = Math.floor(NOW_MS / HOUR_MS);

function start(
  context: TestContext,
  variables: Record<string, string | number> = {},
): Promise<Worker> {
  return startWorker(context, { program: "worker/check.js", variables });
}

/** Lets the Worker check a message of a user at a time. */
async function check(
  worker: Worker,
  user: string,
  nowMs: number,
  headers: Record<string, string> = {},
): Promise<RateLimitResult> {
  const path = `/${encodeURIComponent(user)}`;
  const response = await worker.fetch(path, { headers: { "x-now-ms": `${nowMs}`, ...headers } });
  assert.equal(response.status, 200, await response.clone().text());
  return (await response.json()) as RateLimitResult;
}

/** The contents of the namespace. */
async function contents({ namespace }: Worker): Promise<Record<string, string | null>> {
  const { keys } = await namespace.list();
  const values = keys.map(async ({ name }) => [name, await namespace.get(name)] as const);
  return Object.fromEntries(await Promise.all(values));
}

test("in the Workers runtime: twenty messages, then none until the next window", async (context) => {
  const worker = await start(context);
  for (let remaining = 19; remaining >= 0; remaining--) {
    const result = await check(worker, "42", NOW_MS);
    assert.deepEqual(
      [result.allowed, result.remaining, result.failedOpen],
      [true, remaining, false],
    );
  }
  const denied = await check(worker, "42", NOW_MS);
  const endsMs = (WINDOW_KEY + 1) * HOUR_MS;
  assert.deepEqual(denied, {
    allowed: false,
    remaining: 0,
    limit: 20,
    retryAfterMs: endsMs - NOW_MS,
    resetAfterMs: endsMs - NOW_MS,
    failedOpen: false,
  });
  assert.equal((await check(worker, "7", NOW_MS)).remaining, 19, "another user");
  assert.equal((await check(worker, "42", endsMs - 1)).allowed, false, "the same window");
  assert.equal((await check(worker, "42", endsMs)).remaining, 19, "the next window");
  assert.deepEqual(await contents(worker), {
    [`ratelimit:42:${WINDOW_KEY}`]: "20",
    [`ratelimit:42:${WINDOW_KEY + 1}`]: "1",
    [`ratelimit:7:${WINDOW_KEY}`]: "1",
  });
  await check(worker, "last", NOW_MS, { "x-broken": "get" });
  assert.match(await worker.nextLine(), /^Rate limit: user last /, "the first log line");
});

test("in the Workers runtime: keys expire after their window", async (context) => {
  const worker = await start(context);
  const endsMs = (WINDOW_KEY + 1) * HOUR_MS;
  for (const [user, nowMs, ttlS] of [
    ["start", endsMs - HOUR_MS, 3_600],
    ["middle", endsMs - 1_800_000, 1_800],
    ["odd", endsMs - 1_799_999, 1_800],
    ["end", endsMs - 1, 60],
  ] as const) {
    const beforeS = Math.floor(Date.now() / 1_000);
    await check(worker, user, nowMs);
    const afterS = Math.floor(Date.now() / 1_000);
    const { keys } = await worker.namespace.list({ prefix: `ratelimit:${user}:` });
    const [expiresS, ...others] = keys.map(({ expiration }) => expiration ?? 0);
    assert.deepEqual(others, []);
    // The runtime's own clock was read somewhere in between.
    assert.ok(expiresS !== undefined && expiresS >= beforeS + ttlS, `${user}: ${expiresS}`);
    assert.ok(expiresS <= afterS + ttlS, `${user}: ${expiresS}`);
  }
});

test("in the Workers runtime: bucket and sliding window", async (context) => {
  const startsMs = WINDOW_KEY * HOUR_MS;
  for (const [algorithm, laterMs] of [
    ["bucket", 180_000],
    // Twenty at once are counted in tenths of the hour, the oldest whole until it has left.
    ["sliding", HOUR_MS + HOUR_MS / 10],
  ] as const) {
    const worker = await start(context, { RATE_LIMIT_ALGORITHM: algorithm });
    for (let sent = 0; sent < 20; sent++) {
      assert.ok((await check(worker, "42", startsMs - 1)).allowed);
    }
    const early = algorithm === "bucket" ? laterMs - 1 : 0;
    const denied = await check(worker, "42", startsMs + early - 1);
    assert.equal(denied.allowed, false, "no second burst at the window's edge");
    const passes = startsMs + early - 1 + (denied.retryAfterMs ?? NaN);
    assert.equal((await check(worker, "42", passes - 1)).allowed, false, "not earlier");
    assert.equal((await check(worker, "42", passes)).allowed, true, "and not later");
    assert.deepEqual(Object.keys(await contents(worker)), ["ratelimit:42"]);
  }
});

test("in the Workers runtime: a failing namespace allows the message", async (context) => {
  const worker = await start(context);
  for (const [broken, verb] of [
    ["get", "read"],
    ["put", "written"],
  ] as const) {
    const result = await check(worker, "42", NOW_MS, { "x-broken": broken });
    // Undefined is no JSON.
    const remaining = broken === "get" ? undefined : 19;
    assert.deepEqual(
      [result.allowed, result.remaining, result.failedOpen],
      [true, remaining, true],
    );
    const line = await worker.nextLine();
    assert.ok(line.startsWith(`Rate limit: user 42 is allowed; the store cannot be ${verb}: KV`));
    assert.match(line, /414/, "the reason that the namespace gave");
  }
  assert.deepEqual(await contents(worker), {});
  await worker.namespace.put(`ratelimit:42:${WINDOW_KEY}`, "NaN");
  assert.deepEqual(
    [(await check(worker, "42", NOW_MS)).failedOpen, (await check(worker, "42", NOW_MS)).remaining],
    [true, 18],
  );
});

test("in the Workers runtime: invalid settings are named", async (context) => {
  const headers = { "x-now-ms": `${NOW_MS}` };
  for (const [name, value] of [
    ["RATE_LIMIT_MAX", "many"],
    ["RATE_LIMIT_MAX", 0],
    ["RATE_LIMIT_WINDOW_MS", "-1"],
  ] as const) {
    const worker = await start(context, { [name]: value });
    const response = await worker.fetch("/42", { headers });
    assert.equal(response.status, 500);
    assert.ok((await response.text()).startsWith(`${name} is "${value}": expected a whole number`));
  }
  const unbound = await startWorker(context, { program: "worker/check.js", hasStore: false });
  const response = await unbound.fetch("/42", { headers });
  assert.match(await response.text(), /^RATE_LIMIT_KV is not bound to a key-value namespace/);
});

test("in the Workers runtime: the core in a Durable Object is exact under concurrency", async (context) => {
  const durableObjects = { LIMITS: "UserLimit" };
  const worker = await startWorker(context, { program: "worker/exact.js", durableObjects });
  const headers = { "x-now-ms": `${NOW_MS}` };
  const check = async (user: string): Promise<boolean> => {
    const response = await worker.fetch(`/${user}`, { headers });
    return ((await response.json()) as { allowed: boolean }).allowed;
  };
  const results = await Promise.all(Array.from({ length: 50 }, () => check("42")));
  assert.equal(results.filter((allowed) => allowed).length, 20);
  assert.ok(await check("7"));
});

test("in the Workers runtime: the README's example", async (context) => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const [, text] = /```js\n(import \{ checkRateLimit \}[^]*?\n)```/.exec(readme) ?? [];
  assert.ok(text, "the README has an example");
  const variables = { RATE_LIMIT_MAX: "1", RATE_LIMIT_ALGORITHM: "bucket" };
  const worker = await startWorker(context, { program: { text }, variables });
  const first = await worker.fetch("/42");
  assert.deepEqual([first.status, await first.text()], [200, "go ahead, 0 left\n"]);
  const second = await worker.fetch("/42");
  assert.equal(second.status, 429);
  assert.match(await second.text(), /^wait for [0-9]+ ms\n$/);
});
