import { RelayConnection, type ConnectOptions } from "tidegate/relay";

import { FakeClock } from "./fake-clock.js";
import {
  challenge,
  fakeWebSocket,
  nextSent,
  result,
  type FakeWebSocket,
} from "./fake-web-socket.js";

/** A connection that is being made, to a relay that is the test. */
export interface Attempt {
  readonly clock: FakeClock;
  readonly socket: FakeWebSocket;
  readonly connecting: Promise<RelayConnection>;
}

/** Begins to connect. The relay has said nothing yet. */
export async function attempt(options: Partial<ConnectOptions> = {}): Promise<Attempt> {
  const clock = new FakeClock();
  const { WebSocket, made } = fakeWebSocket();
  const connecting = RelayConnection.connect("wss://relay.example/ws", {
    key: new Uint8Array(32),
    WebSocket,
    clock,
    ...options,
  });
  // Handled where it is awaited; a rejection before that is no accident.
  connecting.catch(() => {});
  return { clock, connecting, socket: await made };
}

/** Lets a client in, with whatever it has sent so far forgotten. */
export async function letIn({ socket }: Attempt): Promise<void> {
  const answered = nextSent(socket);
  socket.receive(challenge());
  await answered;
  socket.onSend = () => {};
  socket.sent.length = 0;
  socket.receive(result());
}
