// Simulated proxies: ADS streams over HTTP/2, many on one connection, that subscribe to all types and acknowledge what they get. Names may be
// anything, which is what the tests of hostile names need.
import { connect } from "node:http2";

const PREFIX = "type.googleapis.com/envoy.config.";
/** What each subscribes to, by name where Envoy would. */
const SUBSCRIPTIONS = [
  [`${PREFIX}cluster.v3.Cluster`, []],
  [`${PREFIX}endpoint.v3.ClusterLoadAssignment`, ["outbound|7081||cart.shop.svc.cluster.local", "outbound|7082||stock.shop.svc.cluster.local"]],
  [`${PREFIX}listener.v3.Listener`, []],
  [`${PREFIX}route.v3.RouteConfiguration`, ["7080", "7081", "7082"]],
];
const STREAMS = 80;

function varint(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}
const field = (number, content) => {
  const bytes = typeof content === "string" ? Buffer.from(content) : content;
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
};
const text = (value) => field(3, value);
/** An entry of google.protobuf.Struct. */
const entry = (key, value) => field(1, Buffer.concat([field(1, key), field(2, typeof value === "string" ? text(value) : field(5, struct(value)))]));
const struct = (values) => Buffer.concat(Object.entries(values).map(([key, value]) => entry(key, value)));

function node({ name, namespace, address, version = "1.31.0", zone = "zone-a", labels = {}, more = {} }) {
  const metadata = { CLUSTER_ID: "Kubernetes", ISTIO_VERSION: version, LABELS: { app: name, ...labels }, NAME: name, NAMESPACE: namespace, SERVICE_ACCOUNT: name.split("-")[0], ...more };
  return Buffer.concat([
    field(1, `sidecar~${address}~${name}.${namespace}~${namespace}.svc.cluster.local`),
    field(2, `${name}.${namespace}`),
    field(3, struct(metadata)),
    field(4, Buffer.concat([field(1, "region"), field(2, zone)])),
  ]);
}

function frame(message) {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Fields 1 (version), 4 (type) and 5 (nonce) of a DiscoveryResponse. */
function response(message) {
  const found = {};
  for (let at = 0; at < message.length; ) {
    let [tag, length, shift] = [0, 0, 0];
    do tag += (message[at] & 127) * 2 ** (7 * shift++); while (message[at++] & 128);
    shift = 0;
    do length += (message[at] & 127) * 2 ** (7 * shift++); while (message[at++] & 128);
    if (tag % 8 !== 2) continue;
    if ([1, 4, 5].includes(tag >> 3)) found[tag >> 3] = message.toString("utf8", at, at + length);
    at += length;
  }
  return { version: found[1] ?? "", type: found[4] ?? "", nonce: found[5] ?? "" };
}

/** Of any key: the server takes the public key and nothing else. */
const CSR = `-----BEGIN CERTIFICATE REQUEST-----
MIG6MGICAQAwADBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFV/DqYxV8djqcFO
dtZCbPgwEjvvfhgmueQ1uDCUUhiyzzwfjF27rvsKOQ2/5emzmsYQ8EK/mH88Bu35
DJyx4MigADAKBggqhkjOPQQDAgNIADBFAiEAjSzOGZrBm5DElWxzJfOiMDWhIEW6
yjZCbS4gl8rullwCIAMJ1jMvaauDluMtFLPrAZxr6J1QzfRgeVsvgwlEXSAI
-----END CERTIFICATE REQUEST-----
`;

export class Proxies {
  #port;
  #token;
  #sessions = [];
  #streams = 0;
  answered = 0;

  /** `token`: of a service account, for the secure port. */
  constructor(port, token = "") {
    [this.#port, this.#token] = [port, token];
  }

  #session() {
    if (this.#sessions.length === 0 || this.#streams % STREAMS === 0) {
      const session = this.#token ? connect(`https://127.0.0.1:${this.#port}`, { rejectUnauthorized: false }) : connect(`http://127.0.0.1:${this.#port}`);
      session.on("error", () => {});
      this.#sessions.push(session);
    }
    this.#streams += 1;
    return this.#sessions.at(-1);
  }

  /** `silent`: never acknowledges. `rejects`: the text of its NACKs. */
  connect({ silent = false, rejects = "", ...proxy }) {
    const stream = this.#call("/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources");
    const own = node(proxy);
    const subscribed = new Map(SUBSCRIPTIONS.map(([type, names]) => [type, names.map((name) => field(3, name))]));
    for (const [type, names] of subscribed) stream.write(frame(Buffer.concat([field(2, own), ...names, field(4, type)])));
    let rest = Buffer.alloc(0);
    stream.on("data", (data) => {
      rest = rest.length > 0 ? Buffer.concat([rest, data]) : data;
      while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
        const end = 5 + rest.readUInt32BE(1);
        const { version, type, nonce } = response(rest.subarray(5, end));
        rest = rest.subarray(end);
        this.answered += 1;
        if (silent) continue;
        const parts = [...(subscribed.get(type) ?? []), field(4, type), field(5, nonce)];
        if (rejects) parts.push(field(6, Buffer.concat([Buffer.from([8, 13]), field(2, rejects)])));
        else parts.push(field(1, version));
        stream.write(frame(Buffer.concat(parts)));
      }
    });
  }

  #call(path) {
    const authorization = this.#token ? { authorization: `Bearer ${this.#token}` } : {};
    const stream = this.#session().request({ ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers", ...authorization });
    stream.on("error", () => {});
    return stream;
  }

  /** A certificate for so many seconds. Returns the status of gRPC. */
  async certificate(seconds) {
    const stream = this.#call("/istio.v1.auth.IstioCertificateService/CreateCertificate");
    stream.end(frame(Buffer.concat([field(1, CSR), Buffer.from([3 * 8]), varint(seconds)])));
    return new Promise((resolve) => {
      stream.on("trailers", (trailers) => resolve(Number(trailers["grpc-status"])));
      stream.on("response", (headers) => headers["grpc-status"] !== undefined && resolve(Number(headers["grpc-status"])));
      stream.on("close", () => resolve(-1));
      stream.resume();
    });
  }

  many(count, namespaces = 20) {
    for (let at = 0; at < count; at++) {
      this.connect({
        name: `web-${String(at).padStart(5, "0")}`,
        namespace: `team-${String(at % namespaces).padStart(2, "0")}`,
        address: `10.${Math.floor(at / 62_500)}.${Math.floor(at / 250) % 250}.${(at % 250) + 1}`,
        version: at % 7 === 0 ? "1.30.4" : "1.31.0",
        zone: `zone-${"abc"[at % 3]}`,
      });
    }
  }

  close() {
    for (const session of this.#sessions) session.destroy();
    this.#sessions = [];
  }
}

/** The pods of examples/shop, where nothing is redirected. */
export function shop(proxies) {
  for (const [app, last] of [["front", 1], ["cart", 2], ["stock", 3]]) {
    proxies.connect({ name: `${app}-v1`, namespace: "shop", address: `127.0.10.${last}`, labels: { app, version: "v1" }, more: { INTERCEPTION_MODE: "NONE" } });
  }
}
