import type { TestContext } from "node:test";

/** Collects uncaught errors during one test; the returned function waits for this many of them. */
export function uncaught(context: TestContext): (count: number) => Promise<unknown[]> {
  const errors: unknown[] = [];
  const others = process.listeners("uncaughtException");
  const collect = (error: unknown): void => void errors.push(error);
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", collect);
  context.after(() => {
    process.off("uncaughtException", collect);
    for (const other of others) process.on("uncaughtException", other);
  });
  return async (count) => {
    // Each is thrown in its own task.
    for (let turn = 0; turn <= count; turn++) await new Promise((done) => setImmediate(done));
    return errors;
  };
}
