{{- /* Parts that several templates use. The chart puts this file in front of each template. Lines have the indentation of the place they go to. */ -}}

{{- define "revision-label" }}
    service.istio.io/canonical-revision: {{ coalesce (index .ObjectMeta.Labels "service.istio.io/canonical-revision") (index .ObjectMeta.Labels "app.kubernetes.io/version") (index .ObjectMeta.Labels "version") "latest" | quote }}
{{- end }}

{{- define "workload-annotations" }}
    istio.io/rev: {{ .Revision | default "default" | quote }}
    {{- $first := "" }}
    {{- range .Spec.Containers }}{{ if and (not $first) (ne .Name "istio-proxy") }}{{ $first = .Name }}{{ end }}{{ end }}
    {{- if $first }}
    {{- range $key := list "kubectl.kubernetes.io/default-logs-container" "kubectl.kubernetes.io/default-container" }}
    {{- if not (isset $.ObjectMeta.Annotations $key) }}
    {{ $key }}: {{ $first | quote }}
    {{- end }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "image" -}}
{{- $named := annotation .ObjectMeta "sidecar.istio.io/proxyImage" .Values.global.proxy.image -}}
{{- if contains "/" $named }}{{ $named | quote }}{{ else }}{{ .ProxyImage | quote }}{{ end -}}
{{- end }}

{{- define "agent-arguments" }}
    - --domain
    - $(POD_NAMESPACE).svc.{{ .Values.global.proxy.clusterDomain }}
    - {{ printf "--proxyLogLevel=%s" (annotation .ObjectMeta "sidecar.istio.io/logLevel" .Values.global.proxy.logLevel) | quote }}
    - {{ printf "--proxyComponentLogLevel=%s" (annotation .ObjectMeta "sidecar.istio.io/componentLogLevel" .Values.global.proxy.componentLogLevel) | quote }}
    - {{ printf "--log_output_level=%s" (annotation .ObjectMeta "sidecar.istio.io/agentLogLevel" .Values.global.logging.level) | quote }}
    {{- with .Values.global.sts.servicePort }}
    - --stsPort={{ . }}
    {{- end }}
    {{- if .Values.global.logAsJson }}
    - --log_as_json
    {{- end }}
{{- end }}

{{- define "pull-policy" }}
    {{- with .Values.global.imagePullPolicy }}
    imagePullPolicy: {{ . | quote }}
    {{- end }}
{{- end }}

{{- define "identity-env" }}
    - {name: PILOT_CERT_PROVIDER, value: {{ .Values.global.pilotCertProvider | quote }}}
    {{- $service := "istiod" }}
    {{- with .Values.revision }}{{ $service = printf "istiod-%s" . }}{{ end }}
    - {name: CA_ADDR, value: {{ .Values.global.caAddress | default (printf "%s.%s.svc:15012" $service .Values.global.istioNamespace) | quote }}}
    {{- range $name, $path := dict "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" "INSTANCE_IP" "status.podIP" "SERVICE_ACCOUNT" "spec.serviceAccountName" "HOST_IP" "status.hostIP" "ISTIO_META_NODE_NAME" "spec.nodeName" }}
    - {name: {{ $name }}, valueFrom: {fieldRef: {fieldPath: {{ $path }}}}}
    {{- end }}
    - {name: PROXY_CONFIG, value: {{ protoToJSON .ProxyConfig | quote }}}
    {{- $ports := list }}
    {{- $containers := list }}
    {{- range .Spec.Containers }}
    {{- range .Ports }}{{ $ports = append $ports (structToJSON .) }}{{ end }}
    {{- if ne .Name "istio-proxy" }}{{ $containers = append $containers .Name }}{{ end }}
    {{- end }}
    - {name: ISTIO_META_POD_PORTS, value: {{ printf "[%s]" (join "," $ports) | quote }}}
    - {name: ISTIO_META_APP_CONTAINERS, value: {{ join "," $containers | quote }}}
    - {name: ISTIO_META_CLUSTER_ID, value: {{ valueOrDefault .Values.global.multiCluster.clusterName "Kubernetes" | quote }}}
    {{- with .Values.global.network }}
    - {name: ISTIO_META_NETWORK, value: {{ . | quote }}}
    {{- end }}
    {{- if and .TypeMeta.APIVersion .DeploymentMeta.Name }}
    - {name: ISTIO_META_OWNER, value: {{ printf "kubernetes://apis/%s/namespaces/%s/%ss/%s" .TypeMeta.APIVersion (valueOrDefault .DeploymentMeta.Namespace "default") (toLower .TypeMeta.Kind) .DeploymentMeta.Name | quote }}}
    {{- end }}
    {{- $domain := valueOrDefault .MeshConfig.TrustDomain .Values.global.trustDomain }}
    {{- with .Values.global.meshID | default $domain }}
    - {name: ISTIO_META_MESH_ID, value: {{ . | quote }}}
    {{- end }}
    {{- with $domain }}
    - {name: TRUST_DOMAIN, value: {{ . | quote }}}
    {{- end }}
{{- end }}

{{- define "envoy-env" }}
    {{- range $name, $resource := dict "ISTIO_CPU_LIMIT" "limits.cpu" "GOMAXPROCS" "limits.cpu" "GOMEMLIMIT" "limits.memory" }}
    - {name: {{ $name }}, valueFrom: {resourceFieldRef: {resource: {{ $resource }}, divisor: "1"}}}
    {{- end }}
    {{- with .CompliancePolicy }}
    - {name: COMPLIANCE_POLICY, value: {{ . | quote }}}
    {{- end }}
    {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/bootstrapOverride" }}
    - {name: ISTIO_BOOTSTRAP_OVERRIDE, value: /etc/istio/custom-bootstrap/custom_bootstrap.json}
    {{- end }}
{{- end }}

{{- define "proxy-metadata-env" }}
    {{- range $name, $value := .ProxyConfig.ProxyMetadata }}
    - {name: {{ $name | quote }}, value: {{ $value | quote }}}
    {{- end }}
{{- end }}

{{- define "resources" }}
    {{- $asked := false }}
    {{- range list "proxyCPU" "proxyMemory" "proxyCPULimit" "proxyMemoryLimit" }}
    {{- if isset $.ObjectMeta.Annotations (printf "sidecar.istio.io/%s" .) }}{{ $asked = true }}{{ end }}
    {{- end }}
    {{- if $asked }}
    resources:
      requests:
        {{- with index .ObjectMeta.Annotations "sidecar.istio.io/proxyCPU" }}
        cpu: {{ . | quote }}
        {{- end }}
        {{- with index .ObjectMeta.Annotations "sidecar.istio.io/proxyMemory" }}
        memory: {{ . | quote }}
        {{- end }}
      limits:
        {{- with index .ObjectMeta.Annotations "sidecar.istio.io/proxyCPULimit" }}
        cpu: {{ . | quote }}
        {{- end }}
        {{- with index .ObjectMeta.Annotations "sidecar.istio.io/proxyMemoryLimit" }}
        memory: {{ . | quote }}
        {{- end }}
    {{- else }}
    {{- with omitNil .Values.global.proxy.resources }}
    resources: {{ toJson . }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "credential-mounts" }}
    - {name: workload-socket, mountPath: /var/run/secrets/workload-spiffe-uds}
    {{- if eq .Values.global.caName "GkeWorkloadCertificate" }}
    - {name: gke-workload-certificate, mountPath: /var/run/secrets/workload-spiffe-credentials, readOnly: true}
    {{- else }}
    - {name: workload-certs, mountPath: /var/run/secrets/workload-spiffe-credentials}
    {{- end }}
    {{- if eq .Values.global.pilotCertProvider "istiod" }}
    - {name: istiod-ca-cert, mountPath: /var/run/secrets/istio}
    {{- end }}
    - {name: istio-data, mountPath: /var/lib/istio/data}
    - {name: istio-token, mountPath: /var/run/secrets/tokens}
    - {name: istio-podinfo, mountPath: /etc/istio/pod}
    {{- if .Values.global.mountMtlsCerts }}
    - {name: istio-certs, mountPath: /etc/certs/, readOnly: true}
    {{- end }}
{{- end }}

{{- define "user-mounts" }}
    {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/userVolumeMount" }}
    {{- range $name, $mount := fromJSON (index .ObjectMeta.Annotations "sidecar.istio.io/userVolumeMount") }}
    - {{ merge (dict "name" $name) $mount | toJson }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "volumes" }}
  - {name: workload-socket}
  {{- if eq .Values.global.caName "GkeWorkloadCertificate" }}
  - {name: gke-workload-certificate, csi: {driver: workloadcertificates.security.cloud.google.com}}
  {{- else }}
  - {name: workload-certs}
  {{- end }}
  {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/bootstrapOverride" }}
  - {name: custom-bootstrap-volume, configMap: {name: {{ index .ObjectMeta.Annotations "sidecar.istio.io/bootstrapOverride" | quote }}}}
  {{- end }}
  - {name: istio-data, emptyDir: {}}
  - name: istio-podinfo
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
  - name: istio-token
    projected:
      sources:
      - serviceAccountToken: {path: istio-token, expirationSeconds: 43200, audience: {{ .Values.global.sds.token.aud | quote }}}
  {{- if eq .Values.global.pilotCertProvider "istiod" }}
  - name: istiod-ca-cert
    {{- if eq (.Values.pilot.env).ENABLE_CLUSTER_TRUST_BUNDLE_API true }}
    projected:
      sources:
      - clusterTrustBundle: {name: {{ printf "istio.io:istiod-ca:%s" (.Values.global.trustBundleName | default "root-cert") | quote }}, path: root-cert.pem}
    {{- else }}
    configMap: {name: {{ .Values.global.trustBundleName | default "istio-ca-root-cert" | quote }}}
    {{- end }}
  {{- end }}
  {{- if .Values.global.mountMtlsCerts }}
  - name: istio-certs
    secret: {optional: true, secretName: {{ printf "istio.%s" (.Spec.ServiceAccountName | default "default") | quote }}}
  {{- end }}
{{- end }}

{{- define "user-volumes" }}
  {{- if isset .ObjectMeta.Annotations "sidecar.istio.io/userVolume" }}
  {{- range $name, $volume := fromJSON (index .ObjectMeta.Annotations "sidecar.istio.io/userVolume") }}
  - {{ merge (dict "name" $name) $volume | toJson }}
  {{- end }}
  {{- end }}
{{- end }}

{{- define "pull-secrets" }}
  {{- if .Values.global.imagePullSecrets }}
  imagePullSecrets:
  {{- range .Values.global.imagePullSecrets }}
  - {name: {{ . | quote }}}
  {{- end }}
  {{- end }}
{{- end }}
