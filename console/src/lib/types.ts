// What the server sends.

export interface Session {
  namespace: string | null;
  version: string;
  revision: string;
  server: string;
  cluster: string | null;
}

export type SyncNumber = 0 | 1 | 2 | 3;
export const NOT_SENT = 0;
export const STALE = 1;
export const SYNCED = 2;
export const ERROR = 3;

export type ProxyArray = [
  id: string,
  proxy: string,
  namespace: string,
  type: string,
  version: string,
  locality: string,
  cls: number | null,
  connectedAt: number,
  address: string,
  types: Record<string, SyncNumber>,
  staleSince: number | null,
  reason: string | null,
];

export interface Push {
  id: number;
  at: string;
  cause: string;
  classes: number;
  proxies: number;
  debounceMs: number;
  refreshMs: number;
  sent: number;
  acked: number;
  refused: number;
  done: number;
  firstSentMs?: number;
  lastSentMs?: number;
  lastAnswerMs?: number;
  lastDoneMs?: number;
}

export interface Quantiles {
  p50: number | null;
  p99: number | null;
  p50Ever: number | null;
  p99Ever: number | null;
}

export interface Figures {
  at: number;
  windowSeconds: number;
  uptimeSeconds: number;
  stages: { stage: string; cpu: number; bytes: number }[];
  rates: Record<"changes" | "refreshes" | "responses" | "responseBytes" | "acks" | "rejects" | "certificates" | "cpu", number>;
  times: Record<"debounce" | "refresh" | "queue" | "send" | "convergence", Quantiles>;
  queueDepth: number;
  slotsInUse: number;
  oldestUnackedSeconds: number;
  residentBytes: number;
  memoryLimitBytes: number;
  cpuRequest: number;
  panics: number;
  classes: number | null;
  throttle: number;
}

export interface WatchState {
  kind: string;
  namespace: string;
  state: string;
  since: string;
  ageSeconds: number;
  objects: number;
  trouble?: string;
}

export interface Health {
  ready: boolean;
  draining: boolean;
  proxies: number;
  synced: number;
  stale: number;
  rejected: number;
  expected: number | null;
  errors: number | null;
  warnings: number | null;
  watches: WatchState[] | null;
}

export interface Heat {
  column_seconds: number;
  bounds: number[];
  columns: { at: number; counts: number[] }[];
}

export interface Check {
  group: string;
  id: string;
  mark: "ok" | "warning" | "error";
  what: string;
  hint?: string;
  apply?: string[];
}

export interface Replica {
  name: string;
  own: boolean;
  version: string;
  streams: number;
  state: string;
  differsIn: string[];
  silentSeconds: number;
  monitoring?: string;
}

export type ResourceArray = [type: string, name: string, version: string, bytes: number, from: string[]];

export interface ProxyDocument {
  id: string;
  proxy: string;
  namespace: string;
  type: string;
  version: string;
  locality: string;
  class: number | null;
  address: string;
  connectedAt: string;
  caller: string | null;
  labels: Record<string, string> | null;
  resources: ResourceArray[];
}

export type ObjectArray = [
  kind: string,
  namespace: string,
  name: string,
  errors: number,
  warnings: number,
  reach: number | null,
  at: string | null,
  first: string | null,
];

export interface Note {
  severity: string;
  field: string;
  what: string;
  at: string | null;
}
