{{/* What `env` says goes before what the chart says, and no name appears twice. */}}
{{- define "meltemi.env" -}}
{{- $given := .Values.env | default dict -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: SERVICE_ACCOUNT
  valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}
{{- if and (include "meltemi.memoryLimit" .) (not (hasKey $given "MELTEMI_MEMORY_LIMIT")) }}
# The limit that the admission of streams follows, in bytes.
- name: MELTEMI_MEMORY_LIMIT
  valueFrom: {resourceFieldRef: {containerName: discovery, resource: limits.memory}}
{{- end }}
{{- $own := dict
  "REVISION" (include "meltemi.revision" .)
  "KUBECONFIG" "/var/run/secrets/remote/config"
  "CLUSTER_ID" .Values.global.multiCluster.clusterName
  "PILOT_TRACE_SAMPLING" (toString .Values.traceSampling)
  "TOKEN_AUDIENCES" .Values.global.sds.token.aud
  "ROOT_CA_DIR" "/etc/cacerts"
  "XDG_STATE_HOME" "/var/run/secrets/istio-dns" -}}
{{- with .Values.watchedNamespaces }}{{ $_ := set $own "WATCHED_NAMESPACES" (join "," .) }}{{ end }}
{{- range $name, $value := merge (dict) $given $own }}
- name: {{ $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- with .Values.envVarFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}
