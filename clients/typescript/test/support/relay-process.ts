import { spawn, type ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

/** The relay's program: TIDEGATE_RELAY_BIN, or that of the build in a clone of the repository. */
const PROGRAM =
  process.env["TIDEGATE_RELAY_BIN"] ??
  fileURLToPath(new URL("../../../../target/debug/tidegate-relay", import.meta.url));

/** The relay's public host. */
export const HOST = "localhost";

/** A relay in its own process. */
export interface RelayProcess {
  readonly url: string;
  /** Sends it a signal, and waits until it has ended. */
  end(signal: NodeJS.Signals): Promise<void>;
}

/** Starts a relay on a free port. It ends with the test. */
export async function startRelay(
  context: TestContext,
  environment: Record<string, string> = {},
): Promise<RelayProcess> {
  if (!existsSync(PROGRAM)) {
    throw new Error(
      `no relay at ${PROGRAM}: in a clone of the repository, build it with ` +
        "`cargo build --locked -p tidegate-recipe-relay`; elsewhere, set TIDEGATE_RELAY_BIN",
    );
  }
  const child = spawn(PROGRAM, {
    env: {
      ...process.env,
      PINCH_RELAY_PORT: "0",
      PINCH_RELAY_PUBLIC_HOST: HOST,
      PINCH_RELAY_GUARD: "off",
      RUST_LOG: "error",
      ...environment,
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const gone = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const end = (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    return gone;
  };
  context.after(() => end("SIGKILL"));
  return { url: `ws://127.0.0.1:${await portOf(child)}/ws`, end };
}

/** Waits for the line with its address. */
function portOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => reject(new Error(`the relay ended with ${code}`)));
    if (child.stdout === null) return;
    createInterface({ input: child.stdout }).on("line", (line) => {
      const port = /^listening on .*:(\d+)$/.exec(line)?.[1];
      if (port !== undefined) resolve(port);
    });
  });
}
