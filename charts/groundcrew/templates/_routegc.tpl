{{- define "groundcrew.routegc.args" -}}
{{ include "groundcrew.openstack.args" . }}
{{- end -}}

{{- define "groundcrew.routegc.secrets" -}}
{{ include "groundcrew.openstack.secrets" . }}
{{- end -}}

{{- define "groundcrew.routegc.egress" -}}
{{ include "groundcrew.openstack.egress" . }}
{{- end -}}

{{- define "groundcrew.routegc.roles" -}}{{- end -}}

{{- define "groundcrew.routegc.rules" -}}
# A Node says which routes are wanted.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list]
{{ include "groundcrew.rules.events" . }}
{{- end -}}
