// The policy in force, as text to edit, and the edits over it.

import { ApiError, get, request } from "../api.ts";
import { openDialog } from "../dialog.ts";
import { button, fill, h, type Child } from "../dom.ts";
import { createEditor, type Editor } from "../editor.ts";
import { plural, visible } from "../format.ts";
import type { Context, Page } from "../page.ts";
import { card, diagnosticList, foreign, loadInto, mayNotChange, notice } from "../parts.ts";
import { openPreview } from "../preview.ts";
import type { Diagnostic } from "../types.ts";

interface PolicyText {
  policy: string;
  overlay: string;
  version: number;
  file: string | null;
}

interface Applied {
  changes: number;
  warnings: Diagnostic[];
  needs_restart: string[];
  until: string;
}

/** What was typed and not applied, while other pages are shown. */
let draft: { readonly base: string; text: string } | null = null;

export function policy(context: Context): Page {
  const body = h("div");
  void loadInto(body, context.signal, async () =>
    policyBody(context, await get<PolicyText>("policy", context.signal)),
  );
  return { title: "Policy", element: body };
}

function policyBody(context: Context, it: PolicyText): Child {
  return [
    h(
      "p",
      { class: "muted" },
      it.file ? ["Loaded from ", foreign(it.file, "code"), ". "] : "There is no policy file. ",
      context.session.may_change &&
        "What is applied here stays in force until the file changes or the daemon restarts.",
    ),
    context.session.may_change ? editCard(context, it) : readCard(it),
    overlayCard(context, it),
  ];
}

function readCard(it: PolicyText): HTMLElement {
  return card("Policy in force", mayNotChange(), createEditor(it.policy, true).element);
}

function editCard(context: Context, it: PolicyText): HTMLElement {
  const isKept = draft !== null && draft.base === it.policy && draft.text !== it.policy;
  const editor = createEditor(isKept ? (draft?.text ?? "") : it.policy, false);
  const found = h("div", { class: "found" });
  draft = { base: it.policy, text: editor.text() };
  editor.onInput(() => {
    draft = { base: it.policy, text: editor.text() };
  });
  const undo = button("Undo my input", () => {
    draft = null;
    context.reload();
  });
  const preview = button(
    "Check and preview",
    () => {
      fill(found);
      editor.mark([]);
      const text = editor.text();
      openPreview(
        "Apply the policy",
        { policy: text },
        () => apply(context, text),
        (error) => showErrors(error, editor, found),
      );
    },
    "primary",
  );
  return card(
    "Policy in force",
    isKept && notice("info", "This is your text from before; it is not applied yet."),
    h("div", { class: "editor-and-found" }, editor.element, found),
    h("div", { class: "actions" }, preview, undo),
  );
}

function showErrors(error: unknown, editor: Editor, found: HTMLElement): void {
  const errors = error instanceof ApiError ? (error.problem.errors ?? []) : [];
  if (errors.length === 0) return;
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  editor.mark(errors);
  const list = diagnosticList(errors, (it) => editor.jump(it.line, it.column));
  fill(
    found,
    h(
      "div",
      { class: "notice error", role: "alert" },
      h("strong", {}, `Not applied: ${plural(errors.length, "problem")}`),
      list,
    ),
  );
  list.querySelector("button")?.focus();
}

async function apply(context: Context, text: string): Promise<void> {
  const applied = await request<Applied>("policy", { method: "PUT", body: { policy: text } });
  draft = null;
  const restart =
    applied.needs_restart.length > 0
      ? ` Needs a restart: ${applied.needs_restart.join(", ")}.`
      : "";
  context.say(`${plural(applied.changes, "change")} in force ${applied.until}.${restart}`);
  context.reload();
}

/** The edits with invisible characters made visible, and cut. */
function overlayText(overlay: string): string {
  const lines = overlay.split("\n");
  const shown = lines.slice(0, 2000).map((line) => visible(line, 2000));
  if (lines.length > shown.length)
    shown.push(`… (${plural(lines.length - shown.length, "more line")})`);
  return shown.join("\n");
}

function overlayCard(context: Context, it: PolicyText): HTMLElement {
  if (it.overlay.trim() === "")
    return card("Edits", h("p", { class: "empty" }, "No edits over the policy."));
  const drop = (): void => {
    openDialog({
      title: "Drop all edits",
      body: h(
        "p",
        {},
        "All edited rules, overrides and bans of the list are removed; the policy alone counts.",
      ),
      action: "Drop all edits",
      isDanger: true,
      act: async () => {
        const { changes } = await request<{ changes: number }>("overlay", { method: "DELETE" });
        context.say(`The edits are dropped: ${plural(changes, "change")}.`);
        context.reload();
      },
    });
  };
  return card(
    "Edits over the policy",
    h(
      "pre",
      { class: "code overlay", tabindex: 0, role: "region", "aria-label": "Edits in TOML" },
      overlayText(it.overlay),
    ),
    context.session.may_change &&
      h("div", { class: "actions" }, button("Drop all edits…", drop, "danger")),
  );
}
