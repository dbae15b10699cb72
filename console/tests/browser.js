// A headless Chromium that reports whatever a page should not do.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export class Browser {
  static program = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].find(existsSync);

  static async start({ colorScheme = "light", width = 1280, height = 900 } = {}) {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), "meltemi-chromium-"));
    browser.context = await chromium.launchPersistentContext(browser.profile, {
      executablePath: Browser.program,
      args: FLAGS,
      colorScheme,
      viewport: { width, height },
      timezoneId: "UTC",
    });
    return browser;
  }

  async page(url) {
    const page = await this.context.newPage();
    page.faults = [];
    page.setDefaultTimeout(20_000);
    const origin = new URL(url).origin;
    page.on("console", (message) => {
      // A refused connection while the server is restarted is what the page is there for.
      if (message.type() === "error" && !/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|status of 40[0-9]/.test(message.text())) page.faults.push(`console: ${message.text()}`);
    });
    page.on("pageerror", (error) => page.faults.push(`error: ${error.message}`));
    page.on("request", (request) => {
      if (!request.url().startsWith(origin) && !request.url().startsWith("data:")) page.faults.push(`request to ${request.url()}`);
    });
    await page.goto(url);
    return page;
  }

  /** Those of a test that failed: each keeps one of the six connections that a browser has to a server. */
  async closePages() {
    for (const page of this.context.pages().slice(1)) await page.close();
  }

  async stop() {
    await this.context.close();
    rmSync(this.profile, { recursive: true, force: true });
  }
}

/** Accessibility: findings that are serious or worse. */
export async function findings(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  return violations
    .filter((violation) => ["serious", "critical"].includes(violation.impact))
    .map((violation) => `${violation.id}: ${violation.help}: ${violation.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.any.map((check) => check.message).join("; ")}`).join(" | ")}`);
}
