// The metrics page, as far as the console shows it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

export function samples(page: string): Sample[] {
  const found: Sample[] = [];
  for (const line of page.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels: Record<string, string> = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key!] = value!.replace(/\\(.)/g, (_all, c: string) => (c === "n" ? "\n" : c));
    found.push({ name: match[1]!, labels, value: Number(match[3]) });
  }
  return found;
}
