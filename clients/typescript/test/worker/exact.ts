/** An exact limit on the same platform: a Durable Object per user, with a state of the core. */

import { Bucket, type BucketState } from "tidegate/core";

/** The part of a Durable Object's state that is used. */
interface Surroundings {
  readonly storage: {
    get(key: string): Promise<unknown>;
    put(key: string, value: unknown): Promise<void>;
  };
}

interface Env {
  readonly LIMITS: {
    idFromName(name: string): object;
    get(id: object): { fetch(request: Request): Promise<Response> };
  };
}

const limit = Bucket.of({ count: 20n, periodNs: 3_600_000_000_000n, burst: 20n });

/** The limit of one user. While it waits for its storage, no other request is delivered to it. */
export class UserLimit {
  readonly #storage: Surroundings["storage"];

  constructor({ storage }: Surroundings) {
    this.#storage = storage;
  }

  async fetch(request: Request): Promise<Response> {
    const nowNs = BigInt(request.headers.get("x-now-ms") ?? Date.now()) * 1_000_000n;
    const kept = (await this.#storage.get("state")) as BucketState | undefined;
    const { decision, state } = limit.check(kept ?? limit.fresh(), 1n, nowNs);
    if (decision.allowed) await this.#storage.put("state", state);
    return Response.json({ allowed: decision.allowed, remaining: Number(decision.remaining) });
  }
}

export default {
  fetch(request: Request, { LIMITS }: Env): Promise<Response> {
    return LIMITS.get(LIMITS.idFromName(new URL(request.url).pathname)).fetch(request);
  },
};
