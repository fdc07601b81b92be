/**
 * The webhook of a Telegram bot as a Worker: authenticate, limit, and only then do expensive work.
 *
 * Bindings: the namespace `RATE_LIMIT_KV`, and `AGENT`, the service that gets each update
 * unchanged.
 */

import { KvRateLimiter, type RateLimitEnv } from "tidegate/kv";

interface Env extends RateLimitEnv {
  readonly TELEGRAM_WEBHOOK_SECRET: string;
  readonly TELEGRAM_BOT_TOKEN: string;
  /** Default: `https://api.telegram.org`. */
  readonly TELEGRAM_API_BASE?: string;
  /** Such as `123,456`; default: all users. */
  readonly ALLOWED_USER_IDS?: string;
  readonly AGENT: { fetch(url: string, init: RequestInit): Promise<Response> };
}

interface Update {
  readonly message?: {
    readonly from?: { readonly id: number };
    readonly chat: { readonly id: number };
  };
}

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    const { pathname } = new URL(request.url);
    if (request.method !== "POST" || pathname !== "/telegram/webhook") {
      return new Response("not found", { status: 404 });
    }
    const secret = request.headers.get("x-telegram-bot-api-secret-token") ?? "";
    if (!(await isSame(secret, env.TELEGRAM_WEBHOOK_SECRET))) {
      return new Response("unauthorized", { status: 401 });
    }
    const limiter = KvRateLimiter.fromEnv(env); // invalid settings fail before any message counts
    const text = await request.text();
    const { message } = JSON.parse(text) as Update;
    const user = message?.from?.id;
    if (message === undefined || user === undefined || !isAllowed(user, env)) return done();

    const { allowed } = await limiter.check(user);
    if (allowed) await env.AGENT.fetch("http://agent/message", { method: "POST", body: text });
    else await reply(message.chat.id, env);
    return done();
  },
};

function done(): Response {
  return Response.json({ ok: true });
}

function isAllowed(user: number, { ALLOWED_USER_IDS: allowed }: Env): boolean {
  return allowed === undefined || allowed.split(",").some((id) => id.trim() === String(user));
}

/** Telegram gets its response whether this succeeds or not: else it would resend the update. */
async function reply(chat: number, env: Env): Promise<void> {
  const base = env.TELEGRAM_API_BASE ?? "https://api.telegram.org";
  const text = "You've reached the message limit. Please try again later.";
  const init = {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ chat_id: chat, text }),
  };
  try {
    const { status } = await fetch(`${base}/bot${env.TELEGRAM_BOT_TOKEN}/sendMessage`, init);
    if (status !== 200) console.warn(`Telegram responded to the reply with ${status}`);
  } catch {
    console.warn("cannot reach Telegram for a reply");
  }
}

/** Compares digests, so that the time it takes reveals nothing about the secret. */
async function isSame(given: string, secret: string): Promise<boolean> {
  if (secret === undefined || secret === "") return false;
  const [a, b] = await Promise.all([given, secret].map(digest));
  return a !== undefined && b !== undefined && a.every((byte, index) => byte === b[index]);
}

async function digest(text: string): Promise<Uint8Array> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
}
