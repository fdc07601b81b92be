// Changes through the dashboard, each seen in effect by a real request.

import assert from "node:assert/strict";
import {
  accept,
  check,
  expectingStatus,
  HOSTILE,
  keptDenial,
  loaded,
  mainText,
  open,
  sendTraffic,
  until,
  untilText,
} from "./dashboard-helpers.mjs";

const ADA = { user: "ada", ip: "192.0.2.7" };
const isAllowed = async (http, attributes = ADA) => (await check(http, "api", attributes)).allowed;

async function openRule(page, name) {
  await open(page, "Rules");
  await page.getByRole("link", { name, exact: true }).click();
  await page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  await loaded(page);
}

async function explainAda(page) {
  await open(page, "Keys");
  await page.getByLabel("Domain", { exact: true }).selectOption("api");
  await page.getByLabel("user", { exact: true }).fill(ADA.user);
  await page.getByLabel("ip", { exact: true }).fill(ADA.ip);
  await page.getByRole("button", { name: "Explain", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Key", exact: true }).waitFor();
  await page.getByRole("heading", { name: "Now", exact: true }).waitFor();
}

/** Numbers change when there is traffic, without a reload. */
export async function seeLiveNumbers(page, http) {
  await open(page, "Overview");
  const denied = page.locator(".tile.denied .tile-value").first();
  await until("a second without denials", async () => (await denied.innerText()) === "0/s");
  await sendTraffic(http);
  await until("denials of this second", async () => /^[1-9]/.test(await denied.innerText()));
  await until("the rule among the busiest", async () =>
    (await page.locator(".busiest").innerText()).includes("api/search"),
  );
  const rows = await page.locator(".legend").first().locator("tbody tr").allInnerTexts();
  assert.match(rows[1], /denied/);
  assert.doesNotMatch(rows[1], /0\s+0\s+0$/, "the table of the chart has the denials");
}

/** A limit is raised after a preview. */
export async function editRule(page, http) {
  assert.equal(await isAllowed(http), false);
  await openRule(page, "api/search");
  await page.getByRole("button", { name: "Preview the change" }).click();
  await untilText(page, "Nothing has been changed");
  await page.getByLabel("Max", { exact: true }).fill("9");
  await page.getByRole("button", { name: "Preview the change" }).click();
  const dialog = page.getByRole("dialog");
  await until("the line of the change", async () => /5.*9/.test(await dialog.innerText()));
  assert.match(await dialog.innerText(), /Exact|An estimate|No estimate/);
  assert.equal(await isAllowed(http), false, "a preview changes nothing");
  await accept(page, "Apply");
  await untilText(page, "edited");
  assert.equal(await isAllowed(http), true, "the edit is in effect");
  // Up to the limit again.
  while (await isAllowed(http));
}

/** What another client changes is noticed, and does not replace what is being typed. */
export async function seeChangeOfOthers(page, admin) {
  await openRule(page, "api/search");
  await page.getByLabel("Max", { exact: true }).fill("77");
  const response = await fetch(`${admin}/admin/v1/rules/api/search`, {
    method: "PATCH",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ deny: "no more searches" }),
  });
  assert.equal(response.status, 200);
  await untilText(page, "changed meanwhile");
  assert.equal(await page.getByLabel("Max", { exact: true }).inputValue(), "77");
  await page.getByRole("button", { name: "Show it as it is now" }).click();
  await untilText(page, "no more searches");
}

/** An edit that cannot be applied says why, and changes nothing. */
export async function rejectEdit(page, problems) {
  await openRule(page, "api/search");
  await page.getByLabel("Max", { exact: true }).fill("0");
  await expectingStatus(problems, 422, async () => {
    await page.getByRole("button", { name: "Preview the change" }).click();
    const dialog = page.getByRole("dialog");
    await until("why", async () => (await dialog.innerText()).includes("at least 1"));
    assert.equal(await dialog.getByRole("button", { name: "Apply" }).isEnabled(), false);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  });
}

/** Shadow mode and back. */
export async function toggleShadow(page, http) {
  await openRule(page, "api/search");
  const control = page.getByRole("switch");
  assert.equal(await control.getAttribute("aria-checked"), "false");
  await control.click();
  await accept(page, "Apply");
  await until("shadow mode", async () => (await control.getAttribute("aria-checked")) === "true");
  assert.equal(await isAllowed(http), true, "denials are not enforced");
  await control.click();
  await accept(page, "Apply");
  await until("enforcement", async () => (await control.getAttribute("aria-checked")) === "false");
  assert.equal(await isAllowed(http), false, "denials are enforced");
}

/** A denial is found by the id of its response, and explained. */
export async function findDenial(page, http) {
  const id = await keptDenial(page.url(), http, ADA);
  await open(page, "Denials");
  await page.getByLabel("Decision id").fill(id);
  await page.getByRole("button", { name: "Find", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: `Denial ${id}` }).waitFor();
  await untilText(page, "too many searches");
  await page.getByRole("button", { name: "Explain the same request now" }).click();
  await untilText(page, "Denied now");
  assert.match(page.url(), new RegExp(`#/denials/${id}$`), "it can be linked to");
}

/** Names are text, whatever they contain. */
export async function readHostileNames(page) {
  await open(page, "Denials");
  const text = await mainText(page);
  assert.ok(text.includes(HOSTILE), "the hostile name is text");
  assert.ok(text.includes("two↵lines"), "a line break is visible");
  assert.ok(text.includes("⟨U+202E⟩reversed"), "a mark for direction is visible");
  assert.match(text, /x… \(10,?000 (bytes|characters)\)/, "a long name is cut");
  const row = page.getByRole("row").filter({ hasText: HOSTILE }).first();
  await row.getByRole("link").first().click();
  await page.getByRole("link", { name: "Open its keys" }).click();
  await page.getByRole("heading", { name: "Now", exact: true }).waitFor();
  assert.equal(await page.getByLabel("user", { exact: true }).inputValue(), HOSTILE);
  await until("its denials", async () => (await page.getByRole("row").filter({ hasText: HOSTILE }).count()) > 3);
}

/** An override for one key, and its end. */
export async function overrideKey(page, http) {
  await explainAda(page);
  await untilText(page, "Denied now");
  await page.getByRole("button", { name: "Override search…" }).click();
  await page.getByRole("dialog").getByLabel("Max", { exact: true }).fill("50");
  await accept(page, "Set the override");
  await untilText(page, "Allowed now");
  assert.equal(await isAllowed(http), true, "the override is in effect");
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  await accept(page, "Remove");
  await untilText(page, "Denied now");
  assert.equal(await isAllowed(http), false);
}

/** A ban that names a value exactly, and its end. */
export async function banKey(page, http) {
  const star = { user: "*", ip: "192.0.2.8" };
  assert.equal(await isAllowed(http, star), true);
  await page.goto(`${new URL(page.url()).origin}/#/keys/api?user=*&ip=192.0.2.8`);
  await page.getByRole("button", { name: "Ban…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("checkbox").first().check();
  await dialog.getByLabel("Reason").fill("an abuse report");
  await accept(page, "Ban");
  await untilText(page, "an abuse report");
  assert.equal((await check(http, "api", star)).reason, "an abuse report");
  const other = { user: "grace", ip: "192.0.2.8" };
  assert.equal(await isAllowed(http, other), true, "a star in a name is no pattern");
  await page.getByRole("button", { name: "Unban" }).click();
  await accept(page, "Unban");
  await untilText(page, "Allowed now");
  assert.equal(await isAllowed(http, star), true);
}

export async function resetKey(page, http) {
  await explainAda(page);
  await untilText(page, "Denied now");
  await page.getByRole("button", { name: "Reset…" }).click();
  await accept(page, "Reset");
  await untilText(page, "Allowed now");
  assert.equal(await isAllowed(http), true);
}

/** Keys near their limit, and those that are busy or denied most. */
export async function seeKeys(page) {
  await open(page, "Near the limit");
  await untilText(page, "100 %");
  await untilText(page, "Not all keys are known");
  await open(page, "Keys");
  const denied = page.locator("section").filter({ hasText: "Most denied keys" });
  await denied.getByRole("link").first().click();
  await page.getByRole("heading", { name: "Now", exact: true }).waitFor();
}

export async function readAudit(page) {
  await open(page, "Audit");
  for (const change of ["window.max", "mode", "override", "abuse report", "reset"]) await untilText(page, change);
  const details = page.getByRole("row").filter({ hasText: "window.max" }).last();
  await details.getByText("Lines before and after").click();
  await until("the lines", async () => /−.*max = 5\s+\+.*max = 9/s.test(await details.innerText()));
}

/** A broken policy shows where it is broken; a good one applies; edits are dropped. */
export async function editPolicy(page, http, problems) {
  await open(page, "Policy");
  const editor = page.getByLabel("Policy in TOML");
  const before = await editor.inputValue();
  await editor.fill(before.replace("max = 5", "max = 0"));
  await expectingStatus(problems, 422, async () => {
    await page.getByRole("button", { name: "Check and preview" }).click();
    await untilText(page, "must be at least 1");
  });
  await page.getByRole("button", { name: /^line \d+:\d+$/ }).click();
  const selected = await editor.evaluate((it) => it.value.slice(it.selectionStart, it.selectionEnd));
  assert.match(selected, /^0/, "the jump selects what is wrong");
  await open(page, "Rules");
  await open(page, "Policy");
  assert.match(await editor.inputValue(), /max = 0/, "what was typed is kept");
  await editor.fill(before.replace('max = 2, per = "round"', 'max = 3, per = "round"'));
  await page.getByRole("button", { name: "Check and preview" }).click();
  await accept(page, "Apply");
  await until("the policy in force", async () => /max = 3, per = "round"/.test(await editor.inputValue()));
  await page.getByRole("button", { name: "Drop all edits…" }).click();
  await accept(page, "Drop all edits");
  await untilText(page, "No edits over the policy");
  while (await isAllowed(http));
  const { limit } = await check(http, "api", ADA);
  assert.equal(limit, 5, "the limit of the policy counts again");
}

/** One flow by the keyboard alone. */
export async function useKeyboard(page) {
  await open(page, "Overview");
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  const focused = (name) => page.evaluate(`(document.activeElement?.${name} ?? "")`);
  const tabTo = async (text) => {
    for (let turn = 0; turn < 60; turn += 1) {
      await page.keyboard.press("Tab");
      if ((await focused("textContent")) === text) return;
    }
    throw new Error(`the keyboard does not reach “${text}”`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused("textContent"), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await focused("id"), "main");
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
  await tabTo("Rules");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "api/search", exact: true }).waitFor();
  assert.equal(await focused("textContent"), "Rules", "the heading of the page has the focus");
  await tabTo("api/search");
  await page.keyboard.press("Enter");
  await page.getByRole("switch").waitFor();
  await tabTo("Shadow mode is off");
  await page.keyboard.press("Space");
  await page.getByRole("dialog").waitFor();
  for (let turn = 0; turn < 12; turn += 1) {
    await page.keyboard.press("Tab");
    const isInside = await page.evaluate(
      "document.activeElement === document.body || document.activeElement.closest('dialog') !== null",
    );
    assert.ok(isInside, "the dialog keeps the focus");
  }
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.equal(await focused("role"), "switch", "the focus returns to where it was");
}
