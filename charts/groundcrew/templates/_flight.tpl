{{- define "groundcrew.flight.args" -}}
{{ include "groundcrew.openstack.args" . }}
- --nodes={{ .controller.nodes }}
{{- with .controller.securityGroup }}
- {{ printf "--security-group=%s" . | quote }}
{{- end }}
{{- with index .root.Values.controllers "net-probe" }}
{{- if .enabled }}
- --probe-namespace={{ .namespace }}
{{- end }}
{{- end }}
{{- if .controller.deleteServers }}
- --delete-servers
{{- end }}
{{- end -}}

{{- define "groundcrew.flight.secrets" -}}
{{ include "groundcrew.openstack.secrets" . }}
{{- end -}}

{{- define "groundcrew.flight.egress" -}}
{{ include "groundcrew.openstack.egress" . }}
{{- end -}}

{{- define "groundcrew.flight.roles" -}}
{{- with index .root.Values.controllers "net-probe" }}
{{- if .enabled -}}
# What the probes saw is in their Leases.
- namespace: {{ .namespace }}
  suffix: -probes
  rules:
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      verbs: [list]
{{- end }}
{{- end }}
{{- end -}}

{{- define "groundcrew.flight.rules" -}}
# All are read once more right before a server is touched: it may have become another Node.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# What is wrong with a Node is a condition of it.
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
# The memory of repairs.
- apiGroups: [groundcrew.dev]
  resources: [noderepairs]
  verbs: [list, create, delete]
- apiGroups: [groundcrew.dev]
  resources: [noderepairs/status]
  verbs: [update]
{{ include "groundcrew.rules.events" . }}
{{- end -}}
