{{- define "groundcrew.node-agent.args" -}}
- --peer-address=0.0.0.0:{{ .controller.peerPort }}
{{- if (index .root.Values.controllers "cloudsigma-ccm").fastFailover }}
- --fast-failover
{{- end }}
{{- end -}}

{{- define "groundcrew.node-agent.fields" -}}{{- end -}}

{{- define "groundcrew.node-agent.secrets" -}}{{- end -}}

{{- define "groundcrew.node-agent.egress" -}}{{- end -}}

{{- define "groundcrew.node-agent.roles" -}}
# Each agent renews a Lease of its own, and reads those of the others to ask them.
- namespace: {{ .root.Release.Namespace }}
  suffix: ""
  rules:
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      verbs: [get, list, create, update]
{{- end -}}

{{- define "groundcrew.node-agent.rules" -}}
- apiGroups: [groundcrew.dev]
  resources: [floatingips]
  verbs: [get, list, watch]
- apiGroups: [groundcrew.dev]
  resources: [floatingips/status]
  verbs: [patch]
# The Lease belongs to the Node and goes with it.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{ include "groundcrew.rules.events" . }}
{{- end -}}
