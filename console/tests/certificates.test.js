// Certificates by age: of proxies that are authenticated at the secure port, and got their certificates there.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Browser, findings } from "./browser.js";
import { Proxies } from "./proxies.js";
import { Server } from "./server.js";

let server;
let browser;
const all = [];

before(async () => {
  server = await Server.start();
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  for (const proxies of all) proxies.close();
  await server?.stop();
});

function of(account) {
  const proxies = new Proxies(server.secure, server.token(`shop/${account}`));
  all.push(proxies);
  return proxies;
}

test("connected proxies are counted by the age of their certificates, and those that end next are named", async () => {
  const [front, cart, stock] = ["front", "cart", "stock"].map(of);
  assert.equal(await front.certificate(86_400), 0);
  assert.equal(await cart.certificate(600), 0);
  front.connect({ name: "front-v1", namespace: "shop", address: "127.0.10.1" });
  cart.connect({ name: "cart-v1", namespace: "shop", address: "127.0.10.2" });
  stock.connect({ name: "stock-v1", namespace: "shop", address: "127.0.10.3" });
  const plain = new Proxies(server.xds);
  all.push(plain);
  plain.connect({ name: "plain-v1", namespace: "shop", address: "127.0.10.4" });
  while ((await server.connected()) < 4) await new Promise((resolve) => setTimeout(resolve, 50));

  const page = await browser.page(`${server.url}/console/#/security`);
  const section = page.getByRole("region", { name: "Certificates by age" });
  await section.waitFor();
  const row = (name) => section.getByRole("row").filter({ hasText: name });
  assert.match(await row("under 60 min").innerText(), /\t2\b/);
  assert.match(await row("not known").innerText(), /\t1\b/);
  assert.match(await row("connected without authentication").innerText(), /\t1\b/);
  assert.match(await row("past their end").innerText(), /\t0\b/);
  const next = await section.getByRole("table").nth(1).getByRole("link").allInnerTexts();
  assert.deepEqual(next, ["cart-v1.shop", "front-v1.shop"], "the one that ends first");
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    assert.deepEqual(await findings(page), [], colorScheme);
  }
  await section.getByRole("link", { name: "cart-v1.shop" }).click();
  await page.getByText("spiffe://cluster.local/ns/shop/sa/cart").waitFor();
  assert.deepEqual(page.faults, []);
});
