import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import { startWorker, type Worker } from "./support/workers.js";

const SECRET = "s3cret";
/** 366 days: longer than the test runs. */
const WINDOW_MS = "31622400000";

/** The example's Worker, with what it dispatched and replied. */
async function start(context: TestContext, more: Record<string, string> = {}) {
  const dispatched: unknown[] = [];
  const replies: { url: string; body: unknown }[] = [];
  const telegram = { status: 200 };
  const worker = await startWorker(context, {
    program: "examples/telegram-worker.js",
    variables: {
      TELEGRAM_WEBHOOK_SECRET: SECRET,
      TELEGRAM_BOT_TOKEN: "123:ABC",
      TELEGRAM_API_BASE: "http://telegram",
      RATE_LIMIT_ALGORITHM: "sliding",
      RATE_LIMIT_WINDOW_MS: WINDOW_MS,
      ...more,
    },
    services: {
      AGENT: async (request) => {
        dispatched.push(await request.json());
        return new Response();
      },
    },
    outbound: async (request) => {
      replies.push({ url: request.url, body: await request.json() });
      return new Response(null, { status: telegram.status });
    },
  });
  return { worker, dispatched, replies, telegram };
}

function update(user: number): object {
  return { update_id: 1, message: { from: { id: user }, chat: { id: user }, text: "hello" } };
}

function send(worker: Worker, body: object, secret = SECRET): Promise<Response> {
  const headers = { "x-telegram-bot-api-secret-token": secret };
  const request = { method: "POST", headers, body: JSON.stringify(body) };
  return worker.fetch("/telegram/webhook", request);
}

test("the example: twenty messages reach the agent, the next gets a reply", async (context) => {
  const { worker, dispatched, replies, telegram } = await start(context);
  for (let sent = 0; sent < 22; sent++) {
    // Telegram gets its response even when it rejects the reply.
    if (sent === 21) telegram.status = 500;
    const response = await send(worker, update(42));
    assert.deepEqual([response.status, await response.json()], [200, { ok: true }]);
  }
  assert.equal(dispatched.length, 20);
  assert.deepEqual(dispatched[0], update(42));
  const text = "You've reached the message limit. Please try again later.";
  const reply = { url: "http://telegram/bot123:ABC/sendMessage", body: { chat_id: 42, text } };
  assert.deepEqual(replies, [reply, reply]);
  assert.equal(await worker.nextLine(), "Telegram responded to the reply with 500");
  await send(worker, update(7));
  assert.equal(dispatched.length, 21, "another user");
});

test("the example: requests that fail before the limit are not counted", async (context) => {
  const { worker, dispatched, replies } = await start(context, { ALLOWED_USER_IDS: "42, 7" });
  assert.equal((await send(worker, update(42), "wrong")).status, 401);
  assert.equal((await send(worker, update(42), "")).status, 401);
  assert.equal((await worker.fetch("/telegram/webhook")).status, 404);
  for (const ignored of [update(9), {}, { message: { chat: { id: 1 } } }]) {
    assert.deepEqual(await (await send(worker, ignored)).json(), { ok: true });
  }
  assert.deepEqual([dispatched, replies], [[], []]);
  assert.deepEqual((await worker.namespace.list()).keys, []);
  await send(worker, update(7));
  assert.deepEqual(dispatched, [update(7)]);
});
