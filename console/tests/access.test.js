// Who may see what, in a browser that comes from another address than loopback: the page asks for a token, keeps it in memory only, and shows a
// tenant its own namespace.
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import { Browser, findings } from "./browser.js";
import { Proxies, shop } from "./proxies.js";
import { ownAddress, Server } from "./server.js";

/** Pages that name what belongs to others. */
const OF_THE_CONTROL_PLANE = ["overview", "pushes", "push/1", "request", "plan", "topology", "scope", "security"];

let server;
let proxies;
let browser;

before(async () => {
  if (!ownAddress) return;
  server = await Server.start({ everywhere: true });
  proxies = new Proxies(server.xds);
  shop(proxies);
  proxies.connect({ name: "ledger-v1", namespace: "bank", address: "127.0.3.1" });
  browser = await Browser.start();
});
afterEach(() => browser?.closePages());
after(async () => {
  await browser?.stop();
  proxies?.close();
  await server?.stop();
});

const skip = ownAddress ? false : "this machine has no address but loopback";
const open = async (hash = "") => browser.page(`http://${ownAddress}:${server.pages}/console/${hash}`);
async function close(page) {
  assert.deepEqual(page.faults, []);
  await page.close();
}
async function login(page, token) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Log in" }).click();
}
const links = (page) => page.locator("nav a.item span").allInnerTexts();

test("without a token there is a page that asks for one, and no data", { skip }, async () => {
  const page = await open("#/proxies");
  await page.getByRole("button", { name: "Log in" }).waitFor();
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await findings(page), [], colorScheme);
  }
  assert.equal(await page.getByText("ledger").count(), 0);
  await login(page, "x.y.z");
  await page.getByText("Not accepted").waitFor();
  await close(page);
});

test("the token is in memory only: gone on a reload, and in no storage", { skip }, async () => {
  const page = await open("#/proxies");
  const token = server.token("istio-system/operator");
  await login(page, token);
  await page.getByText("ledger-v1").waitFor();
  await page.getByText("front-v1").waitFor();
  const kept = await page.evaluate(async () => ({
    storages: localStorage.length + sessionStorage.length,
    cookies: document.cookie,
    databases: (await indexedDB.databases()).length,
    caches: "caches" in window ? (await caches.keys()).length : 0,
    address: location.href,
    markup: document.documentElement.outerHTML,
    values: [...document.querySelectorAll("input, textarea")].map((field) => field.value).join(),
  }));
  assert.deepEqual([kept.storages, kept.cookies, kept.databases, kept.caches], [0, "", 0, 0]);
  for (const text of [kept.address, kept.markup, kept.values]) assert.ok(!text.includes(token));
  assert.deepEqual((await page.context().cookies()).length, 0);
  await page.reload();
  await page.getByRole("button", { name: "Log in" }).waitFor();
  assert.equal(await page.getByText("ledger-v1").count(), 0);
  await login(page, token);
  await page.getByText("ledger-v1").waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByRole("button", { name: "Log in" }).waitFor();
  assert.equal(await page.getByText("ledger-v1").count(), 0);
  await close(page);
});

test("a tenant's token shows the proxies and objects of its namespace alone", { skip }, async () => {
  const page = await open("#/overview");
  await login(page, server.token("bank/ledger"));
  await page.getByText("ledger-v1").waitFor();
  assert.match(page.url(), /#\/proxies/, "there is no overview for tenants");
  assert.deepEqual(await links(page), ["Proxies", "Objects"]);
  await page.getByText("1 of 1 proxies").waitFor();
  assert.equal(await page.getByText("front-v1").count(), 0);
  proxies.connect({ name: "ledger-v2", namespace: "bank", address: "127.0.3.2" });
  proxies.connect({ name: "front-v2", namespace: "shop", address: "127.0.3.3" });
  await page.getByText("ledger-v2").waitFor();
  await page.waitForTimeout(1500);
  assert.equal(await page.getByText("front-v2").count(), 0, "nor when it connects later");

  await page.getByRole("link", { name: "Objects" }).click();
  await page.getByText(/of \d+ objects?/).waitFor();
  assert.deepEqual(await page.locator("[role=rowgroup] [role=row]:not(.names) [role=cell]:nth-child(2)").allInnerTexts(), []);
  for (const hash of OF_THE_CONTROL_PLANE) {
    await page.evaluate((hash) => (location.hash = `#/${hash}`), hash);
    await page.getByText("This page is for the control plane's namespace").waitFor();
  }
  for (const hash of ["proxy/front-v1.shop", "object/PeerAuthentication/shop/front"]) {
    await page.evaluate((hash) => (location.hash = `#/${hash}`), hash);
    await page.getByRole("alert").waitFor();
    assert.equal(await page.getByText(/outbound\||mtls|127\.0\.10\./).count(), 0, hash);
  }
  await close(page);
});

test("a tenant sees the objects of its own namespace", { skip }, async () => {
  const page = await open("#/objects");
  await login(page, server.token("shop/front"));
  await page.getByRole("link", { name: "front" }).first().waitFor();
  const namespaces = await page.locator("[role=rowgroup] [role=row]:not(.names) [role=cell]:nth-child(2)").allInnerTexts();
  assert.deepEqual([...new Set(namespaces)], ["shop"]);
  await page.evaluate(() => (location.hash = "#/proxy/front-v1.shop"));
  await page.getByText("Holds").waitFor();
  await close(page);
});
