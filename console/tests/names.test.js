// Hostile names stay text on every page that shows names, and every page lives through a restart of the server.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { Browser } from "./browser.js";
import { Proxies, shop } from "./proxies.js";
import { Server } from "./server.js";

const MARKUP = "<img-src=x-onerror=window.injected=1>";
const SCRIPT = "<script>window.injected=1</script>";
const DIRECTION = "a\u202egpj.exe";
const CONTROL = "b\u0007\u001b[31mc";
const LONG = `long-${"x".repeat(995)}`;
const NAMES = [MARKUP, DIRECTION, CONTROL, LONG];
/** What must not be in the document as itself, in text or attributes: the browser would lay it out in another direction, or not show it. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;

/** Objects whose names the server rejects, and diagnostics tell; and others with such texts where every text is allowed. */
const text = (name) => JSON.stringify(name);
const OBJECTS = NAMES.map((name, at) => `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: ${text(name)}, namespace: ${text(name)}}
spec: {selector: {istio: ${text(name)}}, servers: [{port: {number: 80, name: ${text(name)}, protocol: HTTP}, hosts: [${text(name)}]}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: hostile-${at}, namespace: shop, labels: {x: ${text(name)}}, annotations: {note: ${text(name)}}}
spec:
  hosts: [cart]
  http:
  - name: ${text(name)}
    match: [{headers: {x-hostile: {exact: ${text(name)}}}}]
    directResponse: {status: 418, body: {string: ${text(name)}}}
  - {timeout: ${text(name)}, route: [{destination: {host: ${text(name)}}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: named-${at}, namespace: shop}
spec:
  hosts: [stock]
  http:
  - name: ${text(name)}
    match: [{headers: {x-hostile: {exact: ${text(name)}}}}]
    headers: {request: {set: {x-hostile: ${text(name)}}}}
    route: [{destination: {host: stock}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: hostile-${at}, namespace: shop}
spec: {selector: {matchLabels: {app: nobody-${at}}}, rules: [{from: [{source: {namespaces: [${text(name)}], principals: [${text(`cluster.local/ns/${name}/sa/x`)}]}}]}]}`).join("\n---");

let server;
let proxies;
let browser;

before(async () => {
  server = await Server.start();
  proxies = new Proxies(server.xds);
  connect();
  browser = await Browser.start();
  // A change that reaches somebody is a push.
  while ((await server.connected()) < 3 + 2 * NAMES.length) await new Promise((resolve) => setTimeout(resolve, 50));
  writeFileSync(join(server.folder, `${MARKUP}${DIRECTION}.yaml`), OBJECTS);
});
afterEach(() => browser.closePages());
after(async () => {
  await browser?.stop();
  proxies?.close();
  await server?.stop();
});

function connect() {
  shop(proxies);
  NAMES.forEach((name, at) => {
    proxies.connect({ name, namespace: name, version: name, zone: name, labels: { [name]: name }, address: `127.0.2.${at + 1}` });
    proxies.connect({ name, namespace: "shop", address: `127.0.2.${at + 101}`, rejects: `${SCRIPT} ${name}` });
  });
}

const open = async (hash) => browser.page(`${server.url}/console/#/${hash}`);
const encoded = encodeURIComponent;

/** Where names are shown, and a text that must be seen there: the escaped form of one of them. */
const SHOWN = [
  ["overview", null],
  ["pushes", "VirtualService shop/"],
  ["proxies", "\\u202egpj"],
  ["proxies?group=namespace", "\\u202egpj"],
  ["proxies?group=version", "\\u001b[31mc"],
  ["proxies?group=locality", "\\u202egpj"],
  ["proxies?state=3", SCRIPT],
  [`proxies?q=${encoded(MARKUP)}&namespace=${encoded(MARKUP)}`, MARKUP],
  ...NAMES.map((name) => [`proxy/${encoded(`${name}.${name}`)}`, "Holds"]),
  [`proxy/${encoded(`${DIRECTION}.shop`)}?tab=compare&with=${encoded(`${MARKUP}.shop`)}`, /difference|Equal/],
  [`proxy/${encoded(`${CONTROL}.shop`)}?tab=explain`, "\\u001b[31mc"],
  [`proxy/${encoded(`${MARKUP}-of-nobody`)}`, MARKUP],
  ["objects", "\\u202egpj"],
  ["objects?kind=VirtualService", MARKUP],
  ...NAMES.flatMap((_name, at) => [`object/VirtualService/shop/hostile-${at}`, `object/VirtualService/shop/named-${at}`]).map((hash) => [hash, "Reach"]),
  ["object/VirtualService/shop/named-0", MARKUP],
  ["object/VirtualService/shop/named-1", "\\u202egpj"],
  [`object/Gateway/${encoded(DIRECTION)}/${encoded(DIRECTION)}`, "\\u202egpj"],
  [`request?from=${encoded(`${MARKUP}.${MARKUP}`)}&url=${encoded(`http://${DIRECTION}:80/`)}`, MARKUP],
  [`request?from=front-v1.shop&url=${encoded(`http://${MARKUP}:7081/${CONTROL}`)}`, MARKUP],
  ["plan", MARKUP],
  ["topology", MARKUP],
  ["scope", "\\u202egpj"],
  ["security", null],
  [`${encoded(SCRIPT)}/${encoded(DIRECTION)}`, "No such page"],
];

for (const [hash, seen] of SHOWN) {
  test(`hostile names stay text: ${hash.length > 60 ? `${hash.slice(0, 60)}…` : hash}`, async () => {
    const page = await open(hash);
    await page.waitForSelector("main h1");
    if (hash === "plan") {
      await page.locator("textarea").fill(OBJECTS);
      await page.getByRole("button", { name: "Plan", exact: true }).click();
      await page.locator("main [role=status], main [role=alert]").first().waitFor();
    }
    if (seen) await page.locator("main").getByText(seen).and(page.locator(":visible")).first().waitFor();
    await page.waitForTimeout(300);
    const found = await page.evaluate(() => ({
      injected: window.injected,
      elements: document.querySelectorAll("main img, main script, main iframe").length,
      markup: document.body.outerHTML,
      wider: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    }));
    assert.deepEqual([found.injected, found.elements], [undefined, 0]);
    const at = found.markup.search(UNSEEN);
    assert.equal(at, -1, `a character that is not shown: ${JSON.stringify(found.markup.slice(Math.max(0, at - 120), at + 40))}`);
    assert.equal(found.wider, 0, "the page is wider than the window");
    assert.deepEqual(page.faults, []);
  });
}

/** A page, and what it shows again when the server is back. */
const RESTARTED = [
  ["overview", "dl dd a"],
  ["pushes", "[role=table][aria-label=Pushes]"],
  ["proxies?q=front", "text=front-v1"],
  ["proxy/front-v1.shop", "text=Holds"],
  ["objects?kind=PeerAuthentication", "[role=rowgroup] a"],
  ["object/PeerAuthentication/shop/front", "section[aria-label=Reach]"],
  ["request?from=front-v1.shop&url=http%3A%2F%2Fcart%3A7081%2F", "ol.way"],
  ["plan", "textarea"],
  ["topology", "table.matrix"],
  ["scope", "section[aria-label=Namespaces]"],
  ["security", "ol.stages"],
];

test("every page lives through a restart of the server", async () => {
  // A browser has six connections to one server, and each page keeps one of them.
  for (let first = 0; first < RESTARTED.length; first += 4) {
    const pages = [];
    for (const [hash, selector] of RESTARTED.slice(first, first + 4)) {
      const page = await open(hash);
      await page.locator(selector).first().waitFor();
      await page.waitForSelector(".status.live");
      pages.push({ page, hash, selector });
    }
    await server.end();
    for (const { page } of pages) await page.waitForSelector(".status.lost");
    await server.run();
    proxies.close();
    connect();
    for (const { page, hash, selector } of pages) {
      await page.waitForSelector(".status.live");
      await page.locator(selector).first().waitFor();
      assert.equal(await page.locator("main .banner").count(), 0, hash);
      await page.reload();
      await page.locator(selector).first().waitFor();
      assert.deepEqual(page.faults, [], hash);
      await page.close();
    }
  }
});
