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
  type Refusal,
} from "tidegate/relay";

import { fromUtf8, hex, toHex } from "./support/bytes.js";
import { FakeClock } from "./support/fake-clock.js";
import { message, nameOf, refusal } from "./support/simulated-relay.js";
import { uncaught } from "./support/uncaught.js";

/** A handler whose relay is the test. */
class Bench {
  readonly clock = new FakeClock();
  readonly transmitted: Uint8Array[] = [];
  readonly log: string[] = [];
  readonly refusals: Refusal[] = [];
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
      onRateLimited: (refused) => this.refusals.push(refused),
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

  refuse(name: string, retryAfterMs: bigint | number, reason?: string): void {
    assert.ok(this.handler.handle(refusal(name, retryAfterMs, reason)));
  }

  /** What has been transmitted since the last look. */
  get sent(): string[] {
    return this.transmitted.splice(0).map(nameOf);
  }
}

test("a refusal is logged in exactly these words", () => {
  const bench = new Bench();
  bench.send("a");
  bench.refuse("a", 1000, "per-connection rate limit exceeded");
  assert.deepEqual(bench.log, [
    "Rate limited by relay: per-connection rate limit exceeded. Retry after 1000ms",
  ]);
});

test("what a relay gives as a reason cannot forge lines or colours", () => {
  const bench = new Bench();
  bench.refuse("", 5, "a\nb\r\u001b[31m\u2028\u202e\u0085\0é");
  bench.refuse("", -5n, "x".repeat(1000));
  assert.deepEqual(bench.log, [
    "Rate limited by relay: " +
      "a\\u{a}b\\u{d}\\u{1b}[31m\\u{2028}\\u{202e}\\u{85}\\u{0}é. Retry after 5ms",
    `Rate limited by relay: ${"x".repeat(256)}…. Retry after -5ms`,
  ]);
});

test("without a logger the line is a warning of the console", (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const handler = new RateLimitedHandler({ transmit: () => {}, clock: new FakeClock() });
  handler.handle(refusal("a", 7));
  assert.deepEqual(warn.mock.calls[0]?.arguments, ["Rate limited by relay: no. Retry after 7ms"]);
});

test("a refused message is sent again after the wait, with the same bytes, and not before", () => {
  const bench = new Bench();
  assert.deepEqual(bench.send("a"), ["sent"]);
  const [first] = bench.transmitted.splice(0);
  bench.refuse("a", 1000);
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

test("refused messages are sent again in the order of the first sending", () => {
  const bench = new Bench();
  bench.send("a", "b", "c", "d");
  bench.sent;
  for (const name of ["c", "a", "d", "b"]) bench.refuse(name, 100);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d"]);
});

test("what was accepted behind a refused message is not sent again", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.sent;
  bench.refuse("b", 100);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("new messages queue up behind the refused ones, also those refused later", () => {
  const bench = new Bench();
  bench.send("a", "b");
  bench.sent;
  bench.refuse("b", 100);
  assert.deepEqual(bench.send("c", "d"), ["queued", "queued"]);
  bench.refuse("a", 100);
  assert.equal(bench.handler.waiting, 4);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d"]);
  assert.deepEqual(bench.send("e"), ["sent"]);
});

test("after the wait it is one message at a time, not all of them", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.sent;
  for (const name of ["a", "b", "c"]) bench.refuse(name, 100);
  for (const name of ["a", "b", "c"]) {
    bench.clock.advance(99);
    assert.deepEqual(bench.sent, []);
    bench.clock.advance(1);
    assert.deepEqual(bench.sent, [name]);
  }
});

test("also while the last of them settles, new messages wait for their turn", () => {
  const bench = new Bench();
  bench.send("a");
  bench.refuse("a", 100);
  bench.clock.advance(100);
  assert.deepEqual(bench.sent, ["a", "a"]);
  assert.deepEqual(bench.send("b"), ["queued"]);
  bench.clock.advance(99);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["b"]);
});

test("a message that is refused again goes first again, and the next ones keep the longer pace", () => {
  const bench = new Bench();
  bench.send("a", "b", "c", "d");
  for (const name of ["b", "c", "d"]) bench.refuse(name, 400);
  bench.sent;
  bench.clock.advance(400);
  assert.deepEqual(bench.sent, ["b"]);
  bench.clock.advance(400);
  assert.deepEqual(bench.sent, ["c"]);
  // 400 ms were not enough, 1 000 would have been.
  bench.refuse("c", 600);
  bench.clock.advance(599);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["c"]);
  bench.clock.advance(999);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["d"]);
});

test("when nothing waits any more, the pace is forgotten", () => {
  const bench = new Bench();
  bench.send("a");
  bench.refuse("a", 5_000);
  bench.clock.runOut(20_000);
  bench.send("b", "c", "d");
  bench.sent;
  for (const name of ["c", "d"]) bench.refuse(name, 10);
  bench.clock.advance(20);
  assert.deepEqual(bench.sent, ["c", "d"]);
});

test("nothing is sent again before all that was on its way is decided", () => {
  const bench = new Bench();
  bench.send("a");
  bench.clock.advance(100);
  bench.send("b");
  bench.sent;
  bench.clock.advance(50);
  // 150 ms for a: b's refusal may come until 300 ms after it was sent.
  bench.refuse("a", 1);
  bench.clock.advance(249);
  assert.deepEqual(bench.sent, []);
  bench.refuse("b", 1);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b"]);
});

test("a second refusal can make the wait longer, never shorter", () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.refuse("a", 500);
  bench.refuse("b", 10);
  bench.refuse("c", 800);
  bench.sent;
  bench.clock.advance(799);
  assert.deepEqual(bench.sent, []);
  bench.clock.advance(1);
  assert.deepEqual(bench.sent, ["a"]);
});

test("a refusal that names no known message is logged and waited for, nothing more", () => {
  const bench = new Bench();
  bench.send("a");
  bench.sent;
  bench.refuse("", 300);
  bench.refuse("never sent", 300);
  assert.deepEqual(
    bench.refusals.map(({ outcome }) => outcome),
    ["unknown", "unknown"],
  );
  assert.equal(bench.log.length, 2);
  assert.deepEqual(bench.send("b"), ["queued"]);
  bench.clock.advance(299);
  assert.deepEqual(bench.sent, []);
  bench.clock.runOut(1_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("the same refusal twice sends the message again once", () => {
  const bench = new Bench();
  bench.send("a");
  bench.refuse("a", 100);
  bench.refuse("a", 100);
  assert.deepEqual(
    bench.refusals.map(({ outcome }) => outcome),
    ["queued", "unknown"],
  );
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "a"]);
});

test("a message is given up after so many attempts, and told; the next ones go on", () => {
  const bench = new Bench({ attemptsMax: 3 });
  bench.send("a", "b");
  bench.refuse("a", 100);
  for (let attempt = 2; attempt <= 3; attempt++) {
    bench.clock.advance(100);
    assert.equal(bench.transmitted.map(nameOf).filter((name) => name === "a").length, attempt);
    assert.equal(bench.gaveUp.length, 0);
    bench.refuse("a", 100);
  }
  assert.deepEqual(
    bench.gaveUp.map(({ messageId, attempts }) => [fromUtf8(messageId), attempts]),
    [["a", 3]],
  );
  assert.equal(nameOf(bench.gaveUp[0]?.bytes ?? hex("")), "a");
  assert.equal(bench.refusals.at(-1)?.outcome, "gave-up");
  bench.refuse("b", 100);
  bench.sent;
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["b"]);
});

test("by default a message is sent ten times", () => {
  const bench = new Bench();
  bench.send("a");
  for (let attempt = 1; attempt <= 10; attempt++) {
    assert.equal(bench.gaveUp.length, 0);
    bench.refuse("a", 1);
    bench.clock.runOut(10_000);
  }
  assert.equal(bench.gaveUp.length, 1);
  assert.equal(bench.sent.length, defaultSendLimits.attemptsMax);
});

test("a full queue refuses new messages and keeps all that it has taken", () => {
  const bench = new Bench({ queueMessagesMax: 2 });
  bench.send("a", "b", "c");
  bench.sent;
  bench.refuse("c", 100);
  bench.send("d");
  assert.throws(
    () => bench.send("e"),
    (error) =>
      error instanceof QueueFullError && error.code === "queue-full" && error.waiting === 2,
  );
  // Refused ones come back although it is full: they were taken.
  bench.refuse("a", 100);
  bench.refuse("b", 100);
  assert.throws(() => bench.send("f"), QueueFullError);
  bench.clock.advance(300);
  assert.deepEqual(bench.send("g"), ["queued"]);
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["a", "b", "c", "d", "g"]);
});

test("a queue is full by its bytes, too, and they are counted back", () => {
  const size = message("a").bytes.length;
  const bench = new Bench({ queueBytesMax: 2 * size });
  bench.send("x");
  bench.refuse("x", 100);
  for (const name of ["a", "b", "c", "d"]) {
    bench.send(name);
    assert.throws(() => bench.send("z"), QueueFullError);
    bench.clock.advance(100);
  }
  bench.clock.runOut(10_000);
  assert.deepEqual(bench.sent, ["x", "x", "a", "b", "c", "d"]);
});

test("what cannot be remembered is not sent: it waits until an older one cannot be refused", () => {
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
    // Once there is room, nothing waits.
    bench.clock.advance(1_000);
    assert.deepEqual(bench.send("g"), ["sent"]);
  }
});

test("a full memory that is refused loses nothing, and does not wait for its age", () => {
  const bench = new Bench({ recentMessagesMax: 3, recentMsMin: 10_000 });
  bench.send("a", "b", "c", "d", "e");
  assert.deepEqual(bench.sent, ["a", "b", "c"]);
  for (const name of ["a", "b", "c"]) bench.refuse(name, 100);
  assert.deepEqual(
    bench.refusals.map(({ outcome }) => outcome),
    ["queued", "queued", "queued"],
  );
  bench.clock.advance(300);
  assert.deepEqual(bench.sent, ["a", "b", "c"]);
  bench.clock.advance(9_799);
  assert.deepEqual(bench.sent, []);
  bench.clock.runOut(20_000);
  assert.deepEqual(bench.sent, ["d", "e"]);
});

test("when there is room again, as much goes out at once as fits", () => {
  const bench = new Bench({ recentMessagesMax: 100, recentMsMin: 1_000 });
  const names = Array.from({ length: 250 }, (_, index) => String(index));
  bench.send(...names);
  for (const count of [100, 100, 50]) {
    assert.deepEqual(bench.sent, names.splice(0, count));
    bench.clock.advance(1_000);
  }
});

test("a round that was cut for want of room is not taken for one that was granted", () => {
  const bench = new Bench({ recentMessagesMax: 10, recentMsMin: 1_000 });
  bench.send("a");
  bench.clock.advance(50);
  bench.send("b", "c", "d", "e", "f", "g", "h", "i", "j");
  bench.clock.advance(50);
  bench.refuse("j", 1);
  bench.send("k", "l", "m", "n", "o");
  bench.sent;
  bench.clock.advance(50);
  assert.deepEqual(bench.sent, ["j"]);
  // There would be two now, but only the first message has become too old to be refused.
  bench.clock.advance(850);
  assert.deepEqual(bench.sent, ["k"]);
  bench.clock.advance(100);
  assert.deepEqual(bench.sent, ["l", "m"]);
});

test("a message that no memory has room for is an error", () => {
  const bench = new Bench({ recentBytesMax: message("a").bytes.length });
  assert.throws(() => bench.send("larger"), InvalidError);
  assert.deepEqual(bench.send("a"), ["sent"]);
});

test("as long as there is room, messages are remembered for longer, up to an age", () => {
  const outcomeAfter = (ms: number): string | undefined => {
    const bench = new Bench({ recentMsMin: 1_000, recentMsMax: 5_000 });
    bench.send("a");
    bench.clock.advance(ms);
    bench.send("b");
    bench.refuse("a", 100);
    return bench.refusals[0]?.outcome;
  };
  assert.deepEqual([1_000, 4_999, 5_000].map(outcomeAfter), ["queued", "queued", "unknown"]);
});

test("what was sent too long ago is not uncertain any more", () => {
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

test("an id that waits or is remembered cannot be used again: one of the two would be lost", () => {
  const bench = new Bench({ recentMsMin: 1_000, recentMsMax: 1_000, attemptsMax: 2 });
  bench.send("a");
  assert.throws(() => bench.send("a"), InvalidError);
  bench.refuse("a", 100);
  assert.throws(() => bench.send("a"), InvalidError);
  bench.clock.advance(100);
  assert.throws(() => bench.send("a"), InvalidError);
  assert.deepEqual(bench.sent, ["a", "a"]);
  // Given up, it is nobody's id; and so it is when it cannot be refused any more.
  bench.refuse("a", 100);
  assert.equal(bench.gaveUp.length, 1);
  bench.clock.runOut(1_000);
  assert.deepEqual(bench.send("a"), ["sent"]);
  bench.clock.advance(1_000);
  assert.deepEqual(bench.send("a"), ["sent"]);
});

test("a caller's function that throws is heard of, and the handler goes on", async (context) => {
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
  assert.ok(handler.handle(refusal("a", 100)));
  clock.advance(100);
  assert.deepEqual(transmitted, ["a", "a"]);
  assert.ok(handler.handle(refusal("a", 100)));
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
  for (const [asked, waited] of table) {
    const bench = new Bench();
    bench.send("a");
    bench.refuse("a", asked);
    assert.equal(bench.refusals[0]?.waitMs, waited, `${asked}`);
    assert.equal(bench.refusals[0]?.retryAfterMs, asked);
    bench.sent;
    bench.clock.advance(waited - 1);
    assert.deepEqual(bench.sent, []);
    bench.clock.advance(1);
    assert.deepEqual(bench.sent, ["a"], `${asked}`);
  }
});

test("a relay whose waits do not help is asked less and less often", () => {
  const bench = new Bench({ waitMsMax: 300 });
  bench.send("a");
  for (let attempt = 1; attempt <= 10; attempt++) {
    assert.deepEqual(bench.sent, ["a"], `attempt ${attempt}`);
    bench.refuse("a", 10);
    bench.clock.runOut(10_000);
  }
  assert.deepEqual(
    bench.refusals.map(({ waitMs }) => waitMs),
    [10, 10, 20, 40, 80, 160, 300, 300, 300, 300],
  );
});

test("a storm of refusals keeps one timer and nothing else", () => {
  const bench = new Bench();
  for (let index = 0; index < 5_000; index++) bench.refuse(`unknown ${index}`, index % 700);
  assert.equal(bench.clock.timers, 1);
  assert.equal(bench.handler.waiting, 0);
  assert.equal(bench.clock.runOut(700), 699);
  assert.deepEqual(bench.sent, []);
});

test("a refusal with a recipient came from another client, and silences nobody", () => {
  const bench = new Bench();
  bench.send("a");
  const forged = { ...refusal("a", 60_000), toAddress: "me@h" };
  assert.ok(!bench.handler.handle(forged));
  assert.deepEqual(bench.log, []);
  assert.deepEqual(bench.send("b"), ["sent"]);
});

test("other envelopes are not taken, and a refusal without its payload is", () => {
  const bench = new Bench();
  assert.ok(!bench.handler.handle(envelope({ type: MessageType.MESSAGE })));
  assert.ok(!bench.handler.handle({ ...refusal("a", 1), type: MessageType.QUEUE_FULL }));
  assert.ok(bench.handler.handle(envelope({ type: MessageType.RATE_LIMITED })));
  assert.deepEqual(bench.log, ["Rate limited by relay: . Retry after 0ms"]);
});

test("a malformed refusal is an error and changes nothing", () => {
  const bench = new Bench();
  bench.send("a");
  const malformed = { ...refusal("a", 1), payload: { field: 24, bytes: hex("0a") } };
  assert.throws(() => bench.handler.handle(malformed), WireError);
  assert.ok(!bench.handler.backingOff);
  bench.refuse("a", 1);
  assert.equal(bench.refusals[0]?.outcome, "queued");
});

test("what the socket does not take has not been sent", () => {
  const bench = new Bench();
  bench.broken = new Error("not open");
  assert.throws(() => bench.send("a"), bench.broken);
  bench.broken = undefined;
  bench.refuse("a", 100);
  assert.equal(bench.refusals[0]?.outcome, "unknown");
});

test("a socket that fails in the middle loses nothing and keeps the order", () => {
  const bench = new Bench();
  bench.send("a", "b");
  bench.refuse("a", 100);
  bench.refuse("b", 100);
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

test("stopping returns what was not sent and what nobody knows about, and ends everything", async () => {
  const bench = new Bench();
  bench.send("a", "b", "c");
  bench.refuse("b", 100);
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
  bench.refuse("a", 100);
  assert.equal(bench.clock.timers, 0);
});

test("whoever waits for an idle sender is told when the last message is out", async () => {
  const bench = new Bench();
  await bench.handler.idle();
  bench.send("a");
  bench.refuse("a", 100);
  let idle = false;
  const told = bench.handler.idle().then(() => (idle = true));
  bench.clock.advance(100);
  await Promise.resolve();
  assert.ok(!idle);
  bench.clock.runOut(1_000);
  await told;
});

test("limits that make no sense are refused by name", () => {
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
