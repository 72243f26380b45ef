{{/* The pod of one controller. What differs between them is in the file named after it. */}}
{{- define "groundcrew.pod" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $it := .controller -}}
{{- $everywhere := include "groundcrew.onEveryNode" . -}}
{{- $onHost := include "groundcrew.onHost" . -}}
{{- $hostNetwork := include "groundcrew.hostNetwork" . -}}
{{- /* The agent alone needs user 0 and capabilities: what suits the others would stop it. */ -}}
{{- $shared := $values -}}
{{- if $onHost -}}{{- $shared = dict -}}{{- end -}}
{{- $mounts := include (printf "groundcrew.%s.secrets" .name) . | fromYamlArray -}}
{{- if $values.kubeconfig.existingSecret -}}
{{- $mounts = append $mounts (dict "name" "kubeconfig" "secret" $values.kubeconfig.existingSecret) -}}
{{- end -}}
metadata:
  # No version among them: a new chart alone restarts nobody.
  labels:
    {{- include "groundcrew.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: groundcrew
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "groundcrew.component" . }}
  automountServiceAccountToken: {{ not $values.kubeconfig.existingSecret }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $hostNetwork }}
  hostNetwork: true
  {{- end }}
  {{- if $onHost }}
  dnsPolicy: ClusterFirstWithHostNet
  {{- else if eq .name "cloudsigma-ccm" }}
  # The node's own resolver: the cluster's waits for nodes that this one initialises.
  dnsPolicy: Default
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $values.shutdownBudgetSeconds 10 }}
  securityContext:
    {{- include "groundcrew.layers" (list (include "groundcrew.podSecurityContext" .) $shared.podSecurityContext $it.podSecurityContext) | nindent 4 }}
  containers:
    - name: {{ .name }}
      image: {{ include "groundcrew.image" $root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        - {{ include "groundcrew.command" . }}
        {{- include "groundcrew.args" . | nindent 8 }}
      env:
        # Two arenas and early trimming keep what glibc holds back small after a burst.
        - {name: MALLOC_ARENA_MAX, value: "2"}
        - {name: MALLOC_TRIM_THRESHOLD_, value: "131072"}
        - {name: MALLOC_MMAP_THRESHOLD_, value: "131072"}
        {{- if $everywhere }}
        - name: GROUNDCREW_NODE_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
        {{- range $variable, $field := include (printf "groundcrew.%s.fields" .name) . | fromYaml }}
        - name: {{ $variable }}
          valueFrom: {fieldRef: {fieldPath: {{ $field }}}}
        {{- end }}
        {{- end }}
        {{- if eq .name "deorbit" }}
        {{- range include "groundcrew.deorbit.env" . | fromYamlArray }}
        - {{ toJson . }}
        {{- end }}
        {{- end }}
        {{- if $hostNetwork }}
        - name: GROUNDCREW_NODE_IP
          valueFrom: {fieldRef: {fieldPath: status.hostIP}}
        {{- end }}
        {{- with $it.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- if $hostNetwork }}
        - {name: admin, containerPort: {{ splitList ":" $it.adminAddress | last }}, protocol: TCP}
        {{- else }}
        - {name: admin, containerPort: 8080, protocol: TCP}
        {{- end }}
        {{- if $onHost }}
        - {name: peers, containerPort: {{ $it.peerPort }}, protocol: TCP}
        {{- end }}
      {{- /* On the host's network at the address that it listens at; a pod's own, and that of its node, is asked anyway. */}}
      {{- $host := "" }}
      {{- if and $hostNetwork (not (contains "$" $it.adminAddress)) }}
      {{- $host = splitList ":" $it.adminAddress | initial | join ":" | trimPrefix "[" | trimSuffix "]" | quote | printf ", host: %s" }}
      {{- end }}
      livenessProbe:
        httpGet: {path: /healthz, port: admin{{ $host }}}
        periodSeconds: 10
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /readyz, port: admin{{ $host }}}
        periodSeconds: 5
      securityContext:
        {{- include "groundcrew.layers" (list (include "groundcrew.securityContext" .) $shared.securityContext $it.securityContext) | nindent 8 }}
      resources:
        {{- toYaml $it.resources | nindent 8 }}
      {{- if or $mounts $it.extraVolumeMounts }}
      volumeMounts:
        {{- range $mounts }}
        - {name: {{ .name }}, mountPath: /etc/groundcrew/{{ .name }}, readOnly: true}
        {{- end }}
        {{- with $it.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    {{- with $it.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or $mounts $it.extraVolumes }}
  volumes:
    {{- range $mounts }}
    - name: {{ .name }}
      secret: {secretName: {{ .secret }}, defaultMode: 0440}
    {{- end }}
    {{- with $it.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- with default $values.nodeSelector $it.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default $values.tolerations $it.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with default $values.priorityClassName $it.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- $affinity := default $values.affinity $it.affinity }}
  {{- if $affinity }}
  affinity:
    {{- toYaml $affinity | nindent 4 }}
  {{- else if not $everywhere }}
  affinity:
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels:
                {{- include "groundcrew.selector" . | nindent 16 }}
            # Of one generation: the old copies, which are about to go, say nothing about where the new ones should be.
            matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- end -}}

{{/* Its flags: the chart's own, and the operator's after them. The program takes hardly one twice. */}}
{{- define "groundcrew.args" -}}
{{- $own := include "groundcrew.ownArgs" . -}}
{{ $own }}
{{- $given := list -}}
{{- range fromYamlArray $own -}}{{- $given = append $given (splitList "=" . | first) -}}{{- end -}}
{{- $name := .name -}}
{{- range .controller.extraArgs }}
{{- $flag := splitList "=" . | first }}
{{- if has $flag $given }}
{{- fail (printf "controllers.%s.extraArgs: the chart gives %s itself; set its value instead" $name $flag) }}
{{- end }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "groundcrew.ownArgs" -}}
{{- $values := .root.Values -}}
- {{ printf "--log=%s" $values.log | quote }}
- --shutdown-budget={{ $values.shutdownBudgetSeconds }}s
{{- with $values.clusterId }}
- --cluster-id={{ . }}
{{- end }}
{{- if $values.kubeconfig.existingSecret }}
- --kubeconfig=/etc/groundcrew/kubeconfig/{{ $values.kubeconfig.key }}
- --lease-namespace={{ .root.Release.Namespace }}
{{- with $values.kubeconfig.context }}
- {{ printf "--context=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .controller.dryRun }}
- --dry-run
{{- end }}
{{- if include "groundcrew.hostNetwork" . }}
- {{ printf "--admin-address=%s" .controller.adminAddress | quote }}
{{- end }}
{{- range include (printf "groundcrew.%s.args" .name) . | fromYamlArray }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "groundcrew.podSecurityContext" -}}
{{- if include "groundcrew.onHost" . -}}
# Addresses and packet filters are changed by uid 0 with two capabilities, and no other.
runAsUser: 0
{{- else -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "groundcrew.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if include "groundcrew.onHost" . }}
  add: [NET_ADMIN, NET_RAW]
  {{- end }}
{{- end -}}

{{/* The fields of the first, as text, with those of the others instead where they have them; null takes a field out. */}}
{{- define "groundcrew.layers" -}}
{{- $fields := first . | fromYaml -}}
{{- range $layer := rest . -}}
{{- range $name, $value := $layer -}}
{{- $fields = omit $fields $name -}}
{{- if not (kindIs "invalid" $value) -}}{{- $fields = set $fields $name $value -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $fields -}}
{{- end -}}
