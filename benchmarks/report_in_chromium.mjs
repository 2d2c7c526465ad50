// Drive a report in headless Chromium: folds, marks, widths, colours, requests; and take pictures.
//
//     apt-get install chromium && npm install playwright-core
//     node benchmarks/report_in_chromium.mjs report.html [FOLDER for pictures]
//
// It ends with 1 where a fold does not turn, a mark shows no words, the page is wider than a
// phone, dark is not dark, the page asks for anything, or a script fails.
import { chromium } from "playwright-core";
import { resolve } from "node:path";

const [file, folder = "."] = process.argv.slice(2);
const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };
const wide = { viewport: { width: 1280, height: 900 } };
const looks = { desktop: wide, phone, dark: { ...wide, colorScheme: "dark" } };
const flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"];
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
let faults = 0;

for (const [look, options] of Object.entries(looks)) {
  const page = await (await browser.newContext(options)).newPage();
  const said = [];
  const isOutside = (url) => !/^(file|data|blob|about):/.test(url);
  page.on("request", (one) => isOutside(one.url()) && said.push(`asks for ${one.url()}`));
  page.on("pageerror", (error) => said.push(String(error)));
  await page.goto(`file://${resolve(file)}`);
  await page.screenshot({ path: `${folder}/${look}.png` });

  const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (beyond > 0) said.push(`is ${beyond} pixels wider than the screen`);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const isDark = Math.max(...ground.match(/\d+/g).slice(0, 3)) < 128;
  if (isDark !== (look === "dark")) said.push(`has the ground ${ground}`);

  const folds = await page.$$("details"); // outer ones come first, and stay open for the inner
  for (const fold of folds) {
    await fold.evaluate((one) => { one.open = false; });
    await (await fold.$("summary")).click();
    if (!(await fold.evaluate((one) => one.open))) said.push("has a fold that does not open");
  }
  const marks = await page.$$(".point:has(.tip)");
  for (const mark of marks) {
    await mark.focus();
    const shown = await mark.$eval(".tip", (one) => getComputedStyle(one).display);
    if (shown === "none") said.push("has a mark that shows no words");
  }
  faults += said.length;
  console.log(`${look}: ${folds.length} folds, ${marks.length} marks`, said);
}
await browser.close();
process.exit(faults ? 1 : 0);
