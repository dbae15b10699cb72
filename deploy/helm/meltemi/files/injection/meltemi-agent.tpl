{{- /* After `sidecar` or `gateway`: a stock Envoy that `meltemi agent` runs, in place of Istio's image and agent. Annotations turn off what only that one does. */ -}}
{{- $agent := .Values.sidecarInjectorWebhook.agent }}
{{- $native := ne (index .ObjectMeta.Annotations "sidecar.istio.io/nativeSidecar" | default (printf "%t" .NativeSidecars)) "false" }}
{{- $gateway := contains "gateway" (index .ObjectMeta.Annotations "inject.istio.io/templates" | default "") }}
{{- $statusPort := annotation .ObjectMeta "status.sidecar.istio.io/port" .Values.global.proxy.statusPort }}
{{- $domain := valueOrDefault .MeshConfig.TrustDomain .Values.global.trustDomain }}
{{- $metadata := dict "INTERCEPTION_MODE" (annotation .ObjectMeta "sidecar.istio.io/interceptionMode" .ProxyConfig.InterceptionMode) "NODE_NAME" "$(ISTIO_META_NODE_NAME)" }}
{{- with index .ObjectMeta.Labels "service.istio.io/workload-name" | default .DeploymentMeta.Name }}{{ $_ := set $metadata "WORKLOAD_NAME" . }}{{ end }}
{{- with .Values.global.meshID | default $domain }}{{ $_ := set $metadata "MESH_ID" . }}{{ end }}
{{- with .Values.global.network }}{{ $_ := set $metadata "NETWORK" . }}{{ end }}
{{- if and .TypeMeta.APIVersion .DeploymentMeta.Name }}
{{- $_ := set $metadata "OWNER" (printf "kubernetes://apis/%s/namespaces/%s/%ss/%s" .TypeMeta.APIVersion (valueOrDefault .DeploymentMeta.Namespace "default") (toLower .TypeMeta.Kind) .DeploymentMeta.Name) }}
{{- end }}
metadata:
  annotations:
    prometheus.istio.io/merge-metrics: "false"
spec:
  initContainers:
  - name: meltemi-agent
    image: {{ $agent.image | quote }}
    {{- template "pull-policy" . }}
    args: [install-agent, /opt/meltemi/meltemi]
    resources:
      requests: {cpu: 10m, memory: 16Mi}
    securityContext:
      privileged: false
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      readOnlyRootFilesystem: true
      runAsNonRoot: true
      runAsUser: {{ .ProxyUID | default 1337 }}
      runAsGroup: {{ .ProxyGID | default 1337 }}
      {{- with .Values.global.proxy.seccompProfile }}
      seccompProfile: {{ toJson . }}
      {{- end }}
    volumeMounts:
    - {name: meltemi-agent, mountPath: /opt/meltemi}
  {{- if or $gateway (not $native) }}
  containers:
  {{- end }}
  - name: istio-proxy
    image: {{ $agent.envoyImage | quote }}
    command: [/opt/meltemi/meltemi]
    args:
    - agent
    - --proxy=$(POD_NAME).$(POD_NAMESPACE)
    - --ip=$(INSTANCE_IP)
    - --proxy-type={{ ternary "router" "sidecar" $gateway }}
    {{- if ne $statusPort "0" }}
    - {{ printf "--status-port=%s,15021" $statusPort | quote }}
    {{- end }}
    - --service-account=$(SERVICE_ACCOUNT)
    - {{ printf "--server=%s" .ProxyConfig.DiscoveryAddress | quote }}
    {{- with .Values.global.caAddress }}
    - {{ printf "--ca=%s" . | quote }}
    {{- end }}
    - --root=/var/run/secrets/istio/root-cert.pem
    - --token=/var/run/secrets/tokens/istio-token
    - --workdir=/etc/istio/proxy
    - --envoy=/usr/local/bin/envoy
    - {{ printf "--domain=%s" .Values.global.proxy.clusterDomain | quote }}
    - {{ printf "--clusterID=%s" (valueOrDefault .Values.global.multiCluster.clusterName "Kubernetes") | quote }}
    {{- with $domain }}
    - {{ printf "--trust-domain=%s" . | quote }}
    {{- end }}
    {{- range $name, $value := .ObjectMeta.Labels }}
    - {{ printf "--label=%s=%s" $name $value | quote }}
    {{- end }}
    {{- range $name, $value := $metadata }}
    - {{ printf "--metadata=%s=%s" $name $value | quote }}
    {{- end }}
    - --
    - -l
    - {{ annotation .ObjectMeta "sidecar.istio.io/logLevel" .Values.global.proxy.logLevel | quote }}
    - --component-log-level
    - {{ annotation .ObjectMeta "sidecar.istio.io/componentLogLevel" .Values.global.proxy.componentLogLevel | quote }}
    lifecycle: null
    volumeMounts:
    - {name: meltemi-agent, mountPath: /opt/meltemi, readOnly: true}
  volumes:
  - {name: meltemi-agent, emptyDir: {}}
