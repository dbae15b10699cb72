// What one proxy holds: from the server, from a moment before, or from Envoy's own config_dump; and the differences between two of them.

import { get } from "./api";
import type { ProxyDocument } from "./types";

export interface Held {
  type: string;
  name: string;
  version: string;
  /** `undefined`: it must be fetched. */
  content?: unknown;
}

export interface Holdings {
  label: string;
  /** By type and name. */
  held: Map<string, Held>;
  /** Fetches the content of one. */
  fetch: (held: Held) => Promise<unknown>;
  /** Only these types can be compared; empty: all. */
  types: Set<string>;
}

const key = (type: string, name: string) => `${type} ${name}`;

export function ofDocument(document: ProxyDocument): Holdings {
  const held = new Map(document.resources.map(([type, name, version]) => [key(type, name), { type, name, version }]));
  const fetch = (one: Held) => get<unknown>(`/console/api/resource?${new URLSearchParams({ proxyID: document.id, type: one.type, name: one.name })}`);
  return { label: document.proxy, held, fetch, types: new Set() };
}

interface Section {
  list: string[];
  inner: string[];
  type: string;
}
/** Sections of a config_dump; Envoy writes names with underscores, this server as JSON has them. */
const SECTIONS: Section[] = [
  { list: ["dynamicListeners"], inner: ["activeState", "listener"], type: "LDS" },
  { list: ["dynamicRouteConfigs"], inner: ["routeConfig"], type: "RDS" },
  { list: ["dynamicActiveClusters"], inner: ["cluster"], type: "CDS" },
  { list: ["dynamicEndpointConfigs"], inner: ["endpointConfig"], type: "EDS" },
  { list: ["ecdsFilters"], inner: ["ecdsFilter"], type: "ECDS" },
];

export function ofDump(text: string, label: string): Holdings {
  const dump = camel(JSON.parse(text)) as { configs?: Record<string, unknown>[] };
  if (!Array.isArray(dump.configs)) throw new Error("This is no config_dump: it has no `configs`.");
  const held = new Map<string, Held>();
  const types = new Set<string>();
  for (const section of SECTIONS) {
    for (const config of dump.configs) {
      for (const list of section.list) {
        const entries = config[list];
        if (!Array.isArray(entries)) continue;
        types.add(section.type);
        for (const entry of entries as Record<string, unknown>[]) {
          const state = (section.inner[0] === "activeState" ? entry.activeState : entry) as Record<string, unknown> | undefined;
          const content = state?.[section.inner.at(-1) ?? ""] as Record<string, unknown> | undefined;
          const name = content?.name ?? content?.clusterName;
          if (!content || typeof name !== "string") continue;
          held.set(key(section.type, name), { type: section.type, name, version: String(state?.versionInfo ?? ""), content: withoutType(content) });
        }
      }
    }
  }
  if (held.size === 0) throw new Error("The dump has no dynamic listeners, routes, clusters or endpoints.");
  return { label, held, types, fetch: async (one) => one.content };
}

/** `@type` is written by one side only where the section says it. */
function withoutType(content: Record<string, unknown>): Record<string, unknown> {
  const { "@type": _type, ...rest } = content;
  return rest;
}

export function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name.replace(/_([a-z0-9])/g, (_all, c: string) => c.toUpperCase()), camel(inner)]));
}

export interface Difference {
  type: string;
  name: string;
  kind: "changed" | "left" | "right";
  left?: Held;
  right?: Held;
}

export function differences(left: Holdings, right: Holdings): Difference[] {
  const found: Difference[] = [];
  const comparable = (type: string) => (left.types.size === 0 || left.types.has(type)) && (right.types.size === 0 || right.types.has(type));
  for (const [at, one] of left.held) {
    if (!comparable(one.type)) continue;
    const other = right.held.get(at);
    if (!other) found.push({ type: one.type, name: one.name, kind: "left", left: one });
    else if (one.version !== other.version) found.push({ type: one.type, name: one.name, kind: "changed", left: one, right: other });
  }
  for (const [at, other] of right.held) {
    if (comparable(other.type) && !left.held.has(at)) found.push({ type: other.type, name: other.name, kind: "right", right: other });
  }
  const order = ["LDS", "RDS", "CDS", "EDS", "SDS", "ECDS", "NDS"];
  return found.sort((a, b) => order.indexOf(a.type) - order.indexOf(b.type) || (a.name < b.name ? -1 : 1));
}
