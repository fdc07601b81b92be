// Opens a page of `tidegate replay --html`, and fails with one line for everything that is wrong.
// usage: node replay-page.mjs PAGE [SCREENSHOT]

import { pathToFileURL } from "node:url";
import { accessibilityViolations, withPage } from "./browser.mjs";

const [file, screenshot] = process.argv.slice(2);
const url = pathToFileURL(file).href;
const hostile = "<img src=x onerror=alert(1)>";
const found = [];

async function look(page, problems) {
  const data = JSON.parse(await page.locator("#data").textContent());
  const expect = (what, is) => is || problems.push(`missing: ${what}`);
  const text = await page.locator("main").innerText();
  expect("the number of requests", text.includes(new Intl.NumberFormat("en").format(data.requests)));
  expect("the chart of traffic", data.requests === 0 || (await page.locator("#traffic svg rect.allowed").count()) > 0);
  expect("every rule", (await page.locator("#rules tbody tr").count()) === data.rules.length);
  expect("every denied key", (await page.locator("#keys tbody tr").count()) === data.top_denied.length);
  if (data.denied > 0) {
    expect("the denials in the chart", (await page.locator("#traffic svg rect.denied").count()) > 0);
    expect("the heat map", (await page.locator("#heat svg rect.cell").count()) > 0);
    await page.locator("#denials summary").first().click();
    expect("the explanation", (await page.locator("#denials details[open] li").count()) > 0);
  }
  const keys = data.top_denied.map(({ key }) => Object.values(key)).flat();
  if (keys.some((key) => key?.includes(hostile))) {
    expect("the hostile key as text", text.includes(hostile));
    expect("no element made of a key", (await page.locator("img").count()) === 0);
  }
  problems.push(...(await accessibilityViolations(page)));
}

for (const colorScheme of ["light", "dark"]) {
  for (const width of [1080, 380]) {
    const problems = await withPage(url, { colorScheme, width }, look);
    found.push(...problems.map((problem) => `${colorScheme}, ${width} px: ${problem}`));
  }
}
if (screenshot) {
  await withPage(url, { width: 1080, height: 1180 }, (page) => page.screenshot({ path: screenshot }));
}
for (const problem of found) console.error(problem);
process.exitCode = found.length > 0 ? 1 : 0;
