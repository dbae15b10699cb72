// What the main thread of a page does meanwhile, by the browser's own trace (DevTools' Tracing domain, events RunTask).

/** Runs `work`, and returns the tasks of the page's main thread in milliseconds: `wall` as the user waits, `cpu` without waiting for a processor. */
export async function tasksDuring(page, work) {
  const session = await page.context().newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  const includedCategories = ["devtools.timeline", "disabled-by-default-devtools.timeline"];
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories, excludedCategories: ["*"] } });
  try {
    await work();
  } finally {
    await session.send("Tracing.end");
    await complete;
    await session.detach();
  }
  return tasks(events);
}

function tasks(events) {
  const mains = new Set(events.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain").map(thread));
  const run = events.filter((event) => event.name === "RunTask" && event.ph === "X" && mains.has(thread(event)));
  if (run.length === 0) throw new Error("the trace has no task of a page's main thread");
  return run.map((event) => ({ wall: event.dur / 1000, cpu: (event.tdur ?? event.dur) / 1000 }));
}

const thread = ({ pid, tid }) => `${pid}/${tid}`;

export const longest = (tasks, clock) => Math.max(...tasks.map((task) => task[clock]));

/** Scrolls a table as a wheel does, then as somebody who drags the bar: far, in every frame. Returns the most rows that the document had. */
export async function scroll(page, { wheel = 60, jumps = 60 } = {}) {
  const rows = page.locator("[role=rowgroup]");
  const box = await rows.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.evaluate(() => {
    window.mostRows = 0;
    const count = () => {
      window.mostRows = Math.max(window.mostRows, document.querySelectorAll("[role=rowgroup] [role=row]").length);
      window.counting = requestAnimationFrame(count);
    };
    count();
  });
  for (let step = 0; step < wheel; step++) {
    await page.mouse.wheel(0, 240);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  return page.evaluate(async (jumps) => {
    const body = document.querySelector("[role=rowgroup]");
    for (let step = 1; step <= jumps; step++) {
      body.scrollTop = (body.scrollHeight * step) / jumps;
      await new Promise(requestAnimationFrame);
    }
    cancelAnimationFrame(window.counting);
    return window.mostRows;
  }, jumps);
}
