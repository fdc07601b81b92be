// Modal dialogs. The browser keeps the focus inside, and Escape closes them.

import { button, fill, h, newId, type Child } from "./dom.ts";
import { problemBox } from "./parts.ts";

export interface DialogOptions {
  readonly title: string;
  readonly body: Child;
  /** The label of the button that acts. */
  readonly action: string;
  readonly isDanger?: boolean;
  readonly act: () => Promise<void>;
}

export interface Dialog {
  /** Allows or forbids the action. */
  enable(isEnabled: boolean): void;
  readonly close: () => void;
}

/** Opens a dialog with one action. A failure of it is shown inside, and the dialog stays. */
export function openDialog({ title, body, action, isDanger = false, act }: DialogOptions): Dialog {
  const id = newId("dialog");
  const problem = h("div");
  const submit = h(
    "button",
    { type: "submit", class: `button ${isDanger ? "danger" : "primary"}` },
    action,
  );
  const dialog = h("dialog", { "aria-labelledby": id });
  const close = (): void => dialog.close();
  const form = h(
    "form",
    {
      method: "dialog",
      on: {
        submit: (event) => {
          event.preventDefault();
          if (!submit.disabled) void run();
        },
      },
    },
    h("h2", { id }, title),
    h("div", { class: "dialog-body" }, body),
    problem,
    h("div", { class: "dialog-actions" }, button("Cancel", close), submit),
  );
  const run = async (): Promise<void> => {
    submit.disabled = true;
    fill(problem);
    try {
      await act();
      close();
    } catch (error) {
      fill(problem, problemBox(error));
      submit.disabled = false;
    }
  };
  dialog.append(form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return { close, enable: (isEnabled) => void (submit.disabled = !isEnabled) };
}

/** Closes what is open, when another page is shown. */
export function closeDialogs(): void {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}
