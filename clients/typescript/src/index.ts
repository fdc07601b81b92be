/** tidegate for TypeScript. Each part is also a path of its own: `tidegate/relay`, `tidegate/kv`. */

export * as core from "./core/index.js";
export * as kv from "./kv/index.js";
export * as relay from "./relay/index.js";
