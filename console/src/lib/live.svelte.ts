// The tables that the server keeps up to date here, over one event stream. After a cut the stream goes on from its cursor; after a restart of
// the server, which does not know the cursor, it begins again.

import { ApiError, stream } from "./api";
import { events } from "./events";
import { type ProxyRow, proxyRow } from "./proxy-row";
import type { Check, Figures, Health, Heat, ProxyArray, Push, Replica } from "./types";

export type Topic = "overview" | "pushes" | "proxies";
type Status = "connecting" | "live" | "lost" | "denied" | "paused";

interface Delta {
  reset: boolean;
  removed: string[];
  rows: unknown[];
}

export interface OverviewRows {
  now?: Figures;
  health?: Health;
  heat?: Heat;
  doctor?: { at: number; checks: Check[] } | null;
  replicas?: Replica[];
}

const RETRY_MS = [300, 600, 1000, 2000, 3000];

class Live {
  status = $state<Status>("connecting");
  problem = $state("");
  overview = $state.raw<OverviewRows>({});
  pushes = $state.raw<Push[]>([]);
  /** Changes with every batch of the table of proxies, which itself is not reactive: it may have 50,000 rows. */
  proxiesVersion = $state(0);
  /** Changes when a proxy comes or goes. */
  membersVersion = $state(0);
  /** Whether the first batch of the current topics is here. */
  complete = $state(false);
  /** Figures of the last minutes, for plots: [seconds, ACKs, responses, changes, processors]. */
  history = $state.raw<[number[], number[], number[], number[], number[]]>([[], [], [], [], []]);

  readonly proxies = new Map<string, ProxyRow>();
  readonly #pushes = new Map<string, Push>();
  #topics: Topic[] = [];
  #cursor = "";
  #attempt = 0;
  #abort: AbortController | null = null;
  #pending = { proxies: false, members: false, pushes: false };

  constructor() {
    document.addEventListener("visibilitychange", () => {
      // A browser allows six connections to a server: a tab that nobody sees needs none.
      if (document.hidden) this.#pause();
      else if (this.#topics.length > 0 && this.status === "paused") this.#connect();
    });
  }

  follow(topics: Topic[]) {
    const wanted = [...new Set(topics)].sort();
    if (wanted.join() === this.#topics.join() && this.#abort) return;
    this.#topics = wanted;
    this.#cursor = "";
    this.complete = false;
    this.#connect();
  }

  stop() {
    this.#topics = [];
    this.#abort?.abort();
    this.#abort = null;
  }

  #pause() {
    if (this.#topics.length === 0) return;
    this.#abort?.abort();
    this.#abort = null;
    this.status = "paused";
  }

  #connect() {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    void this.#run(abort.signal);
  }

  async #run(signal: AbortSignal) {
    while (!signal.aborted) {
      try {
        const more: Record<string, string> = this.#cursor ? { "Last-Event-ID": this.#cursor } : {};
        const body = await stream(`/console/api/live?topics=${this.#topics.join(",")}`, more, signal);
        this.status = "live";
        this.problem = "";
        this.#attempt = 0;
        for await (const event of events(body)) {
          if (signal.aborted) return;
          if (event.event) this.#take(event.event, event.data, event.id);
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          this.status = "denied";
          this.problem = error.message;
          return;
        }
        this.problem = error instanceof ApiError ? error.message : "The connection was cut.";
      }
      if (signal.aborted) return;
      // A stream that ended as planned comes back before anybody looks.
      if (this.#attempt > 0) this.status = "lost";
      const wait = RETRY_MS[Math.min(this.#attempt, RETRY_MS.length - 1)] ?? 3000;
      this.#attempt += 1;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  #take(event: string, data: string, id: string) {
    if (event === "complete") {
      this.#cursor = id;
      if (this.#pending.members) this.membersVersion += 1;
      if (this.#pending.proxies) this.proxiesVersion += 1;
      if (this.#pending.pushes) this.pushes = [...this.#pushes.values()].sort((a, b) => b.id - a.id);
      this.#pending = { proxies: false, members: false, pushes: false };
      this.complete = true;
      return;
    }
    const delta = JSON.parse(data) as Delta;
    if (event === "proxies") this.#takeProxies(delta);
    else if (event === "pushes") this.#takePushes(delta);
    else if (event === "overview") this.#takeOverview(delta);
  }

  #takeProxies(delta: Delta) {
    const before = this.proxies.size;
    if (delta.reset) this.proxies.clear();
    for (const key of delta.removed) this.proxies.delete(key);
    const left = this.proxies.size;
    for (const row of delta.rows as ProxyArray[]) this.proxies.set(row[0], proxyRow(row));
    if (delta.reset || left < before || this.proxies.size > left) this.#pending.members = true;
    this.#pending.proxies = true;
  }

  #takePushes(delta: Delta) {
    if (delta.reset) this.#pushes.clear();
    for (const key of delta.removed) this.#pushes.delete(key);
    for (const push of delta.rows as Push[]) this.#pushes.set(String(push.id), push);
    this.#pending.pushes = true;
  }

  #takeOverview(delta: Delta) {
    const next: Record<string, unknown> = delta.reset ? {} : { ...this.overview };
    for (const [name, value] of delta.rows as [string, unknown][]) next[name] = value;
    this.overview = next as OverviewRows;
    const now = this.overview.now;
    const [times, acks, responses, changes, cpu] = this.history;
    const at = (now?.at ?? 0) / 1000;
    if (!now || at <= (times[times.length - 1] ?? 0)) return;
    const keep = <T>(values: T[], value: T) => [...values.slice(-599), value];
    this.history = [
      keep(times, at),
      keep(acks, now.rates.acks),
      keep(responses, now.rates.responses),
      keep(changes, now.rates.changes),
      keep(cpu, now.rates.cpu),
    ];
  }
}

export const live = new Live();
