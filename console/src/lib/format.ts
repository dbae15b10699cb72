// Figures as people read them, and names as a shell reads them.

import { visible } from "./proxy-row";

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${trim(value * 1000)} ms`;
  if (value < 120) return `${trim(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

export const ms = (value: number | null | undefined) => seconds(value === null || value === undefined ? value : value / 1000);

function trim(value: number): string {
  return value >= 100 ? String(Math.round(value)) : String(Number(value.toFixed(value >= 10 ? 1 : 2)));
}

export function rate(value: number): string {
  if (value === 0) return "0/s";
  if (value < 0.1) return "<0.1/s";
  return `${value >= 1000 ? number(Math.round(value)) : value >= 10 ? Math.round(value) : value.toFixed(1)}/s`;
}

export function number(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

export function clock(at: string | number): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "–" : time.toTimeString().slice(0, 8);
}

export function day(at: string | number): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "–" : time.toISOString().slice(0, 16).replace("T", " ");
}

/** An argument for a shell, quoted only if it must be; characters that are not shown as escapes, which bash and zsh read. */
export function quoted(text: string): string {
  if (/^[\w.,:/@%+=-]+$/.test(text)) return text;
  if (visible(text) !== text) return `$'${visible(text.replaceAll("\\", "\\\\").replaceAll("'", "\\'"))}'`;
  return `'${text.replaceAll("'", "'\\''")}'`;
}
