/** tidegate for TypeScript. Each part also has its own path: `tidegate/relay`, `tidegate/kv`. */

export * as core from "./core/index.js";
export * as kv from "./kv/index.js";
export * as relay from "./relay/index.js";
