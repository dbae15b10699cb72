// Figures of the console at many proxies, taken by hand: how soon the first page answers, the tasks while scrolling, what is transferred, and
// what each open page costs the server, beside no page, while nothing changes and while an object changes every two seconds.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Browser } from "./browser.js";
import { Server } from "./server.js";
import { mesh, Swarm } from "./swarm.js";
import { longest, scroll, tasksDuring } from "./tracing.js";

const { values } = parseArgs({ options: { mesh: { type: "string" }, seconds: { type: "string", default: "20" }, page: { type: "string" }, json: { type: "boolean", default: false } } });
const seconds = Number(values.seconds);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const { objects, nodes, names } = mesh(values.mesh);
const [many, first] = [names.length, names[0]];
const server = await Server.start({ folder: objects, derive: false });
let [swarm, browser] = [null, null];
const faults = [];
try {
  swarm = await Swarm.connect(server.xds, nodes);
  const connected = await server.connected();
  if (connected < many) throw new Error(`${connected} of ${many} proxies are connected`);
  browser = await Browser.start();
  const report = { proxies: connected, browser: await inBrowser(), server: await costs(pages()) };
  console.log(values.json ? JSON.stringify(report, null, 1) : text(report));
} finally {
  await browser?.stop();
  await swarm?.close();
  await server.stop();
}
if (faults.length > 0) throw new Error(faults.join("\n"));

function pages() {
  const all = {
    overview: "overview",
    pushes: "pushes",
    proxies: "proxies",
    "one proxy": `proxy/${first}`,
    objects: "objects",
    "one object": "object/VirtualService/ns-0/s-0",
    request: `request?from=${first}&url=${encodeURIComponent("http://s-0.ns-0.svc.cluster.local/")}`,
    plan: "plan",
    topology: "topology",
    scope: "scope",
    security: "security",
  };
  return Object.entries(all).filter(([name]) => !values.page || values.page.split(",").includes(name));
}

/** A timeout of a VirtualService that the proxies of one namespace see. */
function change(step) {
  const file = join(server.folder, "ns-0/s-0.yaml");
  writeFileSync(file, readFileSync(file, "utf8").replace(/"timeout":"\d+s"\}\]/, `"timeout":"${11 + (step % 40)}s"}]`));
}

async function open(hash) {
  const page = await browser.page(`${server.url}/console/#/${hash}`);
  await page.waitForSelector(".status.live");
  return page;
}

async function close(page) {
  faults.push(...page.faults);
  await page.close();
}

/** Milliseconds until the first page shows figures, and until a page with the table takes keys. No page was open before. */
async function inBrowser() {
  let assets = 0;
  browser.context.on("response", (response) => {
    if (/\/console\/(|console\.(js|css)\?.*)$/.test(response.url())) assets += Number(response.headers()["content-length"] ?? 0);
  });
  const started = Date.now();
  const overview = await browser.page(`${server.url}/console/`);
  await overview.locator("dl dd a").first().waitFor();
  const firstPage = Date.now() - started;
  const transferred = assets;
  await close(overview);

  const table = Date.now();
  const page = await open("proxies");
  await page.locator("[role=rowgroup] [role=row] a").first().waitFor();
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement?.matches("input[type=search]"));
  const firstTable = Date.now() - table;
  await page.waitForFunction((many) => Number(document.querySelector("[role=table]")?.getAttribute("aria-rowcount")) > many, many);
  const complete = Date.now() - table;
  await page.waitForTimeout(2000);
  let rows = 0;
  const tasks = await tasksDuring(page, async () => (rows = await scroll(page)));
  await close(page);
  return { firstPageMs: firstPage, firstTableMs: firstTable, wholeTableMs: complete, rows, tasks: tasks.length, longestTaskMs: longest(tasks, "wall"), longestTaskCpuMs: longest(tasks, "cpu"), assetBytes: transferred };
}

/** Percent of one core, by page: while nothing changes, and while an object changes. Without a page: the median of what was found before every fourth. */
async function costs(pages) {
  const rows = [];
  for (const changing of [false, true]) {
    const [taken, without] = [[], []];
    for (const [at, [name, hash]] of pages.entries()) {
      if (at % 4 === 0) without.push(await share(changing));
      const before = server.processorSeconds;
      const page = await open(hash);
      // With the doctor's first answer, which comes after some seconds.
      await pause(8000);
      const opening = server.processorSeconds - before;
      const percent = await share(changing);
      await close(page);
      taken.push({ page: name, changing, openingMs: opening * 1000, percent });
      process.stderr.write(`  ${changing ? "with changes" : "idle"}, ${name}: ${percent.toFixed(2)} % of a core, ${without.at(-1).toFixed(2)} without\n`);
    }
    const none = without.sort((a, b) => a - b)[Math.floor(without.length / 2)];
    rows.push({ page: "no page", changing, percent: none }, ...taken.map((row) => ({ ...row, more: row.percent - none })));
  }
  return rows;
}

async function share(changing) {
  const [cpu, begun] = [server.processorSeconds, Date.now()];
  for (let step = 0; Date.now() - begun < seconds * 1000; step++) {
    if (changing) change(step);
    await pause(2000);
  }
  return (100 * (server.processorSeconds - cpu)) / ((Date.now() - begun) / 1000);
}

function text({ proxies, browser, server }) {
  const lines = [
    `${proxies} proxies`,
    `first page with figures after ${browser.firstPageMs} ms; table of proxies takes keys after ${browser.firstTableMs} ms, has all rows after ${browser.wholeTableMs} ms`,
    `scrolling: ${browser.tasks} tasks, the longest ${browser.longestTaskMs.toFixed(1)} ms (${browser.longestTaskCpuMs.toFixed(1)} ms of a processor); at most ${browser.rows} rows in the document`,
    `assets: ${Math.round(browser.assetBytes / 1000)} kB compressed`,
    "",
    "| page | opening, CPU ms | idle, % of a core more | with a change every 2 s, % of a core more |",
    "|---|---|---|---|",
  ];
  for (const one of server.filter((row) => !row.changing && row.more !== undefined)) {
    const busy = server.find((row) => row.changing && row.page === one.page);
    lines.push(`| ${one.page} | ${Math.round(one.openingMs)} | ${one.more.toFixed(2)} | ${busy.more.toFixed(2)} |`);
  }
  const none = server.filter((row) => row.page === "no page").map((row) => row.percent.toFixed(2));
  lines.push(`\nwithout a page: ${none.join(" % idle, ")} % with changes`);
  return lines.join("\n");
}
