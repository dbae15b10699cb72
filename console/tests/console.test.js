// The console in a real browser, served by a real server.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { Browser, findings } from "./browser.js";
import { Proxies, shop } from "./proxies.js";
import { Server } from "./server.js";

const PAGES = ["overview", "pushes", "proxies", "proxy/front-v1.shop", "objects", "object/PeerAuthentication/shop/front", "request", "plan", "topology", "scope", "security"];

let server;
let proxies;
let browser;

before(async () => {
  server = await Server.start();
  proxies = new Proxies(server.xds);
  shop(proxies);
  browser = await Browser.start();
});
afterEach(() => browser?.closePages());
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
  await page.getByRole("button", { name: /127\.0\.10\./ }).first().click();
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
