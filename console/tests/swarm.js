// The load generator: ten thousand proxies with connections of their own. For figures; tests have `Proxies`.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const program = process.env.LOADGEN_BIN;

/** A folder that `loadgen mesh` wrote: its objects, the file of its nodes, and the names of its proxies. */
export function mesh(folder) {
  const nodes = join(folder, "nodes.jsonl");
  const names = readFileSync(nodes, "utf8").trim().split("\n").map((line) => JSON.parse(line).id.split("~")[2]);
  return { objects: join(folder, "objects"), nodes, names };
}

export class Swarm {
  static async connect(port, nodes) {
    const swarm = new Swarm();
    swarm.child = spawn(program, ["swarm", `--server=127.0.0.1:${port}`, "--nodes", nodes], { stdio: ["pipe", "pipe", "inherit"] });
    swarm.answers = createInterface({ input: swarm.child.stdout })[Symbol.asyncIterator]();
    await swarm.say("mark connect all");
    await swarm.say("connect");
    swarm.connected = await swarm.say("settle 60000 2000 240000");
    return swarm;
  }

  async say(line) {
    this.child.stdin.write(`${line}\n`);
    const { value, done } = await this.answers.next();
    if (done) throw new Error(`loadgen ended after ${line}`);
    return JSON.parse(value);
  }

  async close() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.stdin.end();
    this.child.kill();
    await ended;
  }
}
