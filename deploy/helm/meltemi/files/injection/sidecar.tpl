{{- $proxy := .Values.global.proxy }}
{{- $cni := .Values.pilot.cni.enabled }}
{{- $mode := annotation .ObjectMeta "sidecar.istio.io/interceptionMode" .ProxyConfig.InterceptionMode }}
{{- $redirects := ne $mode "NONE" }}
{{- $tproxy := eq $mode "TPROXY" }}
{{- $lowPorts := eq (annotation .ObjectMeta "sidecar.istio.io/capNetBindService" $proxy.capNetBindService) "true" }}
{{- $native := ne (index .ObjectMeta.Annotations "sidecar.istio.io/nativeSidecar" | default (printf "%t" .NativeSidecars)) "false" }}
{{- $holds := and (not $native) (or .ProxyConfig.HoldApplicationUntilProxyStarts.GetValue $proxy.holdApplicationUntilProxyStarts) }}
{{- $statusPort := annotation .ObjectMeta "status.sidecar.istio.io/port" $proxy.statusPort }}
{{- $outboundRanges := annotation .ObjectMeta "traffic.sidecar.istio.io/includeOutboundIPRanges" $proxy.includeIPRanges }}
{{- $outboundRangesNot := annotation .ObjectMeta "traffic.sidecar.istio.io/excludeOutboundIPRanges" $proxy.excludeIPRanges }}
{{- $inboundPorts := annotation .ObjectMeta "traffic.sidecar.istio.io/includeInboundPorts" $proxy.includeInboundPorts }}
{{- $inboundPortsNot := excludeInboundPort $statusPort (annotation .ObjectMeta "traffic.sidecar.istio.io/excludeInboundPorts" $proxy.excludeInboundPorts) }}
{{- $asksOutboundPorts := or (isset .ObjectMeta.Annotations "traffic.sidecar.istio.io/includeOutboundPorts") (ne (valueOrDefault $proxy.includeOutboundPorts "") "") }}
{{- $outboundPorts := annotation .ObjectMeta "traffic.sidecar.istio.io/includeOutboundPorts" $proxy.includeOutboundPorts }}
{{- $asksOutboundPortsNot := or (isset .ObjectMeta.Annotations "traffic.sidecar.istio.io/excludeOutboundPorts") (ne (valueOrDefault $proxy.excludeOutboundPorts "") "") }}
{{- $outboundPortsNot := annotation .ObjectMeta "traffic.sidecar.istio.io/excludeOutboundPorts" $proxy.excludeOutboundPorts }}
metadata:
  labels:
    service.istio.io/canonical-name: {{ coalesce (index .ObjectMeta.Labels "service.istio.io/canonical-name") (index .ObjectMeta.Labels "app.kubernetes.io/name") (index .ObjectMeta.Labels "app") .DeploymentMeta.Name | default "" | trunc 63 | trimSuffix "-" | quote }}
    {{- template "revision-label" . }}
    security.istio.io/tlsMode: {{ index .ObjectMeta.Labels "security.istio.io/tlsMode" | default "istio" | quote }}
    {{- if eq (index .ProxyConfig.ProxyMetadata "ISTIO_META_ENABLE_HBONE") "true" }}
    networking.istio.io/tunnel: {{ index .ObjectMeta.Labels "networking.istio.io/tunnel" | default "http" | quote }}
    {{- end }}
  annotations:
    {{- template "workload-annotations" . }}
    {{- if $cni }}
    {{- if eq .Values.pilot.cni.provider "multus" }}
    k8s.v1.cni.cncf.io/networks: {{ appendMultusNetwork (index .ObjectMeta.Annotations "k8s.v1.cni.cncf.io/networks") "default/istio-cni" | quote }}
    {{- end }}
    sidecar.istio.io/interceptionMode: {{ $mode | quote }}
    {{- with $outboundRanges }}
    traffic.sidecar.istio.io/includeOutboundIPRanges: {{ . | quote }}
    {{- end }}
    {{- with $outboundRangesNot }}
    traffic.sidecar.istio.io/excludeOutboundIPRanges: {{ . | quote }}
    {{- end }}
    traffic.sidecar.istio.io/includeInboundPorts: {{ $inboundPorts | quote }}
    traffic.sidecar.istio.io/excludeInboundPorts: {{ $inboundPortsNot | quote }}
    {{- if $asksOutboundPorts }}
    traffic.sidecar.istio.io/includeOutboundPorts: {{ $outboundPorts | quote }}
    {{- end }}
    {{- if $asksOutboundPortsNot }}
    traffic.sidecar.istio.io/excludeOutboundPorts: {{ $outboundPortsNot | quote }}
    {{- end }}
    {{- end }}
spec:
  {{- if not (or $redirects $native) }}
  initContainers: []
  {{- else }}
  initContainers:
  {{- end }}
  {{- if $redirects }}
  - name: {{ if $cni }}istio-validation{{ else }}istio-init{{ end }}
    {{- $named := annotation .ObjectMeta "sidecar.istio.io/proxyImage" .Values.global.proxy_init.image }}
    image: {{ if contains "/" $named }}{{ $named | quote }}{{ else }}{{ .ProxyImage | quote }}{{ end }}
    {{- template "pull-policy" . }}
    args:
    - istio-iptables
    - -p
    - {{ .MeshConfig.ProxyListenPort | default 15001 | quote }}
    - -z
    - {{ .MeshConfig.ProxyInboundListenPort | default 15006 | quote }}
    - -u
    - {{ if $tproxy }}"1337"{{ else }}{{ .ProxyUID | default 1337 | quote }}{{ end }}
    - -m
    - {{ $mode | quote }}
    - -i
    - {{ $outboundRanges | quote }}
    - -x
    - {{ $outboundRangesNot | quote }}
    - -b
    - {{ $inboundPorts | quote }}
    - -d
    - {{ list "15090" "15021" $inboundPortsNot | compact | join "," | quote }}
    {{- if $asksOutboundPorts }}
    - -q
    - {{ $outboundPorts | quote }}
    {{- end }}
    {{- if $asksOutboundPortsNot }}
    - -o
    - {{ $outboundPortsNot | quote }}
    {{- end }}
    {{- $interfaces := "traffic.sidecar.istio.io/kubevirtInterfaces" }}
    {{- if isset .ObjectMeta.Annotations "istio.io/reroute-virtual-interfaces" }}{{ $interfaces = "istio.io/reroute-virtual-interfaces" }}{{ end }}
    {{- if isset .ObjectMeta.Annotations $interfaces }}
    - -k
    - {{ index .ObjectMeta.Annotations $interfaces | quote }}
    {{- end }}
    {{- if isset .ObjectMeta.Annotations "traffic.sidecar.istio.io/excludeInterfaces" }}
    - -c
    - {{ index .ObjectMeta.Annotations "traffic.sidecar.istio.io/excludeInterfaces" | quote }}
    {{- end }}
    - {{ printf "--log_output_level=%s" (annotation .ObjectMeta "sidecar.istio.io/agentLogLevel" .Values.global.logging.level) | quote }}
    {{- if .Values.global.logAsJson }}
    - --log_as_json
    {{- end }}
    {{- if $cni }}
    - --run-validation
    - --skip-rule-apply
    {{- else if .Values.global.proxy_init.forceApplyIptables }}
    - --force-apply
    {{- end }}
    {{- if .Values.global.nativeNftables }}
    - --native-nftables
    {{- end }}
    {{- if .ProxyConfig.ProxyMetadata }}
    env:
    {{- template "proxy-metadata-env" . }}
    {{- end }}
    {{- template "resources" . }}
    securityContext:
      privileged: {{ $proxy.privileged }}
      allowPrivilegeEscalation: {{ $proxy.privileged }}
      {{- if $cni }}
      capabilities: {drop: [ALL]}
      readOnlyRootFilesystem: true
      runAsNonRoot: true
      runAsUser: {{ if $tproxy }}1337{{ else }}{{ .ProxyUID | default 1337 }}{{ end }}
      runAsGroup: {{ if $tproxy }}1337{{ else }}{{ .ProxyGID | default 1337 }}{{ end }}
      {{- else }}
      capabilities: {add: [NET_ADMIN, NET_RAW], drop: [ALL]}
      readOnlyRootFilesystem: false
      runAsNonRoot: false
      runAsUser: 0
      runAsGroup: 0
      {{- end }}
      {{- with $proxy.seccompProfile }}
      seccompProfile: {{ toJson . }}
      {{- end }}
  {{- end }}
  {{- if not $native }}
  containers:
  {{- end }}
  - name: istio-proxy
    image: {{ template "image" . }}
    {{- template "pull-policy" . }}
    {{- if $native }}
    restartPolicy: Always
    {{- end }}
    ports:
    - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}
    args:
    - proxy
    - sidecar
    {{- template "agent-arguments" . }}
    {{- with $proxy.outlierLogPath }}
    - --outlierLogPath={{ . }}
    {{- end }}
    {{- if $proxy.lifecycle }}
    lifecycle: {{ toJson $proxy.lifecycle }}
    {{- else if $holds }}
    lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}
    {{- else if $native }}
    lifecycle: {preStop: {exec: {command: [pilot-agent, request, {{ printf "--debug-port=%s" $statusPort | quote }}, POST, drain]}}}
    {{- end }}
    env:
    {{- template "identity-env" . }}
    {{- template "envoy-env" . }}
    {{- if eq .InboundTrafficPolicyMode "localhost" }}
    - {name: REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION, value: "true"}
    {{- end }}
    - {name: ISTIO_META_INTERCEPTION_MODE, value: {{ $mode | quote }}}
    {{- with index .ObjectMeta.Labels "service.istio.io/workload-name" | default .DeploymentMeta.Name }}
    - {name: ISTIO_META_WORKLOAD_NAME, value: {{ . | quote }}}
    {{- end }}
    {{- if and (eq $proxy.tracer "datadog") (isset .ObjectMeta.Annotations "apm.datadoghq.com/env") }}
    {{- range $name, $value := fromJSON (index .ObjectMeta.Annotations "apm.datadoghq.com/env") }}
    - {name: {{ $name | quote }}, value: {{ $value | toString | quote }}}
    {{- end }}
    {{- end }}
    {{- with otelResourceAttributes .MeshConfig .ObjectMeta.Annotations .ObjectMeta.Labels .DeploymentMeta.Namespace .Spec.Containers }}
    - {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ . | quote }}}
    {{- end }}
    {{- template "proxy-metadata-env" . }}
    {{- if ne $statusPort "0" }}
    {{- if $proxy.startupProbe.enabled }}
    startupProbe:
      httpGet: {path: /healthz/ready, port: 15021}
      periodSeconds: 1
      timeoutSeconds: 3
      failureThreshold: {{ $proxy.startupProbe.failureThreshold }}
    {{- end }}
    readinessProbe:
      httpGet: {path: /healthz/ready, port: 15021}
      initialDelaySeconds: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/initialDelaySeconds" $proxy.readinessInitialDelaySeconds }}
      periodSeconds: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/periodSeconds" $proxy.readinessPeriodSeconds }}
      failureThreshold: {{ annotation .ObjectMeta "readiness.status.sidecar.istio.io/failureThreshold" $proxy.readinessFailureThreshold }}
      timeoutSeconds: 3
    {{- end }}
    {{- template "resources" . }}
    securityContext:
      {{- if eq (index .ProxyConfig.ProxyMetadata "IPTABLES_TRACE_LOGGING") "true" }}
      privileged: true
      allowPrivilegeEscalation: true
      capabilities: {add: [NET_ADMIN], drop: [ALL]}
      runAsNonRoot: false
      runAsUser: 0
      runAsGroup: {{ .ProxyGID | default 1337 }}
      {{- else }}
      privileged: {{ $proxy.privileged }}
      allowPrivilegeEscalation: {{ $proxy.privileged }}
      capabilities:
        drop: [ALL]
        {{- if or $tproxy $lowPorts }}
        add: [{{ list (ternary "NET_ADMIN" "" $tproxy) (ternary "NET_BIND_SERVICE" "" $lowPorts) | compact | join ", " }}]
        {{- end }}
      {{- if or $tproxy $lowPorts }}
      runAsNonRoot: false
      runAsUser: 0
      runAsGroup: 1337
      {{- else }}
      runAsNonRoot: true
      runAsUser: {{ .ProxyUID | default 1337 }}
      runAsGroup: {{ .ProxyGID | default 1337 }}
      {{- end }}
      {{- end }}
      readOnlyRootFilesystem: true
      {{- with $proxy.seccompProfile }}
      seccompProfile: {{ toJson . }}
      {{- end }}
    volumeMounts:
    {{- template "credential-mounts" . }}
    - {name: credential-socket, mountPath: /var/run/secrets/credential-uds}
    {{- if eq .Values.global.pilotCertProvider "istiod" }}
    - {name: istio-ca-crl, mountPath: /var/run/secrets/istio/crl}
    {{- end }}
    {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/bootstrapOverride" }}
    - {name: custom-bootstrap-volume, mountPath: /etc/istio/custom-bootstrap}
    {{- end }}
    - {name: istio-envoy, mountPath: /etc/istio/proxy}
    {{- $lightstep := and (eq $proxy.tracer "lightstep") .ProxyConfig.GetTracing.GetTlsSettings }}
    {{- if $lightstep }}
    - {name: lightstep-certs, mountPath: {{ directory .ProxyConfig.GetTracing.GetTlsSettings.GetCaCertificates | quote }}, readOnly: true}
    {{- end }}
    {{- template "user-mounts" . }}
  volumes:
  {{- template "volumes" . }}
  - {name: credential-socket}
  - {name: istio-envoy, emptyDir: {medium: Memory}}
  - {name: istio-ca-crl, configMap: {name: {{ .Values.pilot.crlConfigMapName | default "istio-ca-crl" | quote }}, optional: true}}
  {{- template "user-volumes" . }}
  {{- if $lightstep }}
  - {name: lightstep-certs, secret: {optional: true, secretName: lightstep.cacert}}
  {{- end }}
  {{- template "pull-secrets" . }}
