// Used by speedscope-check.sh: validates a file with speedscope's own schema, then opens it in a
// headless browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { chromium } from "playwright-core";

const [file, screenshot] = process.argv.slice(2);
const require = createRequire(import.meta.url);
const release = path.join(path.dirname(require.resolve("speedscope/package.json")), "dist/release");
const profile = JSON.parse(readFileSync(file, "utf8"));

const Ajv = require("ajv").default;
const validate = new Ajv({ strict: false }).compile(
  JSON.parse(readFileSync(path.join(release, "file-format-schema.json"), "utf8")),
);
assert.ok(validate(profile), JSON.stringify(validate.errors));

// The expected view of one thread: the weight of each function alone, and with all functions that
// it calls.
const active = profile.profiles[profile.activeProfileIndex];
const weights = new Map();
active.samples.forEach((stack, index) => {
  const weight = active.weights[index];
  const add = (frame, own, total) => {
    const name = profile.shared.frames[frame].name;
    const sum = weights.get(name) ?? { own: 0, total: 0 };
    weights.set(name, { own: sum.own + own, total: sum.total + total });
  };
  add(stack.at(-1), weight, 0);
  new Set(stack).forEach((frame) => add(frame, 0, weight));
});

// In milliseconds. Long enough for busy machines.
const TIMEOUT = 300_000;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  timeout: TIMEOUT,
  args: ["--no-sandbox", "--enable-unsafe-swiftshader", "--allow-file-access-from-files"],
});
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 900 } });
  page.setDefaultTimeout(TIMEOUT);
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`file://${release}/index.html`);
  await page.locator("input[type=file]").setInputFiles(path.resolve(file));
  await page.waitForFunction((name) => document.body.innerText.includes(name), active.name);
  if (screenshot) {
    await page.waitForTimeout(500);
    await page.screenshot({ path: screenshot });
  }
  // The list of threads and the table of the third view are text; the other views are drawn.
  const rowsOf = (which) =>
    page.$$eval("table", (tables, which) => {
      const rows = [...tables.at(which).querySelectorAll("tr")].map((row) => [...row.querySelectorAll("td")]);
      return rows.map((cells) => cells.map((cell) => cell.textContent.trim())).filter((cells) => cells.length);
    }, which);
  const threads = await rowsOf(0);
  assert.deepEqual(
    threads.map(([, name, weight]) => [name, Number(weight.replaceAll(",", ""))]),
    profile.profiles.map((thread) => [thread.name, thread.endValue]),
  );
  await page.keyboard.press("3");
  await page.getByText("Symbol Name").waitFor();
  const rows = await rowsOf(-1);
  assert.ok(rows.length >= Math.min(weights.size, 5), `only ${rows.length} rows`);
  // "12 (34%)"
  const number = (text) => Number(text.split("(")[0].replaceAll(",", ""));
  for (const [total, own, name] of rows) {
    const expected = weights.get(name);
    assert.ok(expected, `${name} is shown and not in the file`);
    assert.deepEqual({ own: number(own), total: number(total) }, expected, name);
  }
  assert.deepEqual(errors, []);
  console.log(`speedscope shows all ${threads.length} threads, and ${rows.length} functions of ${active.name}, as in the file`);
} finally {
  await browser.close();
}
