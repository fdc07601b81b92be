import assert from "node:assert/strict";
import { test } from "node:test";

import { RateLimitedHandler, type SendLimits } from "tidegate/relay";

// Not exported by the package.
import { Pace, type Lesson } from "../dist/relay/pace.js";
import { Random } from "./support/bytes.js";
import { FakeClock } from "./support/fake-clock.js";
import { message, SimulatedRelay } from "./support/simulated-relay.js";

/** What a denial of a message reveals; nothing was sent after it. */
function lesson(sentAtMs: number, waitMs: number, rest: Partial<Lesson["message"]> = {}): Lesson {
  const after = { count: 0, lastSentAtMs: sentAtMs };
  const message = { sentAtMs, sinceLastMs: 0, after, together: 0, paced: true, ...rest };
  return { nowMs: sentAtMs + 300, waitMs, message };
}

test("as long as nothing is denied there is no pace to keep", () => {
  const pace = new Pace(60_000);
  assert.equal(pace.grant(0, 1_000), 1_000);
  pace.denied({ nowMs: 0, waitMs: 7 });
  assert.deepEqual([pace.grant(6, 10), pace.grant(7, 10), pace.nextMs], [0, 1, 14]);
  pace.reset();
  assert.equal(pace.grant(8, 1_000), 1_000);
});

test("the next token is there as long after the denied message was sent as the relay says", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(1_000, 100));
  // A little later, because the network varies.
  assert.deepEqual([pace.grant(1_124, 9), pace.grant(1_125, 9), pace.nextMs], [0, 1, 1_225]);
});

test("tokens that came during the round trip are used, as many as were accepted at once", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(0, 100, { together: 6, paced: false }));
  // Five have come, and three are certain to be there.
  assert.equal(pace.grant(600, 9), 3);
  assert.equal(pace.grant(699, 9), 0);
  assert.equal(pace.grant(700, 9), 1);
});

test("messages on their way behind a denied one may have taken the next tokens", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(0, 100, { after: { count: 9, lastSentAtMs: 250 } }));
  assert.equal(pace.nextMs, 100 + 2 * 100 + 25);
  pace.denied(lesson(250, 50, { after: { count: 0, lastSentAtMs: 250 } }));
  assert.equal(pace.nextMs, 300 + 25, "one of them was denied");
});

test("the time per message is the longest sum, until it turns out to be too long", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(0, 100, { sinceLastMs: 700, paced: false }));
  assert.equal(pace.perMessageMs, 800);
  for (let nowMs = 1_000; pace.perMessageMs > 104; nowMs += 10) {
    assert.ok(nowMs < 40_000);
    pace.grant(nowMs, 1);
  }
  assert.ok(pace.perMessageMs >= 100, "a wait is never too long");
});

test("a time per message that a denial confirms is kept", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(0, 100, { sinceLastMs: 700, paced: false }));
  let nowMs = 1_000;
  for (; pace.perMessageMs === 800; nowMs += 10) pace.grant(nowMs, 1);
  pace.denied(lesson(nowMs, 400, { sinceLastMs: 400 }));
  assert.equal(pace.perMessageMs, 800);
  for (let message = 0; message < 60; message++, nowMs += 800) pace.grant(nowMs, 1);
  assert.equal(pace.perMessageMs, 800);
});

test("times are bounded", () => {
  const pace = new Pace(60_000);
  pace.denied(lesson(0, 60_000, { sinceLastMs: 9_999 }));
  assert.equal(pace.perMessageMs, 60_000);
});

test("a flood to a fast relay nearby ends nearly as soon as the relay allows, in order", () => {
  // The sender is busy for 300 ms, in which it receives nothing.
  const world = new World({ perMessageMs: 2, burst: 10 }, () => 1);
  const heard: (() => void)[] = [];
  const { onDenial } = world.relay;
  world.relay.onDenial = (denied) => heard.push(() => onDenial(denied));
  for (let part = 0; part < 250; part++) {
    world.send(10);
    world.clock.advance(1.2);
  }
  world.relay.onDenial = onDenial;
  const direct = new Set(world.relay.delivered);
  for (const hear of heard) hear();
  const tookMs = world.clock.runOut(60_000);
  assert.deepEqual(world.relay.delivered.toSorted(byNumber), world.sent);
  const waited = world.relay.delivered.filter((name) => !direct.has(name));
  assert.deepEqual(waited, waited.toSorted(byNumber));
  // 2 350 of them at 500 per second are 4.7 s.
  assert.ok(tookMs < 6_500, `${tookMs} ms`);
});

/** A sender and a relay with a real bucket, in simulated time. */
class World {
  readonly clock = new FakeClock();
  readonly relay: SimulatedRelay;
  readonly handler: RateLimitedHandler;
  readonly sent: string[] = [];
  gaveUp = 0;

  constructor(
    bucket: { perMessageMs: number; burst: number },
    latencyMs: () => number,
    limits: Partial<SendLimits> = {},
  ) {
    this.relay = new SimulatedRelay(this.clock, bucket, latencyMs);
    this.handler = new RateLimitedHandler({
      transmit: this.relay.transmit,
      clock: this.clock,
      logger: () => {},
      limits,
      onGaveUp: () => this.gaveUp++,
    });
    this.relay.onDenial = (denied) => this.handler.handle(denied);
  }

  send(count: number): void {
    for (let index = 0; index < count; index++) {
      const name = String(this.sent.length);
      const { messageId, bytes } = message(name);
      this.handler.send(messageId, bytes);
      this.sent.push(name);
    }
  }
}

test("with the relay's defaults, 25 messages at once arrive once, in order, as fast as allowed", () => {
  const world = new World({ perMessageMs: 1000, burst: 10 }, () => 20);
  world.send(25);
  world.clock.runOut(60_000);
  assert.deepEqual(world.relay.delivered, world.sent);
  // All that were sent too early, and none of those that were sent again.
  assert.equal(world.relay.denials, 15);
});

test("the pace is found also when the first wait reveals little", () => {
  const world = new World({ perMessageMs: 1000, burst: 10 }, () => 2);
  world.send(10);
  world.clock.advance(930);
  world.send(15);
  const tookMs = world.clock.runOut(60_000);
  assert.deepEqual(world.relay.delivered, world.sent);
  // The first wait is 70 ms. One attempt at that pace shows the true one.
  assert.ok(world.relay.denials <= 15 + 2, `${world.relay.denials} denials`);
  assert.ok(tookMs < 18_000, `${tookMs} ms`);
});

test("a fast relay far away is not used like a slow one, and order is kept", () => {
  const world = new World({ perMessageMs: 5, burst: 10 }, () => 100);
  world.send(400);
  const tookMs = world.clock.runOut(60_000);
  assert.deepEqual(world.relay.delivered, world.sent);
  // One at a time, each with time for a denial to come back, would be 156 s.
  assert.ok(tookMs < 30_000, `${tookMs} ms`);
  assert.ok(world.relay.denials < 390 + 40, `${world.relay.denials} denials`);
});

/** The share of what the relay grants in a time that arrives, with lasting overload. */
function usedShare(
  bucket: { perMessageMs: number; burst: number },
  latencyMs: () => number,
  forMs: number,
): { share: number; isOrdered: boolean; denials: number } {
  const world = new World(bucket, latencyMs, { queueMessagesMax: 100_000 });
  world.send(bucket.burst + Math.ceil((1.2 * forMs) / bucket.perMessageMs));
  // The first message arrives after one way.
  world.clock.advance(latencyMs() + forMs);
  const { delivered, denials } = world.relay;
  const granted = bucket.burst + forMs / bucket.perMessageMs;
  const isOrdered = delivered.every((name, index) => name === String(index));
  return { share: delivered.length / granted, isOrdered, denials };
}

test("with a round trip of 300 ms a sender uses nine tenths of what the relay grants, in order", () => {
  for (const perMessageMs of [10, 20, 50, 100, 200, 500, 1_000]) {
    for (const burst of [5, 10, 100]) {
      for (const forMs of [10_000, 30_000]) {
        const used = usedShare({ perMessageMs, burst }, () => 150, forMs);
        const story = JSON.stringify({ perMessageMs, burst, forMs, ...used });
        assert.ok(used.share >= 0.9 && used.share <= 1, story);
        assert.ok(used.isOrdered, story);
      }
    }
  }
});

test("rates that are no whole milliseconds, and a network that varies", () => {
  for (const perMessageMs of [1_000 / 30, 1_000 / 7, 1_000 / 1.5]) {
    for (const seed of [1, 2, 3]) {
      const random = new Random(seed);
      const used = usedShare({ perMessageMs, burst: 10 }, () => 140 + random.below(20), 30_000);
      const story = JSON.stringify({ perMessageMs, seed, ...used });
      assert.ok(used.share >= 0.9 && used.share <= 1.001, story);
    }
  }
});

test("a denied message is not overtaken by queued ones", () => {
  const world = new World({ perMessageMs: 20, burst: 5 }, () => 30);
  world.send(6);
  world.clock.advance(60);
  world.send(40);
  world.clock.runOut(60_000);
  assert.deepEqual(world.relay.delivered, world.sent);
});

test("under lasting overload the pace recovers from a hiccup of the network", () => {
  let latencyMs = 5;
  const world = new World({ perMessageMs: 100, burst: 5 }, () => latencyMs, {
    queueMessagesMax: 5_000,
  });
  world.send(1_000);
  for (let hiccup = 0; hiccup < 5; hiccup++) {
    world.clock.advance(2_000);
    latencyMs = 350;
    world.clock.advance(100);
    latencyMs = 5;
  }
  const before = world.relay.delivered.length;
  world.clock.advance(60_000);
  const rate = (world.relay.delivered.length - before) / 60;
  assert.ok(rate > 8.5, `${rate} messages per second of 10`);
});

test("whatever the bucket, the distance and the traffic: everything arrives, once", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new Random(seed);
    const bucket = { perMessageMs: 1 + random.below(500), burst: 1 + random.below(20) };
    const baseMs = random.below(200);
    const jitterMs = random.below(2) * random.below(50);
    const world = new World(bucket, () => baseMs + random.below(jitterMs + 1));
    for (let wave = 0; wave < 5; wave++) {
      world.send(random.below(30));
      world.clock.advance(random.below(2_000));
    }
    world.clock.runOut(1_000_000);
    const story = `seed ${seed}: ${JSON.stringify({ ...bucket, baseMs, jitterMs })}`;
    assert.equal(world.gaveUp, 0, story);
    assert.deepEqual(world.relay.delivered.toSorted(byNumber), world.sent, story);
    // What is sent again is seldom denied.
    assert.ok(world.relay.denials <= 2 * world.sent.length, `${story}: ${world.relay.denials}`);
  }
});

test("all at once with constant latency: everything arrives in order", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new Random(seed);
    const bucket = { perMessageMs: 1 + random.below(1_000), burst: 1 + random.below(20) };
    const latencyMs = random.below(300);
    const world = new World(bucket, () => latencyMs);
    world.send(1 + random.below(100));
    world.clock.runOut(1_000_000);
    const story = `seed ${seed}: ${JSON.stringify({ ...bucket, latencyMs })}`;
    assert.deepEqual(world.relay.delivered, world.sent, story);
  }
});

test("however small the store: everything arrives, once", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new Random(seed);
    const bucket = { perMessageMs: 1 + random.below(100), burst: 1 + random.below(20) };
    const latencyMs = random.below(200);
    const recentMessagesMax = 1 + random.below(30);
    const world = new World(bucket, () => latencyMs, { recentMessagesMax, recentMsMin: 500 });
    for (let wave = 0; wave < 5; wave++) {
      world.send(random.below(60));
      world.clock.advance(random.below(2_000));
    }
    world.clock.runOut(1_000_000);
    const story = `seed ${seed}: ${JSON.stringify({ ...bucket, latencyMs, recentMessagesMax })}`;
    assert.equal(world.gaveUp, 0, story);
    assert.deepEqual(world.relay.delivered.toSorted(byNumber), world.sent, story);
  }
});

function byNumber(a: string, b: string): number {
  return Number(a) - Number(b);
}
