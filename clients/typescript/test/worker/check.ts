/** A Worker that serves the check: `GET /<user>`, at the time in the request. */

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

/** The namespace with invalid calls: none of them succeeds. */
function breaking(store: KeyValue, broken: string): KeyValue {
  const tooLong = "x".repeat(600);
  return {
    get: (key) => store.get(broken === "get" ? tooLong : key),
    put: (key, value, options) => store.put(broken === "put" ? tooLong : key, value, options),
  };
}
