import assert from "node:assert/strict";
import { test } from "node:test";

import { RateLimitedHandler, type SendLimits } from "tidegate/relay";

// Not exported by the package.
import { Pace } from "../dist/relay/pace.js";
import { Random } from "./support/bytes.js";
import { FakeClock } from "./support/fake-clock.js";
import { message, SimulatedRelay } from "./support/simulated-relay.js";

test("near a relay, one message at a time; after some rounds without denials, a little sooner", () => {
  const pace = new Pace(60_000);
  pace.denied({ waitMs: 400, message: { sinceLastMs: 600, roundTripMs: 10, inRound: true } });
  pace.denied({ waitMs: 900, message: { sinceLastMs: 0, roundTripMs: 10, inRound: true } });
  for (let round = 0; round < 32; round++) {
    assert.deepEqual(pace.round(), { count: 1, pauseMs: 1_000 });
  }
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 875 });
  pace.denied({ waitMs: 125, message: { sinceLastMs: 875, roundTripMs: 10, inRound: true } });
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 1_000 });
});

test("far from a fast relay, rounds grow by one and are halved once by a denied round", () => {
  const pace = new Pace(60_000);
  const lesson = { waitMs: 5, message: { sinceLastMs: 0, roundTripMs: 100, inRound: true } };
  pace.denied(lesson);
  for (const count of [1, 2, 3, 4, 5]) {
    assert.deepEqual(pace.round(), { count, pauseMs: 200 });
  }
  for (let denied = 0; denied < 4; denied++) pace.denied(lesson);
  for (const count of [3, 4]) assert.deepEqual(pace.round(), { count, pauseMs: 200 });
});

test("pauses are bounded, and the learned pace can be reset", () => {
  const pace = new Pace(60_000);
  pace.denied({ waitMs: 60_000, message: { sinceLastMs: 9_999, roundTripMs: 0, inRound: true } });
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 60_000 });
  pace.reset();
  pace.denied({ waitMs: 1, message: { sinceLastMs: 0, roundTripMs: 5_000, inRound: true } });
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 2_000 });
  pace.reset();
  pace.denied({ waitMs: 7 });
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 7 });
});

test("the distance is that of the quickest of a flood, then that of the last denied round", () => {
  const pace = new Pace(60_000);
  const after = (inRound: boolean, ...roundTripsMs: number[]): number => {
    for (const roundTripMs of roundTripsMs) {
      pace.denied({ waitMs: 1, message: { sinceLastMs: 0, roundTripMs, inRound } });
    }
    return pace.round().pauseMs;
  };
  assert.equal(after(false, 700, 60, 400), 120);
  assert.equal(after(true, 30, 40, 20), 80);
  assert.equal(after(true, 10, 15), 30);
  // At least what a busy machine needs.
  assert.equal(after(true, 1), 10);
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

test("as long as nothing is denied there is no pace to keep", () => {
  const pace = new Pace(60_000);
  assert.deepEqual(pace.round(), { count: Infinity, pauseMs: 0 });
  pace.cut(5);
  pace.denied({ waitMs: 7 });
  assert.deepEqual(pace.round(), { count: 1, pauseMs: 7 });
  pace.reset();
  assert.deepEqual(pace.round(), { count: Infinity, pauseMs: 0 });
});

test("rounds grow from the tried count, not from what there was no room for", () => {
  const pace = new Pace(60_000);
  pace.denied({ waitMs: 5, message: { sinceLastMs: 0, roundTripMs: 100, inRound: true } });
  for (const count of [1, 2, 3, 4, 5]) assert.equal(pace.round().count, count);
  pace.cut(2);
  for (const count of [3, 4]) assert.equal(pace.round().count, count);
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
