metadata:
  labels:
    service.istio.io/canonical-name: {{ coalesce (index .ObjectMeta.Labels "service.istio.io/canonical-name") (index .ObjectMeta.Labels "app.kubernetes.io/name") (index .ObjectMeta.Labels "app") .DeploymentMeta.Name | default "" | quote }}
    {{- template "revision-label" . }}
  annotations:
    {{- template "workload-annotations" . }}
spec:
  {{- if .Values.gateways.securityContext }}
  securityContext: {{ toJson .Values.gateways.securityContext }}
  {{- else }}
  securityContext: {sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]}
  {{- end }}
  containers:
  - name: istio-proxy
    image: {{ template "image" . }}
    {{- template "pull-policy" . }}
    ports:
    - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}
    args:
    - proxy
    - router
    {{- template "agent-arguments" . }}
    {{- with .Values.global.proxy.lifecycle }}
    lifecycle: {{ toJson . }}
    {{- end }}
    securityContext:
      runAsUser: {{ .ProxyUID | default 1337 }}
      runAsGroup: {{ .ProxyGID | default 1337 }}
    env:
    {{- template "identity-env" . }}
    {{- template "envoy-env" . }}
    - {name: ISTIO_META_INTERCEPTION_MODE, value: {{ .ProxyConfig.InterceptionMode.String | quote }}}
    {{- with .DeploymentMeta.Name }}
    - {name: ISTIO_META_WORKLOAD_NAME, value: {{ . | quote }}}
    {{- end }}
    {{- template "proxy-metadata-env" . }}
    readinessProbe:
      httpGet: {path: /healthz/ready, port: 15021}
      initialDelaySeconds: {{ .Values.global.proxy.readinessInitialDelaySeconds }}
      periodSeconds: {{ .Values.global.proxy.readinessPeriodSeconds }}
      failureThreshold: {{ .Values.global.proxy.readinessFailureThreshold }}
      timeoutSeconds: 3
    volumeMounts:
    {{- template "credential-mounts" . }}
    - {name: credential-socket, mountPath: /var/run/secrets/credential-uds}
    {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/bootstrapOverride" }}
    - {name: custom-bootstrap-volume, mountPath: /etc/istio/custom-bootstrap}
    {{- end }}
    - {name: istio-envoy, mountPath: /etc/istio/proxy}
  volumes:
  {{- template "volumes" . }}
  - {name: credential-socket, emptyDir: {}}
  - {name: istio-envoy, emptyDir: {medium: Memory}}
  {{- template "pull-secrets" . }}
