metadata:
  labels:
    service.istio.io/canonical-name: {{ coalesce (index .ObjectMeta.Labels "service.istio.io/canonical-name") (index .ObjectMeta.Labels "app.kubernetes.io/name") (index .ObjectMeta.Labels "app") .DeploymentMeta.Name | default "" | quote }}
    {{- template "revision-label" . }}
  annotations:
    {{- template "workload-annotations" . }}
    sidecar.istio.io/rewriteAppHTTPProbers: "false"
spec:
  containers:
  - name: istio-proxy
    image: {{ template "image" . }}
    {{- template "pull-policy" . }}
    ports:
    - {name: mesh-metrics, containerPort: 15020, protocol: TCP}
    args:
    - proxy
    - sidecar
    {{- template "agent-arguments" . }}
    lifecycle: {postStart: {exec: {command: [pilot-agent, wait, "--url=http://localhost:15020/healthz/ready"]}}}
    env:
    {{- template "identity-env" . }}
    - {name: ISTIO_META_GENERATOR, value: grpc}
    - {name: OUTPUT_CERTS, value: /var/lib/istio/data}
    {{- if eq .InboundTrafficPolicyMode "localhost" }}
    - {name: REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION, value: "true"}
    {{- end }}
    {{- with .DeploymentMeta.Name }}
    - {name: ISTIO_META_WORKLOAD_NAME, value: {{ . | quote }}}
    {{- end }}
    {{- template "proxy-metadata-env" . }}
    - {name: ISTIO_META_DNS_CAPTURE, value: "false"}
    - {name: DISABLE_ENVOY, value: "true"}
    {{- if ne (annotation .ObjectMeta "status.sidecar.istio.io/port" .Values.global.proxy.statusPort) "0" }}
    readinessProbe:
      httpGet: {path: /healthz/ready, port: 15020}
      initialDelaySeconds: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/initialDelaySeconds" .Values.global.proxy.readinessInitialDelaySeconds }}
      periodSeconds: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/periodSeconds" .Values.global.proxy.readinessPeriodSeconds }}
      failureThreshold: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/failureThreshold" .Values.global.proxy.readinessFailureThreshold }}
      timeoutSeconds: 3
    {{- template "resources" . }}
    volumeMounts:
    {{- template "credential-mounts" . }}
    - {name: istio-xds, mountPath: /etc/istio/proxy}
    {{- template "user-mounts" . }}
    {{- end }}
  {{- $root := . }}
  {{- range .Spec.Containers }}
  {{- if ne .Name "istio-proxy" }}
  - name: {{ .Name | quote }}
    env:
    - {name: GRPC_XDS_EXPERIMENTAL_SECURITY_SUPPORT, value: "true"}
    - {name: GRPC_XDS_BOOTSTRAP, value: /etc/istio/proxy/grpc-bootstrap.json}
    volumeMounts:
    - {name: istio-data, mountPath: /var/lib/istio/data}
    - {name: istio-xds, mountPath: /etc/istio/proxy}
    {{- if eq $root.Values.global.caName "GkeWorkloadCertificate" }}
    - {name: gke-workload-certificate, mountPath: /var/run/secrets/workload-spiffe-credentials, readOnly: true}
    {{- else }}
    - {name: workload-certs, mountPath: /var/run/secrets/workload-spiffe-credentials}
    {{- end }}
  {{- end }}
  {{- end }}
  volumes:
  {{- template "volumes" . }}
  - {name: istio-xds, emptyDir: {medium: Memory}}
  {{- template "user-volumes" . }}
  {{- template "pull-secrets" . }}
