// Where the user is: a page, what it shows, and its filters, all in the hash of the address, so that every state has a link.

import { query } from "./api";

class Route {
  page = $state("overview");
  /** What follows the page, decoded. */
  rest = $state.raw<string[]>([]);
  params = $state.raw<Record<string, string>>({});

  constructor() {
    this.#read();
    window.addEventListener("hashchange", () => this.#read());
  }

  #read() {
    const hash = window.location.hash.replace(/^#\/?/, "");
    const at = hash.indexOf("?");
    const path = (at < 0 ? hash : hash.slice(0, at)).split("/").filter(Boolean).map(decode);
    const [page = "overview", ...rest] = path;
    this.page = page;
    this.rest = rest;
    this.params = Object.fromEntries(new URLSearchParams(at < 0 ? "" : hash.slice(at + 1)));
  }

  /** Changes filters of this page without a step in the browser's history. */
  set(values: Record<string, string | undefined>) {
    const merged: Record<string, string | undefined> = { ...this.params, ...values };
    history.replaceState(null, "", link([this.page, ...this.rest], merged));
    this.#read();
  }

  go(path: string[], params: Record<string, string | undefined> = {}) {
    window.location.hash = link(path, params);
  }
}

export function link(path: string[], params: Record<string, string | undefined> = {}): string {
  return `#/${path.map(encodeURIComponent).join("/")}${query(params)}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Route();
