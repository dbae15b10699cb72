// Asks the server again and again, and lets it rest in between: however large the mesh is, one page takes less than a hundredth of a processor.

/** Waits so many times as long as the server worked. Overview and event stream, which every page follows, take as much again. */
const REST = 250;

export class Paced {
  readonly #least: number;
  readonly #ask: () => Promise<number>;
  #timer = 0;
  #allowed = 0;
  #asking = false;
  #again = false;
  #stopped = false;

  /** `ask` returns how many milliseconds the server worked. `least`: the time between two questions if nothing happens. */
  constructor(least: number, ask: () => Promise<number>) {
    this.#least = least;
    this.#ask = ask;
    void this.#turn();
  }

  /** Something has changed: asks as soon as the server has rested. */
  soon() {
    if (this.#asking) this.#again = true;
    else this.#schedule(0);
  }

  stop() {
    this.#stopped = true;
    window.clearTimeout(this.#timer);
  }

  #schedule(least: number) {
    window.clearTimeout(this.#timer);
    if (!this.#stopped) this.#timer = window.setTimeout(() => void this.#turn(), Math.max(least, this.#allowed - performance.now()));
  }

  async #turn() {
    this.#asking = true;
    const took = await this.#ask();
    this.#asking = false;
    this.#allowed = performance.now() + took * REST;
    this.#schedule(this.#again ? 0 : this.#least);
    this.#again = false;
  }
}
