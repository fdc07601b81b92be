import { RelayConnection, type ConnectOptions } from "tidegate/relay";

import { FakeClock } from "./fake-clock.js";
import {
  challenge,
  fakeWebSocket,
  nextSent,
  result,
  type FakeWebSocket,
} from "./fake-web-socket.js";

/** A connection in progress to a relay that is the test. */
export interface Attempt {
  readonly clock: FakeClock;
  readonly socket: FakeWebSocket;
  readonly connecting: Promise<RelayConnection>;
}

/** Begins to connect. The relay has sent nothing yet. */
export async function attempt(options: Partial<ConnectOptions> = {}): Promise<Attempt> {
  const clock = new FakeClock();
  const { WebSocket, made } = fakeWebSocket();
  const connecting = RelayConnection.connect("wss://relay.example/ws", {
    key: new Uint8Array(32),
    WebSocket,
    clock,
    ...options,
  });
  // Handled where it is awaited; a rejection before that is expected.
  connecting.catch(() => {});
  return { clock, connecting, socket: await made };
}

/** Authenticates a client, and clears what it has sent so far. */
export async function admit({ socket }: Attempt): Promise<void> {
  const responded = nextSent(socket);
  socket.receive(challenge());
  await responded;
  socket.onSend = () => {};
  socket.sent.length = 0;
  socket.receive(result());
}
