// Differences between two texts line by line (Myers), and between what two proxies hold.

export interface DiffLine {
  kind: "same" | "left" | "right";
  text: string;
}

/** Beyond this many differences, everything is shown as replaced. */
const LIMIT = 4000;

export function lineDiff(left: string[], right: string[]): DiffLine[] {
  let start = 0;
  while (start < left.length && start < right.length && left[start] === right[start]) start++;
  let end = 0;
  while (end < left.length - start && end < right.length - start && left[left.length - 1 - end] === right[right.length - 1 - end]) end++;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(left.slice(0, start)),
    ...myers(left.slice(start, left.length - end), right.slice(start, right.length - end)),
    ...same(left.slice(left.length - end)),
  ];
}

function myers(a: string[], b: string[]): DiffLine[] {
  const replaced = (): DiffLine[] => [...a.map((text) => ({ kind: "left" as const, text })), ...b.map((text) => ({ kind: "right" as const, text }))];
  if (a.length === 0 || b.length === 0) return replaced();
  const max = Math.min(a.length + b.length, LIMIT);
  const offset = max + 1;
  let frontier = new Int32Array(2 * max + 3);
  const trace: Int32Array[] = [];
  for (let d = 0; d <= max; d++) {
    trace.push(frontier.slice());
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && frontier[offset + k - 1]! < frontier[offset + k + 1]!);
      let x = down ? frontier[offset + k + 1]! : frontier[offset + k - 1]! + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      frontier[offset + k] = x;
      if (x >= a.length && x - k >= b.length) return backtrack(a, b, trace, offset, d);
    }
    if (d * a.length > 4_000_000) break;
  }
  return replaced();
}

function backtrack(a: string[], b: string[], trace: Int32Array[], offset: number, depth: number): DiffLine[] {
  const lines: DiffLine[] = [];
  let [x, y] = [a.length, b.length];
  for (let d = depth; d > 0; d--) {
    const frontier = trace[d]!;
    const k = x - y;
    const down = k === -d || (k !== d && frontier[offset + k - 1]! < frontier[offset + k + 1]!);
    const before = down ? k + 1 : k - 1;
    const [px, py] = [frontier[offset + before]!, frontier[offset + before]! - before];
    while (x > px && y > py) lines.push({ kind: "same", text: a[--x]! }) && y--;
    if (down) lines.push({ kind: "right", text: b[--y]! });
    else lines.push({ kind: "left", text: a[--x]! });
  }
  while (x > 0) lines.push({ kind: "same", text: a[--x]! });
  return lines.reverse();
}

/** Only the lines near a difference; `null` where lines were left out. */
export function hunks(lines: DiffLine[], context = 3): (DiffLine | null)[] {
  const near = new Uint8Array(lines.length);
  lines.forEach((line, at) => {
    if (line.kind !== "same") near.fill(1, Math.max(0, at - context), at + context + 1);
  });
  const shown: (DiffLine | null)[] = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown[shown.length - 1] !== null) shown.push(null);
  });
  return shown;
}
