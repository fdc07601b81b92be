/** From a new WebSocket to an authenticated one, or to an error. */

import { AuthError, TimeoutError } from "./errors.js";
import { signedResponse, readChallenge, readResult, type Identity } from "./handshake.js";
import type { Settings } from "./options.js";
import { connectError, type Socket } from "./socket.js";

/**
 * Authenticates on a socket, and resolves with the result of `made` for the address.
 *
 * `made` is called while the relay's result is handled, before any later frame, and has to install
 * its own listener. After an error the socket is closed.
 */
export function authenticate<T>(
  socket: Socket,
  identity: Identity,
  settings: Settings,
  made: (address: string) => T,
  timeoutMs: number,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const { signal, relayHost } = settings.options;
    let step: "challenge" | "signing" | "result" | "over" = "challenge";

    const over = (): void => {
      step = "over";
      cancelTimer();
      signal?.removeEventListener("abort", abort);
    };
    const fail = (error: unknown): void => {
      if (step === "over") return;
      over();
      socket.listener = undefined;
      socket.close(1000, "");
      reject(error);
    };
    const abort = (): void => fail(signal?.reason);
    const cancelTimer = settings.clock.after(timeoutMs, () => {
      const missing = step === "challenge" ? "challenge" : "response to the signed challenge";
      fail(new TimeoutError(`no ${missing} from the relay within ${settings.timeoutMs} ms`));
    });
    signal?.addEventListener("abort", abort, { once: true });

    const sign = async (frame: Uint8Array): Promise<void> => {
      step = "signing";
      const challenge = readChallenge(frame, {
        ...(relayHost !== undefined && { relayHost }),
        nowMs: settings.clock.wallMs(),
        clockSkewMs: settings.clockSkewMs,
      });
      const response = await signedResponse(challenge, identity);
      if (step !== "signing") return;
      step = "result";
      socket.send(response);
    };
    const finish = (frame: Uint8Array): void => {
      const result = made(readResult(frame));
      over();
      resolve(result);
    };

    socket.listener = {
      frame(bytes) {
        if (step === "challenge") return void sign(bytes).catch(fail);
        try {
          if (step !== "result")
            throw new AuthError("unexpected", "the relay sent a message out of turn");
          finish(bytes);
        } catch (error) {
          fail(error);
        }
      },
      badFrame(cause) {
        fail(new AuthError("unexpected", "the relay sent a malformed message", { cause }));
      },
      end: (end) => fail(connectError(end)),
    };
  });
}
