import assert from "node:assert/strict";
import { test } from "node:test";

import {
  ClosedError,
  defaultSendLimits,
  envelope,
  InvalidError,
  MessageType,
  QueueFullError,
  RateLimitedHandler,
  WireError,
  type OutgoingMessage,
  type RateLimitedHandlerOptions,
  type Denial,
} from "tidegate/relay";

import { fromUtf8, hex, toHex } from "./support/bytes.js";
import { FakeClock } from "./support/fake-clock.js";
import { message, nameOf, denial } from "./support/simulated-relay.js";
import { uncaught } from "./support/uncaught.js";

/** A handler whose relay is the test. */
class Bench {
  readonly clock = new FakeClock();
  readonly transmitted: Uint8Array[] = [];
  readonly log: string[] = [];
  readonly denials: Denial[] = [];
  readonly gaveUp: OutgoingMessage[] = [];
  readonly transmitErrors: unknown[] = [];
  broken: Error | undefined;
  readonly handler: RateLimitedHandler;

  constructor(limits: RateLimitedHandlerOptions["limits"] = {}) {
    this.handler = new RateLimitedHandler({
      transmit: (bytes) => {
        if (this.broken !== undefined) throw this.broken;
        this.transmitted.push(bytes);
      },
      limits,
      clock: this.clock,
      logger: (line) => this.log.push(line),
      onRateLimited: (denied) => this.denials.push(denied),
      onGaveUp: (given) => this.gaveUp.push(given),
      onTransmitError: (error) => this.transmitErrors.push(error),
    });
  }

  send(...names: string[]): string[] {
    return names.map((name) => {
      const { messageId, bytes } = message(name);
      return this.handler.send(messageId, bytes);
    });
  }

  deny(name: string, retryAfterMs: bigint | number, reason?: string): void {
    assert.ok(this.handler.handle(denial(name, retryAfterMs, reason)));
  }

  /** What was transmitted since the last call. */
  get sent(): string[] {
    return this.transmitted.splice(0).map(nameOf);
  }
}

test("a denial is logged with exactly this text", () => {
  const bench = new Bench();
  bench.send("a");
  bench.deny("a", 1000, "per-connection rate limit exceeded");
  assert.deepEqual(bench.log, [
    "Rate limited by relay: per-connection rate limit exceeded. Retry after 1000ms",
  ]);
});

test("a relay's reason cannot forge lines or colours", () => {
  const bench = new Bench();
  bench.deny("", 5, "a\nb\r\u001b[31m\u2028\u202e\u0085\0é");
  bench.deny("", -5n, "x".repeat(1000));
  assert.deepEqual(bench.log, [
    "Rate limited by relay: " +
      "a\\u{a}b\\u{d}\\u{1b}[31m\\u{2028}\\u{202e}\\u{85}\\u{0}é. Retry after 5ms",
    `Rate limited by relay: ${"x".repeat(256)}…. Retry after -5ms`,
  ]);
});

test("without a logger the line goes to console.warn", (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const handler = new RateLimitedHandler({ transmit: () => {}, clock: new FakeClock() });
  handler.handle(denial("a", 7));
  assert.deepEqual(warn.mock.calls[0]?.arguments, ["Rate limited by relay: no. Retry after 7ms"]);
});

test("a denied message is sent again after the wait, with the same bytes, and not before", () => {
  const bench = new Bench();
  assert.deepEqual(bench.send("a"), ["sent"]);
  const [first] = bench.transmitted.splice(0);
  bench.deny("a", 1000);
  assert.ok(bench.handler.backingOff);
  bench.clock.advance(999);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.equal(toHex(bench.transmitted[0] ?? hex("")), toHex(first ?? hex("")));
  assert.deepEqual(bench.sent, ["a"]);
  assert.equal(bench.clock.runOut(10_000), 1000);
  assert.deepEqual(bench.sent, []);
  assert.ok(!bench.handler.backingOff);
});

test("denied messages are sent again in the order of the first sending", () => {
  const bench = new Bench();
  bench.send("a", "b", "c", "d");
  bench.sent;
  for (const name of ["c", "a", "d", "b"]) bench.deny(name, 100);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d"]);
});

test("messages accepted behind a denied one are not sent again", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.sent;
  bench.deny("b", 100);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("new messages queue behind the denied ones, also those denied later", () => {
  const bench = new Bench();
  bench.send("a", "b");
  bench.sent;
  bench.deny("b", 100);
  assert.deepEqual(bench.send("c", "d"), ["queued", "queued"]);
  bench.deny("a", 100);
  assert.equal(bench.handler.waiting, 4);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d"]);
  assert.deepEqual(bench.send("e"), ["sent"]);
});

test("after the wait messages are sent one at a time", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.sent;
  for (const name of ["a", "b", "c"]) bench.deny(name, 100);
  for (const name of ["a", "b", "c"]) {
    bench.clock.advance(99);
    assert.deepEqual(bench.sent, []);
    bench.clock.advance(1);
    assert.deepEqual(bench.sent, [name]);
  }
});

test("new messages are queued while the last denied one settles", () => {
  const bench = new Bench();
  bench.send("a");
  bench.deny("a", 100);
  bench.clock.advance(100);
  assert.deepEqual(bench.sent, ["a", "a"]);
  assert.deepEqual(bench.send("b"), ["queued"]);
  bench.clock.advance(99);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["b"]);
});

test("a message that is denied again goes first again, and the next ones keep the longer pace", () => {
  const bench = new Bench();
  bench.send("a", "b", "c", "d");
  for (const name of ["b", "c", "d"]) bench.deny(name, 400);
  bench.sent;
  bench.clock.advance(400);
  assert.deepEqual(bench.sent, ["b"]);
  bench.clock.advance(400);
  assert.deepEqual(bench.sent, ["c"]);
  // 400 ms were not enough, 1 000 would have been.
  bench.deny("c", 600);
  bench.clock.advance(599);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["c"]);
  bench.clock.advance(999);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["d"]);
});

test("when nothing is queued any more, the pace is reset", () => {
  const bench = new Bench();
  bench.send("a");
  bench.deny("a", 5_000);
  bench.clock.runOut(20_000);
  bench.send("b", "c", "d");
  bench.sent;
  for (const name of ["c", "d"]) bench.deny(name, 10);
  bench.clock.advance(20);
  assert.deepEqual(bench.sent, ["c", "d"]);
});

test("nothing is sent again before everything in flight is decided", () => {
  const bench = new Bench();
  bench.send("a");
  bench.clock.advance(100);
  bench.send("b");
  bench.sent;
  bench.clock.advance(50);
  // 150 ms for a: b's denial may come until 300 ms after it was sent.
  bench.deny("a", 1);
  bench.clock.advance(249);
  assert.deepEqual(bench.sent, []);
  bench.deny("b", 1);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b"]);
});

test("a second denial can make the wait longer, never shorter", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.deny("a", 500);
  bench.deny("b", 10);
  bench.deny("c", 800);
  bench.sent;
  bench.clock.advance(799);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["a"]);
});

test("a denial of an unknown message is logged and waited for, nothing more", () => {
  const bench = new Bench();
  bench.send("a");
  bench.sent;
  bench.deny("", 300);
  bench.deny("never sent", 300);
  assert.deepEqual(
    bench.denials.map(({ outcome }) => outcome),
    ["unknown", "unknown"],
  );
  assert.equal(bench.log.length, 2);
  assert.deepEqual(bench.send("b"), ["queued"]);
  bench.clock.advance(299);
  assert.deepEqual(bench.sent, []);
  bench.clock.runOut(1_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("the same denial twice sends the message again once", () => {
  const bench = new Bench();
  bench.send("a");
  bench.deny("a", 100);
  bench.deny("a", 100);
  assert.deepEqual(
    bench.denials.map(({ outcome }) => outcome),
    ["queued", "unknown"],
  );
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "a"]);
});

test("a message is given up after the maximum of attempts, and reported; the next ones continue", () => {
  const bench = new Bench({ attemptsMax: 3 });
  bench.send("a", "b");
  bench.deny("a", 100);
  for (let attempt = 2; attempt <= 3; attempt++) {
    bench.clock.advance(100);
    assert.equal(bench.transmitted.map(nameOf).filter((name) => name === "a").length, attempt);
    assert.equal(bench.gaveUp.length, 0);
    bench.deny("a", 100);
  }
  assert.deepEqual(
    bench.gaveUp.map(({ messageId, attempts }) => [fromUtf8(messageId), attempts]),
    [["a", 3]],
  );
  assert.equal(nameOf(bench.gaveUp[0]?.bytes ?? hex("")), "a");
  assert.equal(bench.denials.at(-1)?.outcome, "gave-up");
  bench.deny("b", 100);
  bench.sent;
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("by default a message is sent ten times", () => {
  const bench = new Bench();
  bench.send("a");
  for (let attempt = 1; attempt <= 10; attempt++) {
    assert.equal(bench.gaveUp.length, 0);
    bench.deny("a", 1);
    bench.clock.runOut(10_000);
  }
  assert.equal(bench.gaveUp.length, 1);
  assert.equal(bench.sent.length, defaultSendLimits.attemptsMax);
});

test("a full queue rejects new messages and keeps all accepted ones", () => {
  const bench = new Bench({ queueMessagesMax: 2 });
  bench.send("a", "b", "c");
  bench.sent;
  bench.deny("c", 100);
  bench.send("d");
  assert.throws(
    () => bench.send("e"),
    (error) =>
      error instanceof QueueFullError && error.code === "queue-full" && error.waiting === 2,
  );
  // Denied ones are queued although it is full: they were accepted.
  bench.deny("a", 100);
  bench.deny("b", 100);
  assert.throws(() => bench.send("f"), QueueFullError);
  bench.clock.advance(300);
  assert.deepEqual(bench.send("g"), ["queued"]);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d", "g"]);
});

test("a queue is bounded in bytes, too, and they are freed", () => {
  const size = message("a").bytes.length;
  const bench = new Bench({ queueBytesMax: 2 * size });
  bench.send("x");
  bench.deny("x", 100);
  for (const name of ["a", "b", "c", "d"]) {
    bench.send(name);
    assert.throws(() => bench.send("z"), QueueFullError);
    bench.clock.advance(100);
  }
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["x", "x", "a", "b", "c", "d"]);
});

test("a message that cannot be stored is queued until an older one cannot be denied", () => {
  const size = message("a").bytes.length;
  for (const bound of [{ recentMessagesMax: 2 }, { recentBytesMax: 2 * size }]) {
    const bench = new Bench({ ...bound, recentMsMin: 1_000, queueMessagesMax: 3 });
    assert.deepEqual(bench.send("a"), ["sent"]);
    bench.clock.advance(10);
    assert.deepEqual(bench.send("b", "c", "d", "e"), ["sent", "queued", "queued", "queued"]);
    assert.throws(() => bench.send("f"), QueueFullError);
    assert.ok(bench.handler.backingOff);
    assert.deepEqual(bench.sent, ["a", "b"]);
    bench.clock.advance(989);
    assert.deepEqual(bench.sent, []);
    bench.clock.advance(1);
    assert.deepEqual(bench.sent, ["c"]);
    bench.clock.advance(10);
    assert.deepEqual(bench.sent, ["d"]);
    assert.deepEqual(bench.send("f"), ["queued"]);
    bench.clock.runOut(10_000);
    assert.deepEqual(bench.sent, ["e", "f"]);
    assert.equal(bench.log.length, 0);
    // Once there is room, nothing is queued.
    bench.clock.advance(1_000);
    assert.deepEqual(bench.send("g"), ["sent"]);
  }
});

test("a full store whose messages are denied loses nothing, and does not wait for their age", () => {
  const bench = new Bench({ recentMessagesMax: 3, recentMsMin: 10_000 });
  bench.send("a", "b", "c", "d", "e");
  assert.deepEqual(bench.sent, ["a", "b", "c"]);
  for (const name of ["a", "b", "c"]) bench.deny(name, 100);
  assert.deepEqual(
    bench.denials.map(({ outcome }) => outcome),
    ["queued", "queued", "queued"],
  );
  bench.clock.advance(300);
  assert.deepEqual(bench.sent, ["a", "b", "c"]);
  bench.clock.advance(9_799);
  assert.deepEqual(bench.sent, []);
  bench.clock.runOut(20_000);
  assert.deepEqual(bench.sent, ["d", "e"]);
});

test("when there is room again, as many are sent at once as fit", () => {
  const bench = new Bench({ recentMessagesMax: 100, recentMsMin: 1_000 });
  const names = Array.from({ length: 250 }, (_, index) => String(index));
  bench.send(...names);
  for (const count of [100, 100, 50]) {
    assert.deepEqual(bench.sent, names.splice(0, count));
    bench.clock.advance(1_000);
  }
});

test("messages that there was no room for are sent as soon as there is", () => {
  const bench = new Bench({ recentMessagesMax: 10, recentMsMin: 1_000 });
  bench.send("a");
  bench.clock.advance(50);
  bench.send("b", "c", "d", "e", "f", "g", "h", "i", "j");
  bench.clock.advance(50);
  bench.deny("j", 1);
  bench.send("k", "l", "m", "n", "o");
  bench.sent;
  bench.clock.advance(50);
  assert.deepEqual(bench.sent, ["j"]);
  // The pace would allow all of them, but only the first message is too old to be denied.
  bench.clock.advance(850);
  assert.deepEqual(bench.sent, ["k"]);
  bench.clock.advance(100);
  assert.deepEqual(bench.sent, ["l", "m", "n", "o"]);
});

test("a message larger than the store is an error", () => {
  const bench = new Bench({ recentBytesMax: message("a").bytes.length });
  assert.throws(() => bench.send("larger"), InvalidError);
  assert.deepEqual(bench.send("a"), ["sent"]);
});

test("while there is room, messages are stored for longer, up to an age", () => {
  const outcomeAfter = (ms: number): string | undefined => {
    const bench = new Bench({ recentMsMin: 1_000, recentMsMax: 5_000 });
    bench.send("a");
    bench.clock.advance(ms);
    bench.send("b");
    bench.deny("a", 100);
    return bench.denials[0]?.outcome;
  };
  assert.deepEqual([1_000, 4_999, 5_000].map(outcomeAfter), ["queued", "queued", "unknown"]);
});

test("messages sent too long ago are not uncertain any more", () => {
  const bench = new Bench({ recentMsMin: 1_000, recentMsMax: 5_000 });
  bench.send("a");
  bench.clock.advance(1);
  bench.send("b");
  bench.clock.advance(4_999);
  assert.deepEqual(
    bench.handler.stop().uncertain.map(({ bytes }) => nameOf(bytes)),
    ["b"],
  );
});

test("an id that is queued or stored cannot be used again: one of the two would be lost", () => {
  const bench = new Bench({ recentMsMin: 1_000, recentMsMax: 1_000, attemptsMax: 2 });
  bench.send("a");
  assert.throws(() => bench.send("a"), InvalidError);
  bench.deny("a", 100);
  assert.throws(() => bench.send("a"), InvalidError);
  bench.clock.advance(100);
  assert.throws(() => bench.send("a"), InvalidError);
  assert.deepEqual(bench.sent, ["a", "a"]);
  // Once given up, the id is free; and so it is when it cannot be denied any more.
  bench.deny("a", 100);
  assert.equal(bench.gaveUp.length, 1);
  bench.clock.runOut(1_000);
  assert.deepEqual(bench.send("a"), ["sent"]);
  bench.clock.advance(1_000);
  assert.deepEqual(bench.send("a"), ["sent"]);
});

test("an error of a caller's function is uncaught, and the handler continues", async (context) => {
  const thrown = uncaught(context);
  const clock = new FakeClock();
  const transmitted: string[] = [];
  const failing = (what: string) => (): never => {
    throw new Error(what);
  };
  const handler = new RateLimitedHandler({
    transmit: (bytes) => transmitted.push(nameOf(bytes)),
    clock,
    limits: { attemptsMax: 2 },
    logger: failing("logger"),
    onRateLimited: failing("onRateLimited"),
    onGaveUp: failing("onGaveUp"),
  });
  const { messageId, bytes } = message("a");
  handler.send(messageId, bytes);
  assert.ok(handler.handle(denial("a", 100)));
  clock.advance(100);
  assert.deepEqual(transmitted, ["a", "a"]);
  assert.ok(handler.handle(denial("a", 100)));
  assert.deepEqual(
    (await thrown(5)).map((error) => (error as Error).message),
    ["logger", "onRateLimited", "logger", "onRateLimited", "onGaveUp"],
  );
});

test("absurd waits are kept within the limits", () => {
  const table: [bigint, number][] = [
    [-(2n ** 63n), 1],
    [-1n, 1],
    [0n, 1],
    [1n, 1],
    [59_999n, 59_999],
    [60_001n, 60_000],
    [2n ** 63n - 1n, 60_000],
  ];
  for (const [requested, waited] of table) {
    const bench = new Bench();
    bench.send("a");
    bench.deny("a", requested);
    assert.equal(bench.denials[0]?.waitMs, waited, `${requested}`);
    assert.equal(bench.denials[0]?.retryAfterMs, requested);
    bench.sent;
    bench.clock.advance(waited - 1);
    assert.deepEqual(bench.sent, []);
    bench.clock.advance(1);
    assert.deepEqual(bench.sent, ["a"], `${requested}`);
  }
});

test("a relay whose waits do not help is tried less and less often", () => {
  const bench = new Bench({ waitMsMax: 300 });
  bench.send("a");
  for (let attempt = 1; attempt <= 10; attempt++) {
    assert.deepEqual(bench.sent, ["a"], `attempt ${attempt}`);
    bench.deny("a", 10);
    bench.clock.runOut(10_000);
  }
  assert.deepEqual(
    bench.denials.map(({ waitMs }) => waitMs),
    [10, 10, 20, 40, 80, 160, 300, 300, 300, 300],
  );
});

test("a storm of denials keeps one timer and nothing else", () => {
  const bench = new Bench();
  for (let index = 0; index < 5_000; index++) bench.deny(`unknown ${index}`, index % 700);
  assert.equal(bench.clock.timers, 1);
  assert.equal(bench.handler.waiting, 0);
  assert.equal(bench.clock.runOut(700), 699);
  assert.deepEqual(bench.sent, []);
});

test("a denial with a recipient came from another client, and is ignored", () => {
  const bench = new Bench();
  bench.send("a");
  const forged = { ...denial("a", 60_000), toAddress: "me@h" };
  assert.ok(!bench.handler.handle(forged));
  assert.deepEqual(bench.log, []);
  assert.deepEqual(bench.send("b"), ["sent"]);
});

test("other envelopes are not handled, and a denial without its payload is", () => {
  const bench = new Bench();
  assert.ok(!bench.handler.handle(envelope({ type: MessageType.MESSAGE })));
  assert.ok(!bench.handler.handle({ ...denial("a", 1), type: MessageType.QUEUE_FULL }));
  assert.ok(bench.handler.handle(envelope({ type: MessageType.RATE_LIMITED })));
  assert.deepEqual(bench.log, ["Rate limited by relay: . Retry after 0ms"]);
});

test("a malformed denial is an error and changes nothing", () => {
  const bench = new Bench();
  bench.send("a");
  const malformed = { ...denial("a", 1), payload: { field: 24, bytes: hex("0a") } };
  assert.throws(() => bench.handler.handle(malformed), WireError);
  assert.ok(!bench.handler.backingOff);
  bench.deny("a", 1);
  assert.equal(bench.denials[0]?.outcome, "queued");
});

test("what the socket does not accept has not been sent", () => {
  const bench = new Bench();
  bench.broken = new Error("not open");
  assert.throws(() => bench.send("a"), bench.broken);
  bench.broken = undefined;
  bench.deny("a", 100);
  assert.equal(bench.denials[0]?.outcome, "unknown");
});

test("a socket that fails in the middle loses nothing and keeps the order", () => {
  const bench = new Bench();
  bench.send("a", "b");
  bench.deny("a", 100);
  bench.deny("b", 100);
  bench.send("c");
  bench.sent;
  bench.broken = new Error("not open");
  bench.clock.advance(100);
  assert.deepEqual(bench.transmitErrors, [bench.broken]);
  assert.equal(bench.handler.waiting, 3);
  bench.broken = undefined;
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c"]);
});

test("stopping returns the unsent and the uncertain messages, and ends everything", async () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.deny("b", 100);
  bench.send("d");
  const idle = bench.handler.idle();
  const { unsent, uncertain } = bench.handler.stop();
  assert.deepEqual(
    unsent.map(({ bytes }) => nameOf(bytes)),
    ["b", "d"],
  );
  assert.deepEqual(
    uncertain.map(({ bytes }) => nameOf(bytes)),
    ["a", "c"],
  );
  await assert.rejects(idle, ClosedError);
  await assert.rejects(bench.handler.idle(), ClosedError);
  assert.throws(() => bench.send("e"), ClosedError);
  assert.equal(bench.clock.timers, 0);
  assert.deepEqual(bench.handler.stop(), { unsent: [], uncertain: [] });
  bench.deny("a", 100);
  assert.equal(bench.clock.timers, 0);
});

test("idle() resolves when the last message is sent", async () => {
  const bench = new Bench();
  await bench.handler.idle();
  bench.send("a");
  bench.deny("a", 100);
  let idle = false;
  const resolved = bench.handler.idle().then(() => (idle = true));
  bench.clock.advance(100);
  await Promise.resolve();
  assert.ok(!idle);
  bench.clock.runOut(1_000);
  await resolved;
});

test("invalid limits are errors that name the field", () => {
  const table: [RateLimitedHandlerOptions["limits"], RegExp][] = [
    [{ queueMessagesMax: 0 }, /queueMessagesMax is 0/],
    [{ recentBytesMax: -1 }, /recentBytesMax is -1/],
    [{ attemptsMax: 1.5 }, /attemptsMax is 1.5/],
    [{ recentMsMax: NaN }, /recentMsMax is NaN/],
    [{ waitMsMax: 2 ** 31 }, /waitMsMax is 2147483648/],
    [{ waitMsMin: 10, waitMsMax: 9 }, /waitMsMin \(10\) is above waitMsMax \(9\)/],
    [{ recentMsMin: 10, recentMsMax: 9 }, /recentMsMin \(10\) is above recentMsMax \(9\)/],
  ];
  for (const [limits, expected] of table) {
    assert.throws(
      () => new Bench(limits),
      (error) => error instanceof InvalidError && expected.test(error.message),
    );
  }
  assert.throws(() => new Bench().handler.send(new Uint8Array(0), hex("00")), InvalidError);
});
