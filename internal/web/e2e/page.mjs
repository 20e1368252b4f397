// What journeys do with a page.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

export const shots = process.env.SHOTS;
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** see waits until a text is in the page. If it is not, the error has what the page says of the connection. */
export async function see(page, text) {
  try {
    await page.locator(`text=${text}`).first().waitFor();
  } catch (e) {
    const says = await page.evaluate(() => document.querySelector(".strip, footer")?.textContent).catch(() => "nothing");
    e.stack += `\nthe page says: ${says}`;
    throw e;
  }
}
export const gone = (page, selector) => page.locator(selector).first().waitFor({ state: "detached" });

/** press presses keys, one after the other. Those of a chord, such as "g r", do not wait for what the page does with the
 * one before: it takes them together only if they come within a second. */
export async function press(page, ...keys) {
  for (const k of keys) await Promise.all(k.split(" ").map(one => page.keyboard.press(one)));
}

/** until waits until a function in the page is true. */
export const until = (page, f, arg) => page.waitForFunction(f, arg, { polling: 50 });

/** whole waits until each row in view has its line. */
export const whole = page => until(page, () => !document.querySelector(".row .ghost"));

/** fair checks what a screen must be in every state: accessible in every theme, and not too wide. */
export async function fair(page, name, themes = ["light", "dark"]) {
  const shifts = await page.evaluate(() => window.shifts.splice(0));
  // Rows of a log may move: lines that wrap have heights of their own.
  assert.deepEqual(shifts.filter(s => s.value > 0.1 && !s.rows), [], `${name}: what is read moves`);
  for (const [i, theme] of themes.entries()) {
    await page.emulateMedia({ colorScheme: theme });
    await look(page, themes.length > 1 ? `${name}-${theme}` : name, i === 0 ? everything : colours);
  }
  await page.emulateMedia({ colorScheme: null });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${name} is ${wide} pixels too wide`);
}

const everything = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const colours = ["color-contrast", "link-in-text-block"]; // all that another theme changes
// Rows that are like those above them.
const alike = [".row:nth-child(n + 9):not(.gap, .at, :has(mark, a:not(.n), button, [class*=fg], [class*=bg]))", ".events tr:nth-child(n + 13):not(.at)"];

async function look(page, name, runOnly) {
  if (shots) {
    mkdirSync(shots, { recursive: true });
    await page.screenshot({ path: join(shots, name + ".png") });
  }
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axe);
  const found = await page.evaluate(async ([runOnly, alike]) => {
    const exclude = alike.filter(s => document.querySelector(s)).map(s => [s]);
    const r = await window.axe.run({ include: [["html"]], exclude }, { runOnly, iframes: false, resultTypes: ["violations"] });
    for (const v of r.violations) {
      // What is scrolled half out of sight is not too small.
      if (v.id === "target-size") v.nodes = v.nodes.filter(n => !n.any.some(c => c.message.includes("obscured")));
    }
    return r.violations.filter(v => v.nodes.length > 0).map(v => `${v.id}: ${v.help}: ${v.nodes.map(n => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).slice(0, 3).join(" | ")}`);
  }, [runOnly, alike]);
  assert.deepEqual(found, [], name);
}
