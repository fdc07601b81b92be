/** tollgate for TypeScript. Each part is also a path of its own: `tollgate/relay`. */

export * as relay from "./relay/index.js";
