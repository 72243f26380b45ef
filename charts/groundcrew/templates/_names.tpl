{{/* Names, labels and the image. Most take a dict: root (the top), name (the controller's), controller (its values). */}}

{{- define "groundcrew.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of what belongs to one controller. */}}
{{- define "groundcrew.component" -}}
{{- printf "%s-%s" (include "groundcrew.fullname" .root) .name -}}
{{- end -}}

{{/* Cluster-wide objects have the namespace in their name: two releases of one name must not share rights. */}}
{{- define "groundcrew.clusterWide" -}}
{{- printf "%s-%s" .root.Release.Namespace (include "groundcrew.component" .) -}}
{{- end -}}

{{- define "groundcrew.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/part-of: groundcrew
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "groundcrew.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "groundcrew.labels" -}}
{{ include "groundcrew.selector" . }}
{{ include "groundcrew.commonLabels" .root }}
{{- end -}}

{{- define "groundcrew.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Controllers that run on every node; all others are Deployments that elect a leader. */}}
{{- define "groundcrew.onEveryNode" -}}
{{- if has .name (list "net-probe" "node-agent") -}}yes{{- end -}}
{{- end -}}

{{/* The one that works on the node itself, with capabilities. */}}
{{- define "groundcrew.onHost" -}}
{{- if eq .name "node-agent" -}}yes{{- end -}}
{{- end -}}

{{/* Those on the network of their node: the agent, and who initialises the nodes before a pod network is there. Who works
     on another cluster waits for no node of it. */}}
{{- define "groundcrew.hostNetwork" -}}
{{- if or (eq .name "node-agent") (and (eq .name "cloudsigma-ccm") .controller.hostNetwork (not .root.Values.kubeconfig.existingSecret)) -}}yes{{- end -}}
{{- end -}}

{{/* Whether nobody but the node itself reaches its metrics. */}}
{{- define "groundcrew.unscraped" -}}
{{- if include "groundcrew.hostNetwork" . -}}
{{- if regexMatch "^(127\\.|\\[::1\\])" .controller.adminAddress -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* Its sub-command: `deorbit` by itself is the one for people. */}}
{{- define "groundcrew.command" -}}
{{- if eq .name "deorbit" -}}deorbit-controller{{- else -}}{{ .name }}{{- end -}}
{{- end -}}

{{/* Where a controller lives. Probes may write Leases, so that the leaders' must not be beside them. */}}
{{- define "groundcrew.namespace" -}}
{{- if eq .name "net-probe" -}}{{ .controller.namespace }}{{- else -}}{{ .root.Release.Namespace }}{{- end -}}
{{- end -}}
