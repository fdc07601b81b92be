import assert from "node:assert/strict";
import { test } from "node:test";

import type { KVNamespace } from "@cloudflare/workers-types";
import * as tidegate from "tidegate";
import {
  checkRateLimit,
  KvInvalidError,
  KvRateLimiter,
  type KeyValue,
  type KvAlgorithm,
  type KvLimit,
  type KvRateLimiterOptions,
  type RateLimitEnv,
  type UserId,
} from "tidegate/kv";

import { FakeClock } from "./support/fake-clock.js";
import { MemoryStore } from "./support/memory-store.js";
import { uncaught } from "./support/uncaught.js";

/** The namespace of Workers is a store. Checked by the compiler. */
export const asStore = (namespace: KVNamespace): KeyValue => namespace;

const HOUR_MS = 3_600_000;
/** The beginning of a window of one hour: 2023-11-14T22:00:00Z. */
const START_MS = 1_699_999_200_000;
const WINDOW_KEY = START_MS / HOUR_MS;

/** A limiter over memory, with its log. */
function bench(options: KvRateLimiterOptions = {}, store: KeyValue = new MemoryStore()) {
  const log: string[] = [];
  const limiter = new KvRateLimiter(store, { logger: (line) => log.push(line), ...options });
  return { limiter, log };
}

/** How many of these messages are allowed. */
async function admitted(limiter: KvRateLimiter, count: number, nowMs: number): Promise<number> {
  let passed = 0;
  for (let sent = 0; sent < count; sent++) {
    if ((await limiter.check(42, { nowMs })).allowed) passed++;
  }
  return passed;
}

test("twenty per hour, counted under the contract's key", async () => {
  const store = new MemoryStore();
  const { limiter, log } = bench({}, store);
  const nowMs = START_MS + 1_000;
  for (let remaining = 19; remaining >= 0; remaining--) {
    assert.deepEqual(await limiter.check(42, { nowMs }), {
      allowed: true,
      remaining,
      limit: 20,
      retryAfterMs: 0,
      resetAfterMs: HOUR_MS - 1_000,
      failedOpen: false,
    });
  }
  const denied = {
    allowed: false,
    remaining: 0,
    limit: 20,
    retryAfterMs: HOUR_MS - 1_000,
    resetAfterMs: HOUR_MS - 1_000,
    failedOpen: false,
  };
  assert.deepEqual(await limiter.check(42, { nowMs }), denied);
  assert.deepEqual(await limiter.check("42", { nowMs }), denied, "a number or its digits");
  assert.deepEqual(store.contents(), { [`ratelimit:42:${WINDOW_KEY}`]: "20" });
  assert.equal((await limiter.check(7, { nowMs })).remaining, 19);
  const last = { nowMs: START_MS + HOUR_MS - 1 };
  assert.deepEqual(
    await limiter.check(42, last),
    { ...denied, retryAfterMs: 1, resetAfterMs: 1 },
    "one millisecond before the end",
  );
  assert.equal((await limiter.check(42, { nowMs: START_MS + HOUR_MS })).remaining, 19);
  assert.deepEqual(log, []);
});

test("keys live until their window's end, and no shorter than a minute", async () => {
  for (const [windowMs, nowMs, ttlS] of [
    [HOUR_MS, START_MS, 3_600],
    [HOUR_MS, START_MS + 1, 3_600],
    [HOUR_MS, START_MS + 999, 3_600],
    [HOUR_MS, START_MS + 1_000, 3_599],
    [HOUR_MS, START_MS + HOUR_MS - 61_000, 61],
    [HOUR_MS, START_MS + HOUR_MS - 60_001, 61],
    [HOUR_MS, START_MS + HOUR_MS - 60_000, 60],
    [HOUR_MS, START_MS + HOUR_MS - 1, 60],
    [1_000, START_MS, 60],
    // From 100 800 to 201 600: the store may truncate the second of the call, so 201.6 is 202 −
    // 100.
    [100_800, 100_900, 102],
    [86_400_000, 0, 86_400],
  ] as const) {
    const store = new MemoryStore();
    const { limiter } = bench({ limit: { max: 1, windowMs } }, store);
    await limiter.check(42, { nowMs });
    const [entry] = store.entries.values();
    assert.equal(entry?.ttlS, ttlS, `${windowMs} at ${nowMs}`);
  }
});

test("keys of states live until the state is fresh again", async () => {
  for (const [limit, ttlS] of [
    [{ algorithm: "bucket", max: 20, windowMs: HOUR_MS }, 180],
    [{ algorithm: "bucket", max: 20, windowMs: HOUR_MS, burst: 1 }, 180],
    [{ algorithm: "bucket", max: 1_000, windowMs: HOUR_MS }, 60],
    [{ algorithm: "sliding", max: 20, windowMs: HOUR_MS }, 3_600],
  ] as const) {
    const store = new MemoryStore();
    await bench({ limit }, store).limiter.check(42, { nowMs: START_MS });
    const [entry] = store.entries.values();
    assert.equal(entry?.ttlS, ttlS, JSON.stringify(limit));
  }
});

test("stored states of bucket and sliding window", async () => {
  const nowMs = START_MS;
  for (const [limit, messages, text] of [
    [
      { algorithm: "bucket", max: 20, windowMs: HOUR_MS },
      2,
      `{"v":1,"bucket":{"fullAt":"1699999560000000000","perNs":"1","perUnit":"180000000000"}}`,
    ],
    [
      { algorithm: "sliding", max: 20, windowMs: HOUR_MS, parts: 2 },
      1,
      `{"v":1,"sliding":{"perNs":"3600000000000","parts":2,"times":["1699999200000000000"]}}`,
    ],
    [
      { algorithm: "sliding", max: 20, windowMs: HOUR_MS, parts: 2 },
      9,
      `{"v":1,"sliding":{"perNs":"3600000000000","parts":2,"newest":"944444","counts":[9,0,0]}}`,
    ],
  ] as const) {
    const store = new MemoryStore();
    assert.equal(await admitted(bench({ limit }, store).limiter, messages, nowMs), messages);
    assert.deepEqual(store.contents(), { "ratelimit:42": text });
  }
});

test("twice the limit at the edge of a fixed window, and not with the other two", async () => {
  for (const [algorithm, together] of [
    ["window", 40],
    ["sliding", 20],
    ["bucket", 20],
  ] as [KvAlgorithm, number][]) {
    const { limiter } = bench({ limit: { max: 20, windowMs: HOUR_MS, algorithm } });
    const before = await admitted(limiter, 30, START_MS - 1);
    assert.equal(before + (await admitted(limiter, 30, START_MS)), together, algorithm);
  }
});

test("costs, and a cost of 0 that changes nothing", async () => {
  for (const algorithm of ["window", "sliding", "bucket"] as const) {
    const store = new MemoryStore();
    const { limiter } = bench({ limit: { max: 5, windowMs: HOUR_MS, algorithm } }, store);
    const check = (cost: number) => limiter.check(42, { cost, nowMs: START_MS });
    assert.equal((await check(0)).remaining, 5);
    assert.deepEqual(store.contents(), {}, "a cost of 0 stores nothing");
    assert.equal((await check(3)).remaining, 2);
    const kept = store.contents();
    const { allowed, remaining } = await check(3);
    assert.deepEqual({ allowed, remaining }, { allowed: false, remaining: 2 });
    assert.equal((await check(6)).retryAfterMs, null, "no wait helps");
    assert.equal((await check(0)).remaining, 2);
    assert.deepEqual(store.contents(), kept, "denied messages do not count");
  }
});

test("limits by user", async () => {
  const { limiter } = bench({
    limit: { max: 2, windowMs: HOUR_MS },
    limitFor: (userId, limit) => {
      if (userId === "7") return { ...limit, max: 3 };
      if (userId === "9") return "unlimited";
      return userId === "8" ? { algorithm: "bucket", max: 1, windowMs: 1_000 } : undefined;
    },
  });
  const limits = [];
  for (const userId of [42, 7, 8, 9])
    limits.push((await limiter.check(userId, { nowMs: 0 })).limit);
  assert.deepEqual(limits, [2, 3, 1, Infinity]);
  const broken = bench({ limitFor: () => ({ max: 0, windowMs: 1 }) }).limiter;
  await assert.rejects(broken.check(42), { field: "max" });
});

test("an edited limit keeps its charges, and reports the true wait", async () => {
  const store = new MemoryStore();
  const hourly: KvLimit = { algorithm: "bucket", max: 1, windowMs: HOUR_MS };
  const byMinute: KvLimit = { algorithm: "bucket", max: 1, windowMs: 60_000 };
  assert.ok((await bench({ limit: hourly }, store).limiter.check(42, { nowMs: 0 })).allowed);
  const { limiter } = bench({ limit: byMinute }, store);
  const half = HOUR_MS / 2;
  store.nowMs = half;
  assert.equal((await limiter.check(42, { nowMs: half })).retryAfterMs, 30_000);
  store.nowMs = half + 29_999;
  assert.equal((await limiter.check(42, { nowMs: half + 29_999 })).retryAfterMs, 1);
  store.nowMs = half + 30_000;
  assert.ok((await limiter.check(42, { nowMs: half + 30_000 })).allowed);
});

test("no user's key is that of another, or of another algorithm", async () => {
  const store = new MemoryStore();
  const users = ["a", "a:1", "a%3A1", `a:${WINDOW_KEY}`, "a:", ":a", "%", "ä\u{1f600}"];
  for (const algorithm of ["window", "bucket"] as const) {
    const { limiter } = bench({ limit: { max: 1, windowMs: HOUR_MS, algorithm } }, store);
    for (const user of users) {
      assert.ok((await limiter.check(user, { nowMs: START_MS })).allowed, `${algorithm} ${user}`);
    }
  }
  assert.equal(store.entries.size, users.length * 2);
});

test("an unavailable store allows the message, and is logged", async () => {
  const down = new Error("KV GET failed:\n503");
  const read = "Rate limit: user 42 is allowed; the store cannot be read: ";
  const written = "Rate limit: user 42 is allowed; the store cannot be written: ";
  const put = () => Promise.resolve();
  const get = () => Promise.resolve(null);
  for (const [store, line] of [
    [{ get: () => Promise.reject(down), put }, `${read}KV GET failed:\\u{a}503`],
    [{ get: () => raise(down), put }, `${read}KV GET failed:\\u{a}503`],
    [{ get: () => Promise.reject("gone"), put }, `${read}gone`],
    [{ get, put: () => Promise.reject(new Error("429")) }, `${written}429`],
    [{ get, put: () => raise(new Error("429")) }, `${written}429`],
  ] as [KeyValue, string][]) {
    for (const algorithm of ["window", "sliding", "bucket"] as const) {
      const limit = { max: 20, windowMs: HOUR_MS, algorithm };
      const { limiter, log } = bench({ limit }, store);
      const result = await limiter.check(42, { nowMs: START_MS });
      // What was not read is not known; what was read and not written is.
      const remaining = line.startsWith(read) ? undefined : 19;
      assert.deepEqual(
        [result.allowed, result.remaining, result.failedOpen],
        [true, remaining, true],
      );
      assert.equal(result.resetAfterMs === undefined, remaining === undefined);
      assert.deepEqual(log, [line]);
      const denied = await limiter.check(42, { nowMs: START_MS, cost: 21 });
      assert.deepEqual([denied.allowed, denied.failedOpen], [false, false], "never fits");
    }
  }
});

function raise(error: Error): never {
  throw error;
}

test("a slow store is unavailable", async () => {
  for (const hanging of ["get", "put"] as const) {
    const clock = new FakeClock();
    const hang = (): Promise<never> => {
      // The limiter's timer has been started when the store is called.
      queueMicrotask(() => clock.advance(2_000));
      return new Promise(() => {});
    };
    const store = { get: () => Promise.resolve(null), put: () => Promise.resolve() };
    const { limiter, log } = bench({ clock }, { ...store, [hanging]: hang });
    const { allowed, failedOpen } = await limiter.check(42);
    assert.deepEqual({ allowed, failedOpen }, { allowed: true, failedOpen: true });
    const verb = hanging === "get" ? "read" : "written";
    const line = `the store cannot be ${verb}: no response within 2000 ms`;
    assert.deepEqual(log, [`Rate limit: user 42 is allowed; ${line}`]);
    assert.equal(clock.timers, 0);
  }
});

test("a logger that throws stops nothing", async (context) => {
  const problems = uncaught(context);
  const logger = () => raise(new Error("disk full"));
  const store = { get: () => Promise.reject(new Error("down")), put: () => Promise.resolve() };
  const { allowed } = await new KvRateLimiter(store, { logger }).check(42);
  assert.ok(allowed);
  assert.deepEqual((await problems(1)).map(String), ["Error: disk full"]);
});

test("an invalid value starts a new count, and is logged", async () => {
  const counts = [
    "",
    " ",
    "NaN",
    "-1",
    "1.5",
    "1e3",
    "0x10",
    "07",
    "9007199254740992",
    "{}",
    "null",
  ];
  const bucket = (fields: object) => JSON.stringify({ v: 1, bucket: fields });
  const sliding = (fields: object) => JSON.stringify({ v: 1, sliding: fields });
  const good = { fullAt: "1", perNs: "1", perUnit: "1" };
  const grid = { perNs: "1000", parts: 2 };
  const garbage: Record<KvAlgorithm, readonly string[]> = {
    window: counts,
    bucket: [
      ...counts,
      "20",
      "[]",
      '{"v":1}',
      JSON.stringify({ v: 2, bucket: good }),
      sliding({ ...grid, times: [] }),
      bucket({ ...good, fullAt: 1 }),
      bucket({ ...good, fullAt: "-1" }),
      bucket({ ...good, fullAt: (2n ** 96n).toString() }),
      bucket({ ...good, perNs: "0" }),
      bucket({ ...good, perUnit: "0" }),
      bucket({ ...good, perUnit: "9223372036854775808" }),
    ],
    sliding: [
      ...counts,
      bucket(good),
      sliding(grid),
      sliding({ ...grid, times: "1" }),
      sliding({ ...grid, times: ["1", "2"] }),
      sliding({ ...grid, times: Array<string>(9).fill("1") }),
      sliding({ ...grid, times: ["9223372036854775808"] }),
      sliding({ ...grid, parts: 0, times: [] }),
      sliding({ ...grid, parts: 1.5, times: [] }),
      sliding({ ...grid, perNs: "0", times: [] }),
      sliding({ ...grid, newest: "1", counts: [-1] }),
      sliding({ ...grid, newest: "1", counts: [0.5] }),
      sliding({ ...grid, newest: "1", counts: Array<number>(17).fill(1) }),
      sliding({ ...grid, newest: 1, counts: [1] }),
    ],
  };
  for (const algorithm of ["window", "sliding", "bucket"] as const) {
    for (const value of garbage[algorithm]) {
      const store = new MemoryStore();
      const key = algorithm === "window" ? `ratelimit:42:${WINDOW_KEY}` : "ratelimit:42";
      await store.put(key, value, { expirationTtl: 3_600 });
      const { limiter, log } = bench({ limit: { max: 20, windowMs: HOUR_MS, algorithm } }, store);
      const nowMs = START_MS;
      const first = await limiter.check(42, { nowMs });
      const context = `${algorithm}: ${value}`;
      assert.deepEqual(
        [first.allowed, first.remaining, first.failedOpen],
        [true, undefined, true],
        context,
      );
      const line = `Rate limit: user 42 is allowed; the store has no count under ${key}`;
      assert.deepEqual(log, [line], context);
      const second = await limiter.check(42, { nowMs });
      assert.deepEqual([second.remaining, second.failedOpen], [18, false], context);
    }
  }
});

test("a count above a lowered limit denies", async () => {
  const store = new MemoryStore();
  await store.put(`ratelimit:42:${WINDOW_KEY}`, "9007199254740991", { expirationTtl: 3_600 });
  const result = await bench({}, store).limiter.check(42, { nowMs: START_MS });
  assert.deepEqual([result.allowed, result.remaining, result.failedOpen], [false, 0, false]);
});

test("settings of the environment", async () => {
  const nowMs = START_MS;
  const check = (env: Omit<RateLimitEnv, "RATE_LIMIT_KV">) =>
    checkRateLimit({ ...env, RATE_LIMIT_KV: new MemoryStore() }, 42, { nowMs });
  for (const [env, limit, resetAfterMs] of [
    [{}, 20, HOUR_MS],
    [{ RATE_LIMIT_MAX: "5", RATE_LIMIT_WINDOW_MS: "60000" }, 5, 60_000],
    [{ RATE_LIMIT_MAX: 5, RATE_LIMIT_WINDOW_MS: 60_000 }, 5, 60_000],
    [{ RATE_LIMIT_MAX: "4294967295", RATE_LIMIT_WINDOW_MS: "1" }, 4_294_967_295, 1],
    [{ RATE_LIMIT_ALGORITHM: "window" }, 20, HOUR_MS],
    [{ RATE_LIMIT_ALGORITHM: "sliding" }, 20, HOUR_MS],
    [{ RATE_LIMIT_ALGORITHM: "bucket" }, 20, HOUR_MS / 20],
  ] as const) {
    const result = await check(env);
    assert.deepEqual([result.limit, result.resetAfterMs], [limit, resetAfterMs]);
  }
  const names = [
    "RATE_LIMIT_MAX",
    "RATE_LIMIT_WINDOW_MS",
    "RATE_LIMIT_ALGORITHM",
    "RATE_LIMIT_USERS",
  ] as const;
  for (const name of names) {
    for (const value of ["", "0", "-5", "1.5", "abc", "1e3", " 5", "NaN", "99999999999999999"]) {
      const shown = (error: unknown): boolean =>
        error instanceof KvInvalidError &&
        error.field === name &&
        error.message.startsWith(`${name} is "${value}": expected `);
      await assert.rejects(check({ [name]: value }), shown, `${name}=${value}`);
    }
  }
  await assert.rejects(check({ RATE_LIMIT_MAX: "4294967296" }), { field: "RATE_LIMIT_MAX" });
  const tooLong = { RATE_LIMIT_WINDOW_MS: "31622400001" };
  await assert.rejects(check(tooLong), { field: "RATE_LIMIT_WINDOW_MS" });
  for (const RATE_LIMIT_KV of [undefined, null, "namespace", {}]) {
    const env = { RATE_LIMIT_KV } as unknown as RateLimitEnv;
    await assert.rejects(checkRateLimit(env, 42), { field: "RATE_LIMIT_KV" });
  }
});

test("users with another maximum, from the environment", async () => {
  const env = { RATE_LIMIT_KV: new MemoryStore(), RATE_LIMIT_USERS: "7=3, 8 = unlimited,9=1" };
  const limits = [];
  for (const userId of [42, 7, 8, "9"]) {
    limits.push((await checkRateLimit(env, userId, { nowMs: START_MS })).limit);
  }
  assert.deepEqual(limits, [20, 3, Infinity, 1]);
  assert.equal(env.RATE_LIMIT_KV.entries.size, 3, "unlimited users are not counted");
  const limitFor = (userId: string) => (userId === "7" ? { max: 5, windowMs: 1 } : undefined);
  assert.equal((await checkRateLimit(env, 7, { limitFor })).limit, 5, "limitFor takes precedence");
  assert.equal((await checkRateLimit(env, 9, { limitFor })).limit, 1);
  for (const RATE_LIMIT_USERS of [
    "1",
    "1=",
    "=1",
    "1=0",
    "a=1",
    "1=1,",
    "1=1,1=2",
    "1=4294967296",
  ]) {
    const users = { field: "RATE_LIMIT_USERS" };
    await assert.rejects(checkRateLimit({ ...env, RATE_LIMIT_USERS }, 1), users, RATE_LIMIT_USERS);
  }
});

test("invalid arguments", async () => {
  const { limiter } = bench();
  for (const userId of ["", NaN, 1.5, 2 ** 53, "x".repeat(600), null, undefined, {}]) {
    await assert.rejects(limiter.check(userId as UserId), { field: "userId" }, String(userId));
  }
  for (const [field, value] of [
    ["cost", -1],
    ["cost", 0.5],
    ["cost", NaN],
    ["nowMs", -1],
    ["nowMs", NaN],
    ["nowMs", 1e15],
  ] as const) {
    await assert.rejects(limiter.check(42, { [field]: value }), { field }, `${field} ${value}`);
  }
  const limit = { max: 20, windowMs: HOUR_MS };
  for (const [field, options] of [
    ["max", { limit: { ...limit, max: 0 } }],
    ["max", { limit: { ...limit, max: 2 ** 32 } }],
    ["windowMs", { limit: { ...limit, windowMs: 0.5 } }],
    ["windowMs", { limit: { ...limit, windowMs: 4e12 } }],
    ["burst", { limit: { ...limit, burst: 5 } }],
    ["burst", { limit: { ...limit, algorithm: "bucket", burst: 0 } }],
    ["burst", { limit: { ...limit, algorithm: "bucket", burst: 2 ** 32 - 1 } }],
    ["parts", { limit: { ...limit, parts: 5 } }],
    ["parts", { limit: { ...limit, algorithm: "sliding", parts: 16 } }],
    ["algorithm", { limit: { ...limit, algorithm: "leaky" as KvAlgorithm } }],
    ["storeTimeoutMs", { storeTimeoutMs: 0 }],
  ] as [string, KvRateLimiterOptions][]) {
    assert.throws(() => bench(options), { field }, JSON.stringify(options));
  }
});

test("the package's main entry exports the check and the limits", () => {
  assert.equal(tidegate.kv.checkRateLimit, checkRateLimit);
  assert.ok(tidegate.core.Bucket);
});
