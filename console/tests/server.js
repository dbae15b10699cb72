// A real server on a copy of a folder, on free ports of loopback.
import { spawn, spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const program = process.env.MELTEMI_BIN ?? join(root, "target/debug/meltemi");

async function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** One that is not loopback. `undefined`: there is none. */
export const ownAddress = Object.values(networkInterfaces()).flat().find((one) => one.family === "IPv4" && !one.internal)?.address;

export class Server {
  /** `everywhere`: its pages answer at every address of this machine. `derive`: endpoints come from Services and Pods. */
  static async start({ folder = join(root, "examples/shop"), everywhere = false, derive = true } = {}) {
    const server = new Server();
    server.flags = derive ? ["--derive-endpoints"] : [];
    server.pagesHost = everywhere ? "0.0.0.0" : "127.0.0.1";
    server.work = mkdtempSync(join(tmpdir(), "meltemi-console-"));
    server.folder = join(server.work, "mesh");
    cpSync(folder, server.folder, { recursive: true });
    for (let tries = 0; ; tries++) {
      [server.pages, server.xds, server.ready, server.secure] = [await freePort(), await freePort(), await freePort(), await freePort()];
      try {
        await server.run();
        return server;
      } catch (error) {
        // The ports stay the same over a restart of the server, so they are not bound meanwhile: another program may have taken one.
        if (tries === 3 || !server.log.includes("Address already in use")) throw error;
      }
    }
  }

  get url() {
    return `http://127.0.0.1:${this.pages}`;
  }

  async run() {
    const address = (port) => `127.0.0.1:${port}`;
    this.log = "";
    this.child = spawn(
      program,
      ["serve", "--config", this.folder, ...this.flags, `--grpcAddr=${address(this.xds)}`, `--secureGRPCAddr=${address(this.secure)}`, `--httpAddr=${address(this.ready)}`, `--monitoringAddr=${this.pagesHost}:${this.pages}`, "--httpsAddr=", "--stateDir", join(this.work, "state")],
      { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, MELTEMI_CLASS_LIMITS: undefined } },
    );
    for (const stream of [this.child.stdout, this.child.stderr]) stream.on("data", (data) => (this.log = (this.log + data).slice(-20_000)));
    for (let tries = 0; tries < 600; tries++) {
      if (this.child.exitCode !== null) throw new Error(`meltemi ended with ${this.child.exitCode}:\n${this.log}`);
      const ready = await fetch(`http://${address(this.ready)}/ready`).catch(() => null);
      if (ready?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`meltemi is not ready after 30 s:\n${this.log}`);
  }

  /** Of a service account, `namespace/name`. */
  token(account) {
    const words = ["token", "create", "--service-account", account, "--stateDir", join(this.work, "state")];
    const { status, stdout, stderr } = spawnSync(program, words, { encoding: "utf8" });
    if (status !== 0) throw new Error(`meltemi token create: ${stderr}`);
    return stdout.trim();
  }

  /** Seconds of one core so far, of all its threads. */
  get processorSeconds() {
    const fields = readFileSync(`/proc/${this.child.pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }

  /** Proxies that are connected. */
  async connected() {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    return Number(/^pilot_xds_clients (\d+)$/m.exec(text)?.[1] ?? 0);
  }

  async end() {
    if (this.child.exitCode !== null) return;
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await ended;
  }

  async stop() {
    await this.end();
    rmSync(this.work, { recursive: true, force: true });
  }
}
