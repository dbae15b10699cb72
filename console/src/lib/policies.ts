// What AuthorizationPolicies and PeerAuthentications say about a namespace as a whole. An answer for one request, with its path and its headers,
// is not in here: the server explains requests.

export interface IstioObject {
  kind: string;
  metadata: { name: string; namespace: string };
  // Its shape depends on the kind.
  spec: any;
}

export interface Access {
  /** `rules`: as `sources` say. */
  verdict: "open" | "closed" | "rules";
  /** Namespaces that a rule of an ALLOW policy lets in, `*` for all; `some`: only some requests, or to some workloads. */
  sources: Map<string, "all" | "some">;
  denies: number;
  customs: number;
  policies: IstioObject[];
}

export function access(objects: IstioObject[], root: string, namespace: string): Access {
  const policies = objects.filter((object) => object.kind === "AuthorizationPolicy" && (object.metadata.namespace === namespace || object.metadata.namespace === root));
  const action = (policy: IstioObject) => String(policy.spec?.action ?? "ALLOW");
  const allows = policies.filter((policy) => action(policy) === "ALLOW");
  const whole = allows.filter((policy) => !limited(policy));
  const sources = new Map<string, "all" | "some">();
  for (const policy of allows) {
    for (const rule of policy.spec?.rules ?? []) {
      const partly = limited(policy) || rule.to?.length > 0 || rule.when?.length > 0;
      for (const [source, conditions] of sourcesOf(rule)) {
        if (sources.get(source) !== "all") sources.set(source, partly || conditions ? "some" : "all");
      }
    }
  }
  // Workloads without an ALLOW policy let everybody in.
  if (allows.length > 0 && whole.length === 0 && sources.get("*") !== "all") sources.set("*", "some");
  const verdict = allows.length === 0 ? "open" : sources.size === 0 ? "closed" : "rules";
  const count = (wanted: string) => policies.filter((policy) => action(policy) === wanted).length;
  return { verdict, sources, denies: count("DENY"), customs: count("CUSTOM"), policies };
}

function limited(policy: IstioObject): boolean {
  const { selector, targetRef, targetRefs } = policy.spec ?? {};
  return Object.keys(selector?.matchLabels ?? {}).length > 0 || targetRef !== undefined || (targetRefs?.length ?? 0) > 0;
}

/** Namespaces that a rule names, and whether it wants more of the caller than that. */
function sourcesOf(rule: { from?: { source?: Record<string, string[]> }[] }): [string, boolean][] {
  if (!rule.from || rule.from.length === 0) return [["*", false]];
  return rule.from.flatMap(({ source = {} }): [string, boolean][] => {
    const { namespaces = [], principals = [], serviceAccounts = [], ...others } = source;
    const more = Object.values(others).some((values) => values?.length > 0);
    const named: [string, boolean][] = [];
    for (const one of namespaces) named.push([one.includes("*") ? "*" : one, more || principals.length > 0 || one.includes("*")]);
    if (namespaces.length > 0) return named;
    for (const one of principals) {
      const match = /\/ns\/([^/*]+)\/sa\/(.+)$/.exec(one);
      named.push(match ? [match[1]!, more || match[2] !== "*"] : ["*", true]);
    }
    for (const one of serviceAccounts) named.push([one.includes("/") ? (one.split("/")[0] ?? "*") : "*", true]);
    return named.length > 0 ? named : [["*", more]];
  });
}

export interface Mode {
  mode: string;
  from: string;
  /** PeerAuthentications for single workloads, which may say otherwise. */
  exceptions: number;
}

export function modeOf(objects: IstioObject[], root: string, namespace: string): Mode {
  const own = objects.filter((object) => object.kind === "PeerAuthentication" && object.metadata.namespace === namespace);
  const exceptions = own.filter((object) => limited(object) || Object.keys(object.spec?.portLevelMtls ?? {}).length > 0).length;
  const wide = (of: string) => objects.find((object) => object.kind === "PeerAuthentication" && object.metadata.namespace === of && !limited(object));
  for (const [of, from] of [
    [namespace, "of the namespace"],
    [root, "of the mesh"],
  ] as const) {
    const mode = wide(of)?.spec?.mtls?.mode;
    if (mode && mode !== "UNSET") return { mode, from, exceptions };
  }
  return { mode: "PERMISSIVE", from: "by default", exceptions };
}
