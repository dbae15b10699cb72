// The console in a real browser, served by a real server.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Browser, findings } from "./browser.js";
import { Proxies, shop } from "./proxies.js";
import { Server } from "./server.js";

/** A debug build beside other tests: 10,000 where somebody measures. */
const MANY = Number(process.env.MELTEMI_CONSOLE_PROXIES ?? 2_000);
const PAGES = ["overview", "pushes", "proxies", "proxy/front-v1.shop", "objects", "object/PeerAuthentication/shop/front", "request", "plan", "topology", "scope", "security"];
const HOSTILE = ["<img-src=x-onerror=alert(1)>", "a\u202egpj.exe", "b\u0007\u001b[31mc", `long-${"x".repeat(900)}`];

let server;
let proxies;
let browser;

before(async () => {
  server = await Server.start();
  proxies = new Proxies(server.xds);
  shop(proxies);
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  proxies?.close();
  await server?.stop();
});

const open = async (hash) => browser.page(`${server.url}/console/#/${hash}`);
async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.close();
}

test("every page opens, in both schemes, without serious findings of accessibility", async () => {
  for (const hash of PAGES) {
    const page = await open(hash);
    await page.waitForSelector("main h1");
    await page.waitForSelector(".status.live");
    await page.waitForTimeout(400);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      assert.deepEqual(await findings(page), [], `${hash}, ${colorScheme}`);
    }
    const cut = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(cut, 0, `${hash} is wider than the window`);
    await close(page);
  }
});

test("the policy keeps inline script from running", async () => {
  const page = await open("overview");
  await page.waitForSelector(".status.live");
  const ran = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.injected = true";
    document.body.append(script);
    return window.injected === true;
  });
  assert.equal(ran, false);
  page.faults = page.faults.filter((fault) => !/Content Security Policy/.test(fault));
  await close(page);
});

test("a proxy appears, is found, and its resources name their objects", async () => {
  const page = await open("proxies");
  await page.getByText("cart-v1").waitFor();
  proxies.connect({ name: "late-v1", namespace: "shop", address: "127.0.1.77" });
  await page.getByText("late-v1").waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("front");
  await page.waitForFunction(() => document.querySelectorAll('[role=rowgroup] [role=row]').length === 2);
  assert.match(page.url(), /q=front/);
  await page.getByRole("link", { name: "front-v1" }).click();
  await page.getByRole("button", { name: /virtualInbound|127\.0\.1\.2|_15/ }).first().click();
  await page.getByText("Made from").waitFor();
  await page.locator(".code .line").first().waitFor();
  await close(page);
});

test("a change of a file becomes a push, live, and its object shows it", async () => {
  const page = await open("pushes");
  await page.waitForSelector(".status.live");
  const file = join(server.folder, "services.yaml");
  writeFileSync(file, `${readFileSync(file, "utf8")}\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: console-test, namespace: shop}\nspec: {host: cart.shop.svc.cluster.local, trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}\n`);
  const row = page.getByRole("row").filter({ hasText: "console-test" });
  await row.first().waitFor();
  await row.first().getByRole("link").click();
  await page.getByText("whose newest response is of this push").waitFor();
  await page.getByRole("link", { name: "DestinationRule shop/console-test" }).click();
  await page.getByText("maxConnections: 7").waitFor();
  await page.getByRole("heading", { name: "Reach" }).waitFor();
  await close(page);
});

test("two proxies are compared without their contents, then line by line", async () => {
  const page = await open("proxy/front-v1.shop?tab=compare&with=cart-v1.shop");
  await page.getByText(/differences? in/).waitFor();
  await page.locator(".list li button").first().click();
  await page.locator(".diff .left, .diff .right").first().waitFor();
  await close(page);
});

test("hostile names stay text", async () => {
  HOSTILE.forEach((name, at) => proxies.connect({ name, namespace: "hostile", address: `127.0.2.${at + 1}` }));
  proxies.connect({ name: "refuser", namespace: "hostile", address: "127.0.2.99", rejects: "<script>window.injected = true</script>" });
  const page = await open("proxies?namespace=hostile");
  await page.getByText("rejected", { exact: true }).first().waitFor();
  await page.waitForTimeout(1500);
  assert.equal(await page.evaluate(() => window.injected), undefined);
  assert.equal(await page.locator("main img, main script").count(), 0);
  const shown = await page.locator("[role=rowgroup]").innerText();
  assert.ok(!shown.includes("\u202e") && !shown.includes("\u001b"), "characters that change the direction or are not shown are escaped");
  await close(page);
});

test("a restart of the server is survived", async () => {
  const page = await open("proxies?q=front");
  await page.getByRole("link", { name: "front-v1" }).waitFor();
  await server.end();
  await page.waitForSelector(".status.lost");
  await server.run();
  proxies.close();
  shop(proxies);
  await page.waitForSelector(".status.live");
  await page.getByRole("link", { name: "front-v1" }).waitFor();
  await close(page);
});

test("keys lead to pages", async () => {
  const page = await open("overview");
  await page.waitForSelector(".status.live");
  await page.keyboard.press("g");
  await page.keyboard.press("b");
  await page.getByRole("heading", { name: "Objects", level: 1 }).waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  await close(page);
});

test(`${MANY} proxies: interactive within two seconds, and few rows in the document`, async () => {
  proxies.many(MANY);
  for (let tries = 0; ; tries++) {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    if (Number(/^pilot_xds_clients (\d+)$/m.exec(text)?.[1] ?? 0) >= MANY) break;
    assert.ok(tries < 300, "the proxies connect within a minute");
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const warm = await open("proxies");
  await warm.waitForFunction((many) => Number(document.querySelector("[role=table]")?.getAttribute("aria-rowcount")) > many, MANY);
  await warm.close();

  const started = Date.now();
  const page = await open("proxies");
  await page.locator("[role=rowgroup] [role=row] a").first().waitFor();
  const interactive = Date.now() - started;
  await page.waitForFunction((many) => Number(document.querySelector("[role=table]")?.getAttribute("aria-rowcount")) > many, MANY);
  const tasks = await page.evaluate(async () => {
    const tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ["longtask"] });
    const body = document.querySelector("[role=rowgroup]");
    let most = 0;
    for (let step = 0; step < 60; step++) {
      body.scrollTop = (body.scrollHeight * step) / 60;
      await new Promise((resolve) => requestAnimationFrame(resolve));
      most = Math.max(most, document.querySelectorAll("[role=rowgroup] [role=row]").length);
    }
    return { tasks, most };
  });
  console.log(`interactive after ${interactive} ms; ${tasks.most} rows in the document; long tasks while scrolling: ${tasks.tasks.map(Math.round).join(", ") || "none"}`);
  assert.ok(tasks.most > 0 && tasks.most <= 200);
  if (!process.env.MELTEMI_CONSOLE_SLOW) assert.ok(interactive < 2000, `interactive after ${interactive} ms`);
  await page.selectOption("#group", "namespace");
  await page.getByRole("link", { name: "team-07" }).first().click();
  await page.waitForFunction(() => /team-07/.test(location.hash));
  await close(page);
});
