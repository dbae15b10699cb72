// Reads server-sent events from a fetched stream, which unlike EventSource can carry a token.

export interface ServerEvent {
  event: string;
  data: string;
  id: string;
}

export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  // Parts are joined once per event: an event may arrive in many.
  let parts: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      let rest = decoder.decode(value, { stream: true });
      for (;;) {
        // The end of an event may be cut between its two newlines.
        const last = parts[parts.length - 1];
        if (last?.endsWith("\n") && rest.startsWith("\n")) {
          yield parse(parts.join(""));
          parts = [];
          rest = rest.slice(1);
          continue;
        }
        const end = rest.indexOf("\n\n");
        if (end < 0) break;
        parts.push(rest.slice(0, end));
        yield parse(parts.join(""));
        parts = [];
        rest = rest.slice(end + 2);
      }
      if (rest) parts.push(rest);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(text: string): ServerEvent {
  const event: ServerEvent = { event: "", data: "", id: "" };
  for (const line of text.split("\n")) {
    const colon = line.indexOf(": ");
    const [field, value] = [line.slice(0, colon), line.slice(colon + 2)];
    if (field === "event") event.event = value;
    else if (field === "data") event.data += value;
    else if (field === "id") event.id = value;
  }
  return event;
}
