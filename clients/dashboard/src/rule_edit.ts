// Changes to a rule: each is previewed before it is applied.

import { request, segments } from "./api.ts";
import { button, fill, h } from "./dom.ts";
import { visible } from "./format.ts";
import type { Context } from "./page.ts";
import { card, notice, problemBox } from "./parts.ts";
import { openPreview } from "./preview.ts";
import { ruleForm } from "./rule_form.ts";
import type { Rule, Table } from "./types.ts";

function patch(context: Context, rule: Rule, change: Table): () => Promise<void> {
  return async () => {
    await request(`rules/${segments(rule.domain, rule.name)}`, { method: "PATCH", body: change });
    context.say(`Applied to ${visible(rule.name, 60)}.`);
    context.reload();
  };
}

/** A switch for shadow mode. */
export function shadowCard(context: Context, rule: Rule): HTMLElement {
  const isShadow = rule.mode === "shadow";
  const change: Table = { mode: isShadow ? "enforce" : "shadow" };
  const label = isShadow ? "Shadow mode is on" : "Shadow mode is off";
  const control = h(
    "button",
    {
      type: "button",
      class: "switch",
      role: "switch",
      "aria-checked": String(isShadow),
      on: {
        click: () =>
          openPreview(
            isShadow ? "Enforce this rule" : "Put this rule into shadow mode",
            { domain: rule.domain, rule: rule.name, change },
            patch(context, rule, change),
          ),
      },
    },
    h("span", { class: "switch-knob", "aria-hidden": "true" }),
    label,
  );
  return card(
    "Shadow mode",
    control,
    h("p", { class: "hint" }, "In shadow mode denials are counted, and requests are allowed."),
  );
}

/** The form of a rule. */
export function editCard(context: Context, rule: Rule): HTMLElement {
  const form = ruleForm(rule);
  const problem = h("div");
  const preview = (): void => {
    fill(problem);
    let change: Table;
    try {
      change = form.change();
    } catch (error) {
      fill(problem, problemBox(error));
      return;
    }
    if (Object.keys(change).length === 0) {
      fill(problem, notice("info", "Nothing has been changed in the form."));
      return;
    }
    openPreview(
      `Change ${visible(rule.domain, 60)}/${visible(rule.name, 60)}`,
      { domain: rule.domain, rule: rule.name, change },
      patch(context, rule, change),
    );
  };
  const element = h(
    "form",
    {
      on: {
        submit: (event) => {
          event.preventDefault();
          preview();
        },
      },
    },
    form.element,
    problem,
    h(
      "div",
      { class: "actions" },
      h("button", { type: "submit", class: "button primary" }, "Preview the change"),
      button("Undo my input", context.reload),
    ),
  );
  return card("Edit", element);
}
