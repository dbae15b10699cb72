// Objects as the server writes them: `Kind namespace/name`, or `Kind name`.

import { link } from "./route.svelte";

export interface ObjectName {
  kind: string;
  namespace: string;
  name: string;
}

export function parseObject(text: string): ObjectName | null {
  const match = /^([A-Z][A-Za-z]+) (?:([^/\s]*)\/)?(\S+)$/.exec(text);
  return match ? { kind: match[1]!, namespace: match[2] ?? "", name: match[3]! } : null;
}

export function objectPath({ kind, namespace, name }: ObjectName): string {
  return link(["object", kind, namespace || "-", name]);
}

export function objectLink(text: string): string {
  const object = parseObject(text.trim());
  return object ? objectPath(object) : "";
}
