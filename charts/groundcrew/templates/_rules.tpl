{{/* Rights that several controllers need. */}}

{{- define "groundcrew.rules.events" -}}
# Events about objects of every namespace.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}

{{/* Of one that marks what it makes outside. */}}
{{- define "groundcrew.rules.clusterId" -}}
{{- if not .root.Values.clusterId -}}
# Its uid is the cluster's name in the marks on everything outside.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- end -}}
{{- end -}}

{{/* Of a controller that serves Services. */}}
{{- define "groundcrew.rules.services" -}}
# Finalizer and claim are on the Service, and its address is in the status.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, patch]
- apiGroups: [""]
  resources: [services/status]
  verbs: [patch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{ include "groundcrew.rules.events" . }}
{{- with include "groundcrew.rules.clusterId" . }}
{{ . }}
{{- end }}
{{- end -}}
