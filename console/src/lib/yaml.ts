// JSON as YAML, with the path of each line, so that a diagnostic about `spec.http[0].timeout` is shown where it belongs.

export interface Line {
  text: string;
  path: string;
}

export function yaml(value: unknown): Line[] {
  const lines: Line[] = [];
  write(value, "", "", lines, "");
  return lines;
}

function write(value: unknown, indent: string, path: string, lines: Line[], lead: string) {
  const entries = children(value);
  if (!entries) {
    lines.push({ text: lead + scalar(value, indent), path });
    return;
  }
  if (entries.length === 0) {
    lines.push({ text: lead + (Array.isArray(value) ? "[]" : "{}"), path });
    return;
  }
  // The first entry of a mapping in a list stands behind the dash.
  let first = lead.trimEnd().endsWith("-") && !Array.isArray(value) ? lead : null;
  if (first === null && lead) lines.push({ text: lead.trimEnd(), path });
  for (const [key, inner] of entries) {
    const inside = Array.isArray(value) ? `${path}[${key}]` : path ? `${path}.${key}` : String(key);
    const own = first ?? indent;
    first = null;
    if (Array.isArray(value)) {
      write(inner, `${indent}  `, inside, lines, `${own}- `);
    } else {
      const nested = children(inner);
      const deeper = Array.isArray(inner) ? indent : `${indent}  `;
      if (nested && nested.length > 0) {
        lines.push({ text: `${own}${keyText(String(key))}:`, path: inside });
        write(inner, deeper, inside, lines, "");
      } else {
        write(inner, deeper, inside, lines, `${own}${keyText(String(key))}: `);
      }
    }
  }
}

function children(value: unknown): [string | number, unknown][] | null {
  if (Array.isArray(value)) return value.map((inner, index) => [index, inner]);
  if (typeof value === "object" && value !== null) return Object.entries(value).filter(([, inner]) => inner !== null && inner !== undefined);
  return null;
}

function keyText(key: string): string {
  return /^[A-Za-z0-9_./@-]+$/.test(key) ? key : JSON.stringify(key);
}

function scalar(value: unknown, indent: string): string {
  if (typeof value !== "string") return String(value);
  if (value.includes("\n") && !/[\u0000-\u0008\u000b-\u001f]/.test(value)) {
    return `|\n${value.replace(/\n$/, "").split("\n").map((line) => `${indent}${line}`).join("\n")}`;
  }
  const plain = /^[A-Za-z_/][A-Za-z0-9_ ./@()%+~-]*$/.test(value) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(value) && !value.endsWith(" ");
  return plain ? value : JSON.stringify(value);
}

export function yamlText(value: unknown): string {
  return yaml(value)
    .map((line) => line.text)
    .join("\n");
}
