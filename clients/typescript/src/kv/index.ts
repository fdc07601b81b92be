/** A rate limit per user over a key-value namespace, for edge platforms. */

export type { Clock } from "../shared/clock.js";
export type { Logger } from "../shared/log.js";
export type { RateLimitEnv } from "./environment.js";
export { KvInvalidError } from "./errors.js";
export { defaultLimit, type KvAlgorithm, type KvLimit } from "./limit.js";
export {
  checkRateLimit,
  KvRateLimiter,
  type CheckOptions,
  type KvRateLimiterOptions,
  type RateLimitResult,
  type UserId,
} from "./rate-limiter.js";
export type { KeyValue } from "./store.js";
