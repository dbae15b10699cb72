{{/* Kinds with a namespace: for the whole cluster, or in each watched namespace. */}}
{{- define "meltemi.namespacedRules" -}}
# Services, who is behind them, and the workloads themselves.
- apiGroups: [""]
  resources: [services, pods]
  verbs: [list, watch]
{{- if eq (toString .Values.env.PILOT_USE_ENDPOINT_SLICE) "false" }}
# PILOT_USE_ENDPOINT_SLICE=false.
- apiGroups: [""]
  resources: [endpoints]
  verbs: [list, watch]
{{- else }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end }}
# Certificates and keys that gateways and destination rules name, pull secrets of Wasm modules. Without it only those are missing.
- apiGroups: [""]
  resources: [secrets]
  verbs: [list, watch]
# The mesh config, certificates, and whether istio-ca-root-cert is as it should be.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [list, watch]
# Root certificates for sidecars, by server-side apply, which needs both verbs.
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [istio-ca-root-cert]
  verbs: [create, patch]
# Ingresses. Without it only they are missing.
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [list, watch]
# Istio's own kinds.
- apiGroups: [networking.istio.io]
  resources:
    - destinationrules
    - envoyfilters
    - gateways
    - proxyconfigs
    - serviceentries
    - sidecars
    - virtualservices
    - workloadentries
    - workloadgroups
  verbs: [list, watch]
- apiGroups: [security.istio.io]
  resources: [authorizationpolicies, peerauthentications, requestauthentications]
  verbs: [list, watch]
- apiGroups: [telemetry.istio.io]
  resources: [telemetries]
  verbs: [list, watch]
- apiGroups: [extensions.istio.io]
  resources: [trafficextensions, wasmplugins]
  verbs: [list, watch]
# Objects of the Gateway API are not read; a line at the start says how many there are.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, grpcroutes, httproutes, tcproutes, tlsroutes]
  verbs: [list]
{{- if ne (toString .Values.env.PILOT_ENABLE_IP_AUTOALLOCATE) "false" }}
# Addresses for hosts of ServiceEntries that have none.
- apiGroups: [networking.istio.io]
  resources: [serviceentries/status]
  verbs: [patch]
{{- end }}
{{- if ne (toString .Values.env.PILOT_ENABLE_STATUS) "false" }}
# Whether each object was accepted and reached the proxies. Without it only that is not reported.
- apiGroups: [networking.istio.io]
  resources:
    - destinationrules/status
    - envoyfilters/status
    - gateways/status
    - proxyconfigs/status
    - serviceentries/status
    - sidecars/status
    - virtualservices/status
    - workloadentries/status
    - workloadgroups/status
  verbs: [patch]
- apiGroups: [security.istio.io]
  resources: [authorizationpolicies/status, peerauthentications/status, requestauthentications/status]
  verbs: [patch]
- apiGroups: [telemetry.istio.io]
  resources: [telemetries/status]
  verbs: [patch]
- apiGroups: [extensions.istio.io]
  resources: [trafficextensions/status, wasmplugins/status]
  verbs: [patch]
# That proxies reject an object. Without it only its status says so.
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end }}
