import { createServer, connect, type Socket } from "node:net";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

/** How a connection through a proxy is treated. */
export interface ProxyOptions {
  /** How long bytes take, in each direction. */
  readonly oneWayMs?: number;
  /** Responses to the first connections, in place of the relay's. */
  readonly refusals?: string[];
}

/** Starts a proxy in front of a relay, and returns the URL through it. It ends with the test. */
export async function startProxy(
  context: TestContext,
  relayUrl: string,
  { oneWayMs = 0, refusals = [] }: ProxyOptions,
): Promise<string> {
  const relayPort = Number(new URL(relayUrl).port);
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    sockets.add(client.setNoDelay());
    client.on("error", () => client.destroy());
    const refusal = refusals.shift();
    if (refusal !== undefined) return void client.once("data", () => client.end(refusal));
    const relay = connect(relayPort, "127.0.0.1").setNoDelay();
    sockets.add(relay);
    relay.on("error", () => relay.destroy());
    forward(client, relay, oneWayMs);
    forward(relay, client, oneWayMs);
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  context.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `ws://127.0.0.1:${(server.address() as AddressInfo).port}/ws`;
}

/** Passes on everything, as much later, in order. */
function forward(from: Socket, to: Socket, ms: number): void {
  from.on("data", (chunk) => void setTimeout(() => to.write(chunk), ms));
  from.on("close", () => void setTimeout(() => to.destroy(), ms));
}
