// Used by screenshots.sh: opens flame graphs and pages of call trees at two widths, checks what the
// browser shows, and takes screenshots.
import assert from "node:assert/strict";
import path from "node:path";
import { chromium } from "playwright-core";

const [folder, ...files] = process.argv.slice(2);
// In milliseconds. Long enough for busy machines.
const TIMEOUT = 300_000;

// The functions below run in the page.

// Violations in a flame graph.
function checkFlameGraph(isIcicle) {
  const failures = [];
  const fail = (text) => failures.length < 9 && failures.push(text);
  const svg = document.documentElement;
  const view = { left: 0, right: window.innerWidth, top: 0, bottom: window.innerHeight };
  const isWithin = (inner, outer) =>
    inner.left >= outer.left - 0.5 && inner.right <= outer.right + 0.5 && inner.top >= outer.top - 0.5 && inner.bottom <= outer.bottom + 0.5;
  const shown = [...svg.querySelectorAll("#frames > g")].filter((group) => getComputedStyle(group).display !== "none");
  const boxOf = (group) => group.querySelector("rect").getBoundingClientRect();
  const luminance = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map((part) => {
      const value = Number(part) / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  let texts = 0;
  for (const group of shown) {
    const [title, rect, text] = group.children;
    if (/^Idle( \(0\))? \(process/.test(title.textContent)) fail("an idle process is shown");
    if (text.textContent === "") continue;
    texts += 1;
    if (!isWithin(text.getBoundingClientRect(), boxOf(group))) fail(`text outside of its box: ${text.textContent}`);
    const ratio = contrast(getComputedStyle(text).fill, getComputedStyle(rect).fill);
    if (!(ratio >= 4.5)) fail(`contrast ${ratio} of ${text.textContent}`);
  }
  if (texts < 3) fail(`only ${texts} frames with a text`);
  for (const text of svg.querySelectorAll("#head text")) {
    if (text.textContent !== "" && !isWithin(text.getBoundingClientRect(), view)) fail(`outside of the window: ${text.textContent}`);
  }
  const head = svg.querySelector("#cover").getBoundingClientRect();
  for (const text of svg.querySelectorAll("#head text")) {
    if (!isWithin(text.getBoundingClientRect(), head)) fail(`outside of the header: ${text.textContent}`);
  }
  // The header covers what is below it.
  const base = boxOf(shown[0]);
  if (!isWithin(base, { ...view, top: head.bottom })) fail(`the base is at ${base.top}..${base.bottom}`);
  const boxes = shown.map(boxOf);
  if (boxes.some((box) => (isIcicle ? box.top < base.top : box.top > base.top))) fail("a frame is beyond the base");
  for (const legend of svg.querySelectorAll("#legend text")) {
    if (contrast(getComputedStyle(legend).fill, "rgb(255,255,255)") < 4.5) fail("contrast of the legend");
  }
  return failures;
}

// Violations in the page of a call tree.
function checkTree(levels) {
  const failures = [];
  const fail = (text) => failures.length < 9 && failures.push(text);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) fail(`the page has ${root.scrollWidth} of ${root.clientWidth} pixels`);
  const rows = [...document.querySelectorAll(".stackhound-tree .stackhound-frame")];
  const deepest = Math.max(...rows.map((row) => {
    let level = 0;
    for (let at = row.closest("li"); (at = at.parentElement.closest("li")); ) level += 1;
    return level;
  }));
  if (deepest < levels) fail(`only ${deepest} levels`);
  // Deeper rows than browsers nest are at the same place as their callers.
  if (rows.length !== 402) fail(`${rows.length} rows`);
  for (const row of rows) {
    const box = row.getBoundingClientRect();
    if (box.left < 0 || box.right > root.clientWidth + 0.5) fail(`outside of the window: ${row.textContent}`);
    // The indentation leaves most of the line.
    if (box.left > Math.max(0.4 * root.clientWidth, 400)) fail(`indented by ${box.left} pixels: ${row.textContent}`);
  }
  return failures;
}

async function photograph(page, name, width) {
  await page.screenshot({ path: path.join(folder, `${name}-${width}.png`) });
}

async function tree(page, name, width) {
  const check = async (state) => assert.deepEqual(await page.evaluate(checkTree, 100), [], `${name}, ${width}: ${state}`);
  await check("opened");
  for (const level of [90, 152, 190]) await search(page, level, check);
  await photograph(page, name, width);
  // The outermost of the shown callers, with the keyboard.
  await page.focus("#callers li");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => {
    const rows = [...document.querySelectorAll(".stackhound-tree .stackhound-frame")];
    const box = rows.find((row) => row.textContent.includes("level_187")).getBoundingClientRect();
    return box.top >= document.getElementById("bar").getBoundingClientRect().bottom;
  });
  assert.equal(await page.evaluate(() => document.activeElement.parentElement.id), "callers");
  await page.fill("#find", "short");
  await page.press("#find", "Enter");
  assert.match(await page.textContent("#count"), /^2 of \d+$/);
  await page.fill("#find", "no such function");
  assert.equal(await page.textContent("#count"), "not found");
}

async function search(page, level, check) {
  await page.fill("#find", `level_${level}`);
  assert.equal(await page.textContent("#count"), "1 of 1");
  // Callers are those of the first visible row, which is close to the one that was found.
  await page.waitForFunction((level) => {
    const callers = [...document.querySelectorAll("#callers li")];
    return callers.length === 3 && callers.every((line) => Math.abs(Number(line.textContent.match(/level_(\d+)/)?.[1]) - level) < 9);
  }, level);
  await check("searched");
  const state = await page.evaluate(() => {
    const box = document.querySelector(".found.current").getBoundingClientRect();
    const bar = document.getElementById("bar").getBoundingClientRect();
    return {
      isVisible: box.top >= bar.bottom && box.bottom <= window.innerHeight,
      bar: bar.top,
      callers: [...document.querySelectorAll("#callers li")].map((line) => /^(\d+): .*level_(\d+)/.exec(line.textContent).slice(1).map(Number)),
    };
  });
  assert.ok(state.isVisible && state.bar === 0, JSON.stringify(state));
  const [first, second, third] = state.callers.map(([number, inName]) => (number === inName ? number : NaN));
  assert.ok(second === first + 1 && third === second + 1 && third < level, state.callers.join());
}

async function flameGraph(page, name, width) {
  const isIcicle = name.endsWith("icicle");
  const check = async (state) => assert.deepEqual(await page.evaluate(checkFlameGraph, isIcicle), [], `${name}, ${width}: ${state}`);
  await check("opened");
  if (name.startsWith("diff")) {
    const classes = await page.$$eval("#frames rect", (all) => all.map((rect) => rect.getAttribute("class")[0]));
    const colors = ["m", "o"].map((wanted) => classes.filter((found) => found === wanted).length);
    assert.ok(colors.every((count) => count > 1) && colors[0] < colors[1], `${name}: ${colors} frames with and without a change`);
  }
  await photograph(page, name, width);
  await page.setViewportSize({ width, height: 300 });
  await page.reload();
  await check("opened in a low window");
  await page.setViewportSize({ width, height: 900 });
  await page.reload();
  // The widest frame that is not the widest possible one, enlarged.
  const enlarged = await page.evaluate(() => {
    const groups = [...document.querySelectorAll("#frames > g")];
    const total = Number(document.getElementById("frames").dataset.total);
    const part = groups.filter((group) => Number(group.dataset.w) < total);
    const widest = part.reduce((a, b) => (Number(b.dataset.w) > Number(a.dataset.w) ? b : a));
    widest.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    return widest.querySelector("rect").getBoundingClientRect().width;
  });
  assert.ok(enlarged > width - 30, `${name}: enlarged to ${enlarged} pixels`);
  await check("enlarged");
  // Search, with the answer to the question.
  page.once("dialog", (dialog) => dialog.accept("dll"));
  await page.evaluate(() => document.getElementById("search").dispatchEvent(new MouseEvent("click", { bubbles: true })));
  const found = await page.evaluate(() => {
    const groups = [...document.querySelectorAll("#frames > g")];
    const names = (list) => list.map((group) => group.querySelector("title").textContent.replace(/ \([^(]*\)$/, ""));
    const isFound = (group) => group.classList.contains("found");
    return [names(groups.filter(isFound)), names(groups.filter((group) => !isFound(group))), document.getElementById("found").textContent];
  });
  assert.ok(found[0].length > 0 && found[0].every((name) => /dll/i.test(name)) && !found[1].some((name) => /dll/i.test(name)));
  assert.match(found[2], /^\d+\.\d\d % found: dll/);
  await check("searched");
  await photograph(page, `${name}-found`, width);
  // The keyboard, in place of the mouse.
  const foundText = () => page.textContent("#found");
  await page.focus("#reset");
  await page.keyboard.press("Enter");
  assert.equal(await foundText(), "");
  page.once("dialog", (dialog) => dialog.accept("dll"));
  await page.focus("#search");
  await page.keyboard.press("Enter");
  assert.match(await foundText(), /found: dll/);
  // The header has all of a line that the image without the script cuts.
  const lines = await page.$$eval("#head .line", (all) => all.map((line) => [line.textContent, line.dataset.text]));
  for (const [shown, whole] of lines) assert.equal(shown.replaceAll(" ", ""), whole.replaceAll(" ", ""));
  // Addresses can be damaged.
  await page.evaluate(() => (location.hash = "#%E0%A4%A"));
  await page.reload();
  assert.match(await foundText(), /found: %E0%A4%A/);
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  timeout: TIMEOUT,
  args: ["--no-sandbox"],
});
try {
  for (const width of [1400, 400]) {
    const page = await browser.newPage({ viewport: { width, height: 900 } });
    page.setDefaultTimeout(TIMEOUT);
    const errors = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("request", (request) => request.url().startsWith("file:") || errors.push(`requests ${request.url()}`));
    for (const file of files) {
      const name = path.basename(file, path.extname(file));
      await page.goto(`file://${path.resolve(file)}`);
      await (file.endsWith(".svg") ? flameGraph : tree)(page, name, width);
    }
    assert.deepEqual(errors, []);
    await page.close();
  }
  console.log(`screenshots: ${files.length} pictures are correct at 1400 and 400 pixels`);
} finally {
  await browser.close();
}
