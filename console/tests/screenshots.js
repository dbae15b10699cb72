// Pictures of every page, light and dark, of a mesh with the shop and some hundred more proxies, into docs/images.
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.js";
import { withPalette } from "./palette.js";
import { Proxies, shop } from "./proxies.js";
import { Server } from "./server.js";

const images = join(dirname(fileURLToPath(import.meta.url)), "../../docs/images");
const PAGES = {
  pushes: "pushes",
  proxies: "proxies",
  proxy: "proxy/front-v1.shop?type=RDS",
  compare: "proxy/front-v1.shop?tab=compare&with=cart-v1.shop",
  objects: "objects",
  object: "object/VirtualService/shop/cart",
  request: "request?from=front-v1.shop&url=http%3A%2F%2Fcart%3A7081%2F",
  plan: "plan",
  topology: "topology",
  scope: "scope",
  security: "security",
  // The last: until then there is something to see.
  overview: "overview",
};
const RULES = (weight) => `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart]
  http:
  - match: [{headers: {x-user: {exact: canary}}}]
    route: [{destination: {host: cart, subset: v1}}]
  - timeout: 2s
    retries: {attempts: 3, perTryTimeout: 500ms}
    route:
    - {destination: {host: cart, subset: v1}, weight: ${weight}}
    - {destination: {host: stock, port: {number: 7082}}, weight: ${100 - weight}}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: cart, namespace: shop}
spec:
  host: cart
  subsets: [{name: v1, labels: {version: v1}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: stock, namespace: shop}
spec:
  selector: {matchLabels: {app: stock}}
  rules: [{from: [{source: {principals: ["cluster.local/ns/shop/sa/cart"]}}]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: broken, namespace: shop}
spec:
  hosts: [stock]
  http: [{timeout: 2 parsecs, route: [{destination: {host: nobody}}]}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: entry, namespace: shop}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [shop.example.com]}]
`;
const only = process.argv.slice(2);

mkdirSync(images, { recursive: true });
const server = await Server.start();
const proxies = new Proxies(server.xds);
const authenticated = ["cart", "stock"].map((account) => new Proxies(server.secure, server.token(`shop/${account}`)));
try {
  writeFileSync(join(server.folder, "console.yaml"), RULES(90));
  shop(proxies);
  proxies.many(300, 12);
  for (const [at, one] of authenticated.entries()) {
    await one.certificate(at === 0 ? 86_400 : 600);
    one.connect({ name: `${["cart", "stock"][at]}-v2`, namespace: "shop", address: `127.0.10.${at + 12}`, labels: { app: ["cart", "stock"][at], version: "v2" } });
  }
  proxies.connect({ name: "checkout-7", namespace: "team-03", address: "10.9.9.1", rejects: "Proto constraint validation failed (ListenerValidationError.Address: value is required)" });
  proxies.connect({ name: "report-2", namespace: "team-08", address: "10.9.9.2", silent: true });
  const browser = await Browser.start();
  const warm = await browser.page(`${server.url}/console/`);
  for (let step = 0; step < 18; step++) {
    await new Promise((resolve) => setTimeout(resolve, 1100));
    writeFileSync(join(server.folder, "console.yaml"), RULES(90 - step * 4));
  }
  for (const [name, hash] of Object.entries(PAGES)) {
    if (only.length > 0 && !only.includes(name)) continue;
    const page = name === "overview" ? warm : await browser.page(`${server.url}/console/#/${hash}`);
    await page.waitForSelector(".status.live");
    await prepare(name, page);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.waitForTimeout(500);
      writeFileSync(join(images, `console-${name}-${colorScheme}.png`), withPalette(await page.screenshot()));
    }
    if (page.faults.length > 0) console.error(`${name}: ${page.faults.join("; ")}`);
    await page.close();
  }
  await browser.stop();
} finally {
  for (const one of authenticated) one.close();
  proxies.close();
  await server.stop();
}

async function prepare(name, page) {
  await page.waitForTimeout(1500);
  if (name === "overview") {
    for (let step = 0; step < 40; step++) {
      writeFileSync(join(server.folder, "console.yaml"), RULES(80 - step));
      await page.waitForTimeout(900);
    }
  } else if (name === "compare") {
    await page.getByText(/differences? in/).waitFor();
    await page.locator(".list li button").nth(2).click();
    await page.waitForTimeout(500);
  } else if (name === "proxy") {
    await page.locator("button.resource").filter({ hasText: /80/ }).first().click().catch(() => {});
    await page.waitForTimeout(800);
  } else if (name === "plan") {
    await page.locator("textarea").fill(RULES(10).split("---")[0].replace("2s", "5s"));
    await page.getByRole("button", { name: "Plan", exact: true }).click();
    await page.waitForTimeout(1500);
  }
}
