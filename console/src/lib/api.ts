// Requests to the server that serves this page. The token is a variable of this module: it is gone when the page is closed, and in no storage.

let token = "";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export function setToken(value: string) {
  token = value.trim().replace(/^bearer\s+/i, "");
}

export function hasToken(): boolean {
  return token !== "";
}

export function headers(more: Record<string, string> = {}): Record<string, string> {
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

/** Called when the server no longer accepts the token. */
export const onUnauthorized: { call: (why: string) => void } = { call: () => {} };

async function answer(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, "The server does not answer. It may be restarting; this page asks again.");
  }
  if (response.ok) return response;
  const why = (await response.text().catch(() => "")).trim().slice(0, 4000);
  if (response.status === 401) onUnauthorized.call(why);
  throw new ApiError(response.status, why || `HTTP ${response.status}`);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await answer(path, { headers: headers(), signal: signal ?? null });
  return (await response.json()) as T;
}

/** With the milliseconds that the server worked, or until it answered if it does not say. */
export async function timed<T>(path: string): Promise<[T, number]> {
  const begun = performance.now();
  const response = await answer(path, { headers: headers() });
  const waited = performance.now() - begun;
  const dur = /;dur=([\d.]+)/.exec(response.headers.get("Server-Timing") ?? "")?.[1];
  return [(await response.json()) as T, dur ? Number(dur) : waited];
}

export async function text(path: string, signal?: AbortSignal): Promise<string> {
  return (await answer(path, { headers: headers(), signal: signal ?? null })).text();
}

export async function post<T>(path: string, body: string, type: string, signal?: AbortSignal): Promise<T> {
  const response = await answer(path, { method: "POST", headers: headers({ "Content-Type": type }), body, signal: signal ?? null });
  return (await response.json()) as T;
}

export async function stream(path: string, more: Record<string, string>, signal: AbortSignal): Promise<ReadableStream<Uint8Array>> {
  const response = await answer(path, { headers: headers({ Accept: "text/event-stream", ...more }), signal });
  if (!response.body) throw new ApiError(0, "The server sent no stream.");
  return response.body;
}

export function query(values: Record<string, string | undefined>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value) search.set(key, value);
  const text = search.toString();
  return text ? `?${text}` : "";
}
