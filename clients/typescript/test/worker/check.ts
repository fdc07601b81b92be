/** A Worker that serves the check: `GET /<user>`, at the time that the request says. */

import { checkRateLimit, KvInvalidError, type KeyValue, type RateLimitEnv } from "tidegate/kv";

export default {
  async fetch(request: Request, env: RateLimitEnv): Promise<Response> {
    const userId = decodeURIComponent(new URL(request.url).pathname.slice(1));
    const nowMs = Number(request.headers.get("x-now-ms"));
    const broken = request.headers.get("x-broken");
    const store = broken === null ? env.RATE_LIMIT_KV : breaking(env.RATE_LIMIT_KV, broken);
    try {
      return Response.json(
        await checkRateLimit({ ...env, RATE_LIMIT_KV: store }, userId, { nowMs }),
      );
    } catch (error) {
      if (!(error instanceof KvInvalidError)) throw error;
      return new Response(error.message, { status: 500 });
    }
  },
};

/** The namespace, asked for what it refuses to do: no request of it is ever answered. */
function breaking(store: KeyValue, broken: string): KeyValue {
  const refused = "x".repeat(600);
  return {
    get: (key) => store.get(broken === "get" ? refused : key),
    put: (key, value, options) => store.put(broken === "put" ? refused : key, value, options),
  };
}
