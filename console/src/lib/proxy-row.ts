// A row of the table of proxies, with what search and sorting need computed once.

import { ERROR, NOT_SENT, type ProxyArray, STALE, SYNCED, type SyncNumber } from "./types";

export interface ProxyRow {
  id: string;
  proxy: string;
  namespace: string;
  type: string;
  version: string;
  locality: string;
  cls: string;
  connectedAt: number;
  address: string;
  types: Record<string, SyncNumber>;
  staleSince: number;
  reason: string;
  state: SyncNumber;
  /** In lower case, all that a search looks at. */
  search: string;
  sort: string;
}

export function proxyRow(row: ProxyArray): ProxyRow {
  const [id, proxy, namespace, type, version, locality, cls, connectedAt, address, types, staleSince, reason] = row;
  return {
    id,
    proxy,
    namespace,
    type,
    version: version || "unknown",
    locality: locality || "–",
    cls: cls === null ? "–" : String(cls),
    connectedAt,
    address,
    types,
    staleSince: staleSince ?? 0,
    reason: reason ?? "",
    state: worst(types),
    search: `${proxy} ${namespace} ${type} ${version} ${locality} ${address}`.toLowerCase(),
    sort: `${namespace}\u0000${proxy}`,
  };
}

export function worst(types: Record<string, SyncNumber>): SyncNumber {
  let state: SyncNumber = NOT_SENT;
  for (const one of Object.values(types)) {
    if (one === ERROR) return ERROR;
    if (one === STALE) state = STALE;
    else if (one === SYNCED && state !== STALE) state = SYNCED;
  }
  return state;
}

export const STATE_NAMES: Record<SyncNumber, string> = { 0: "not sent", 1: "behind", 2: "synced", 3: "rejected" };

/** Without the word, where there is room for a mark only. */
export const STATE_MARKS = ["○", "◐", "●", "✗"];
export const STATE_CLASSES = ["dim", "warn", "good", "bad"];

/** Names for an input field, where they stand as they are: those that can be read. */
export function suggestions(rows: Iterable<ProxyRow>): string[] {
  const names: string[] = [];
  for (const { proxy } of rows) {
    if (names.length === 500) break;
    if (visible(proxy) === proxy) names.push(proxy);
  }
  return names;
}

/** A node name without the characters that the browser would lay out in another direction or not show at all. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
