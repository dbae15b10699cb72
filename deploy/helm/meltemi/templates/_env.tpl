{{/* What `env` says goes before what the chart says, and no name appears twice. */}}
{{- define "meltemi.env" -}}
{{- $given := .Values.env | default dict -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
# Where commands that ask all replicas find this one.
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: SERVICE_ACCOUNT
  valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}
{{- if and (include "meltemi.memoryLimit" .) (not (hasKey $given "MELTEMI_MEMORY_LIMIT")) }}
# The limit that the admission of streams follows, in bytes.
- name: MELTEMI_MEMORY_LIMIT
  valueFrom: {resourceFieldRef: {containerName: discovery, resource: limits.memory}}
{{- end }}
{{- $resources := include "meltemi.resources" . | fromYaml }}
{{- if and (dig "requests" "cpu" "" $resources) (not (hasKey $given "MELTEMI_CPU_REQUEST")) }}
# The request that `meltemi doctor` and the dashboard compare the CPU with.
- name: CPU_REQUEST_MILLICORES
  valueFrom: {resourceFieldRef: {containerName: discovery, resource: requests.cpu, divisor: 1m}}
- name: MELTEMI_CPU_REQUEST
  value: $(CPU_REQUEST_MILLICORES)m
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
{{- with .Values.externalCa.address }}{{ $_ := set $own "EXTERNAL_CA" "true" }}{{ $_ := set $own "CA_ADDR" . }}{{ end }}
{{- with .Values.externalCa.serverName }}{{ $_ := set $own "MELTEMI_CA_SERVER_NAME" . }}{{ end }}
{{- range $name, $value := dict "BYTES" .Values.history.bytes "AGE" .Values.history.age "DIR_BYTES" .Values.history.dirBytes }}
{{- /* A number of a values file is a float, which would be written with an exponent. */}}
{{- with kindIs "float64" $value | ternary (int64 $value | toString) (toString $value) }}
{{- $_ := set $own (printf "MELTEMI_HISTORY_%s" $name) . }}
{{- end }}
{{- end }}
{{- if .Values.history.volume }}{{ $_ := set $own "MELTEMI_HISTORY_DIR" "/var/lib/meltemi/history" }}{{ end }}
{{- range $name, $value := merge (dict) $given $own }}
- name: {{ $name }}
  value: {{ toString $value | quote }}
{{- end }}
{{- with .Values.envVarFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}
