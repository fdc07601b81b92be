// The login with a token.

import { ApiError } from "../api.ts";
import { field, fill, h } from "../dom.ts";
import { problemBox } from "../parts.ts";

const refused = (error: unknown): string | undefined =>
  error instanceof ApiError && error.status === 401 ? "This token is not accepted." : undefined;

export function loginPage(login: (token: string) => Promise<void>): HTMLElement {
  const token = h("input", {
    type: "password",
    name: "token",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
    maxlength: 4096,
  });
  const problem = h("div");
  const submit = h("button", { type: "submit", class: "button primary" }, "Log in");
  const run = async (): Promise<void> => {
    submit.disabled = true;
    fill(problem);
    try {
      await login(token.value.trim());
    } catch (error) {
      fill(problem, problemBox(error, refused(error)));
      submit.disabled = false;
      token.focus();
      token.select();
    }
  };
  const form = h(
    "form",
    {
      class: "login card",
      on: {
        submit: (event) => {
          event.preventDefault();
          void run();
        },
      },
    },
    h("h1", {}, "Log in"),
    h(
      "p",
      { class: "muted" },
      "This daemon needs a token with the scope inspect (to look) or admin (to change).",
    ),
    field("Token", token, "The secret that `tidegate token new` printed."),
    problem,
    submit,
  );
  queueMicrotask(() => token.focus());
  return form;
}
