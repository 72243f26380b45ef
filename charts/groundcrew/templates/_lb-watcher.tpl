{{- define "groundcrew.lb-watcher.args" -}}
{{ include "groundcrew.ovn.args" . }}
{{- if .controller.reportOnly }}
- --report-only
{{- end }}
{{- end -}}

{{- define "groundcrew.lb-watcher.secrets" -}}
{{ include "groundcrew.ovn.secrets" . }}
{{- end -}}

{{- define "groundcrew.lb-watcher.egress" -}}
{{ include "groundcrew.ovn.egress" . }}
{{- end -}}

{{- define "groundcrew.lb-watcher.roles" -}}
{{ include "groundcrew.ovn.roles" . }}
{{- end -}}

{{- define "groundcrew.lb-watcher.rules" -}}
- apiGroups: [""]
  resources: [services]
  # The manager is woken by an annotation; where nothing may be written, a Service is read instead.
  verbs: [list, watch, {{ if or .controller.reportOnly .controller.dryRun }}get{{ else }}patch{{ end }}]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{ include "groundcrew.rules.events" . }}
{{- end -}}
