metadata:
  annotations:
    sidecar.istio.io/rewriteAppHTTPProbers: "false"
spec:
  initContainers:
  - name: grpc-bootstrap-init
    image: busybox:1.28
    command:
    - sh
    - -c
    - |-
      printf '{"xds_servers": [{"server_uri": "dns:///istiod.%s.svc:15010", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}], ' "$ISTIO_NAMESPACE" > /var/lib/grpc/data/bootstrap.json
      printf '"node": {"id": "sidecar~%s~%s.%s~cluster.local", "metadata": {"GENERATOR": "grpc"}}}' "$INSTANCE_IP" "$POD_NAME" "$POD_NAMESPACE" >> /var/lib/grpc/data/bootstrap.json
    env:
    {{- range $name, $path := dict "INSTANCE_IP" "status.podIP" "POD_NAME" "metadata.name" "POD_NAMESPACE" "metadata.namespace" }}
    - {name: {{ $name }}, valueFrom: {fieldRef: {fieldPath: {{ $path }}}}}
    {{- end }}
    - {name: ISTIO_NAMESPACE, value: {{ .Values.global.istioNamespace | quote }}}
    volumeMounts:
    - {name: grpc-io-proxyless-bootstrap, mountPath: /var/lib/grpc/data/}
  containers:
  {{- range .Spec.Containers }}
  - name: {{ .Name | quote }}
    env:
    - {name: GRPC_XDS_BOOTSTRAP, value: /var/lib/grpc/data/bootstrap.json}
    - {name: GRPC_GO_LOG_VERBOSITY_LEVEL, value: "99"}
    - {name: GRPC_GO_LOG_SEVERITY_LEVEL, value: info}
    volumeMounts:
    - {name: grpc-io-proxyless-bootstrap, mountPath: /var/lib/grpc/data/}
  {{- end }}
  volumes:
  - {name: grpc-io-proxyless-bootstrap, emptyDir: {}}
