{{/* The name of istiod's Deployment, Service and account, of which charts, proxies and dashboards know. */}}
{{- define "meltemi.name" -}}
istiod{{ include "meltemi.suffix" . }}
{{- end }}

{{/* Empty for the default revision, whichever way it is written: its names have no suffix. */}}
{{- define "meltemi.given" -}}
{{- if ne .Values.revision "default" }}{{ .Values.revision }}{{ end }}
{{- end }}

{{- define "meltemi.suffix" -}}
{{- with include "meltemi.given" . }}-{{ . }}{{ end }}
{{- end }}

{{/* istiod names objects without a namespace so outside its usual one. */}}
{{- define "meltemi.namespaceSuffix" -}}
{{- if ne .Release.Namespace "istio-system" }}-{{ .Release.Namespace }}{{ end }}
{{- end }}

{{- define "meltemi.revision" -}}
{{ .Values.revision | default "default" }}
{{- end }}

{{/* Without a revision istiod selects its pods by istio=pilot; selectors cannot change, so that a switch must keep them. */}}
{{- define "meltemi.deploymentSelector" -}}
{{- if include "meltemi.given" . -}}
app: istiod
istio.io/rev: {{ .Values.revision | quote }}
{{- else -}}
istio: pilot
{{- end }}
{{- end }}

{{- define "meltemi.selector" -}}
app: istiod
{{- if include "meltemi.given" . }}
istio.io/rev: {{ .Values.revision | quote }}
{{- else }}
istio: pilot
{{- end }}
{{- end }}

{{/* Labels of every object. */}}
{{- define "meltemi.labels" -}}
app: istiod
release: {{ .Release.Name }}
app.kubernetes.io/name: istiod
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: istio
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels by which istioctl finds the objects of a revision. */}}
{{- define "meltemi.revisionLabels" -}}
istio.io/rev: {{ include "meltemi.revision" . | quote }}
install.operator.istio.io/owning-resource: {{ .Values.ownerName | default "unknown" }}
operator.istio.io/component: Pilot
{{- end }}

{{- define "meltemi.image" -}}
{{- if eq .Values.image "pilot" }}{{ fail "image: pilot is istiod's; leave image, hub and tag out, or name an image of Meltemi" }}{{ end -}}
{{- if contains "/" .Values.image -}}
{{ .Values.image }}
{{- else -}}
{{- $hub := .Values.hub | default .Values.global.hub -}}
{{- $tag := .Values.tag | default .Values.global.tag | default .Chart.AppVersion -}}
{{ if $hub }}{{ $hub }}/{{ end }}{{ .Values.image }}:{{ $tag }}
{{- end }}
{{- end }}

{{/* More than one replica at all times; a budget for a single one would stop every drain of its node. */}}
{{- define "meltemi.isReplicated" -}}
{{- $least := .Values.replicaCount -}}
{{- if .Values.autoscaleEnabled }}{{ $least = .Values.autoscaleMin }}{{ end -}}
{{- if gt (int $least) 1 }}true{{ end }}
{{- end }}

{{/* The memory limit of the container; empty: none. */}}
{{- define "meltemi.memoryLimit" -}}
{{- $resources := .Values.resources | default .Values.global.defaultResources -}}
{{- $given := dig "limits" "memory" "" $resources -}}
{{- if $given -}}
{{ $given }}
{{- else if not .Values.memoryLimit -}}
{{ max 2048 (mul 2 (include "meltemi.mebibytes" (dig "requests" "memory" "0" $resources) | int)) }}Mi
{{- else if ne .Values.memoryLimit "none" -}}
{{ .Values.memoryLimit }}
{{- end -}}
{{- end }}

{{/* A quantity of memory in MiB, rounded up. */}}
{{- define "meltemi.mebibytes" -}}
{{- $number := regexFind "^[0-9.]+" (toString .) | float64 -}}
{{- $unit := regexReplaceAll "^[0-9.]+" (toString .) "" -}}
{{- $factors := dict "Ki" 0.0009765625 "Mi" 1.0 "Gi" 1024.0 "Ti" 1048576.0 "k" 0.00095367 "M" 0.95367 "G" 953.67 "T" 953674.0 -}}
{{- ceil (mulf $number (get $factors $unit | default 0.00000095367)) | int -}}
{{- end }}

{{- define "meltemi.ports" -}}
{{- if .Values.plaintextXds.enabled -}}
- name: grpc-xds
  port: 15010
  protocol: TCP
{{ end -}}
- name: https-dns
  port: 15012
  protocol: TCP
- name: https-webhook
  port: 443
  targetPort: 15017
  protocol: TCP
- name: http-monitoring
  port: 15014
  protocol: TCP
{{- end }}

{{- define "meltemi.families" -}}
{{- with .Values.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- with .Values.trafficDistribution }}
trafficDistribution: {{ . }}
{{- end }}
{{- end }}

{{/* A mapping of texts, such as labels: numbers and booleans become texts. */}}
{{- define "meltemi.texts" -}}
{{- range $key, $value := . }}
{{ $key }}: {{ toString $value | quote }}
{{- end }}
{{- end }}

{{/* What the container requests and is limited to. Istiod's chart leaves out what is null, and takes global.defaultResources where nothing is said. */}}
{{- define "meltemi.resources" -}}
{{- $resources := dict -}}
{{- range $kind, $amounts := .Values.resources | default .Values.global.defaultResources -}}
{{- range $name, $amount := $amounts }}{{ if $amount }}{{ $_ := set $resources $kind (set (get $resources $kind | default dict) $name $amount) }}{{ end }}{{ end -}}
{{- end -}}
{{- with include "meltemi.memoryLimit" . }}{{ $resources = merge $resources (dict "limits" (dict "memory" .)) }}{{ end -}}
{{- toYaml $resources -}}
{{- end }}

{{/*
The number of replicas to ask for; empty: none is named. An autoscaler begins with one replica, and only later with its least: proxies
that come first would all sit on that one. After the first install the number is the autoscaler's, so that it is read from the cluster.
Without a cluster (helm template, GitOps) none is named: a number that is written again and again would undo what the autoscaler does.
*/}}
{{- define "meltemi.replicas" -}}
{{- if not .Values.autoscaleEnabled -}}
{{ .Values.replicaCount }}
{{- else -}}
{{- $name := include "meltemi.name" . -}}
{{- $found := lookup "apps/v1" "Deployment" .Release.Namespace "" -}}
{{- if $found -}}
{{- $replicas := .Values.autoscaleMin -}}
{{- range $found.items }}{{ if eq .metadata.name $name }}{{ $replicas = .spec.replicas }}{{ end }}{{ end -}}
{{ $replicas }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Values of istiod's chart that mean nothing here, by name. */}}
{{- define "meltemi.ignored" -}}
{{- $known := splitList " " "revision revisionTags ownerName image hub tag replicaCount autoscaleEnabled autoscaleMin autoscaleMax autoscaleBehavior cpu memory rollingMaxSurge rollingMaxUnavailable pdb resources memoryLimit env envVarFrom extraContainerArgs initContainers traceSampling keepaliveMaxServerConnectionAge watchedNamespaces history externalCa nodeSelector affinity tolerations topologySpreadConstraints deploymentLabels deploymentAnnotations podLabels podAnnotations serviceAnnotations serviceAccountAnnotations ipFamilyPolicy ipFamilies trafficDistribution volumes volumeMounts seccompProfile configMap meshConfig telemetry base admissionPolicy serviceMonitor plaintextXds networkPolicy sidecarInjectorWebhook cni gateways global pilot defaults _internal_defaults_do_not_set" -}}
{{- $global := splitList " " "hub tag variant caAddress caName certSigners defaultResources mountMtlsCerts nativeNftables network pilotCertProvider sts proxy_init tracer trustBundleName trustDomain omitSidecarInjectorConfigMap operatorManageWebhooks imagePullPolicy imagePullSecrets priorityClassName logAsJson logging proxy multiCluster meshID meshNetworks sds configValidation defaultPodDisruptionBudget networkPolicy istioNamespace" -}}
{{- $pilot := .Values.pilot | default dict -}}
{{- $ignored := list -}}
{{- range $key, $_ := .Values }}{{ if not (has $key $known) }}{{ $ignored = append $ignored (hasKey $pilot $key | ternary (printf "pilot.%s" $key) $key) }}{{ end }}{{ end -}}
{{- range $key, $_ := .Values.global }}{{ if not (has $key $global) }}{{ $ignored = append $ignored (printf "global.%s" $key) }}{{ end }}{{ end -}}
{{- join ", " (sortAlpha $ignored) -}}
{{- end }}
