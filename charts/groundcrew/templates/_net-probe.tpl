{{- define "groundcrew.net-probe.args" -}}
- --service={{ include "groundcrew.component" . }}
{{- end -}}

{{- define "groundcrew.net-probe.fields" -}}
GROUNDCREW_POD_NAME: metadata.name
GROUNDCREW_POD_UID: metadata.uid
{{- end -}}

{{- define "groundcrew.net-probe.secrets" -}}{{- end -}}

{{- define "groundcrew.net-probe.egress" -}}{{- end -}}

{{- define "groundcrew.net-probe.roles" -}}
# Each probe finds the others, and writes whom it reaches into a Lease of its own.
- namespace: {{ .controller.namespace }}
  suffix: ""
  rules:
    - apiGroups: [discovery.k8s.io]
      resources: [endpointslices]
      verbs: [list, watch]
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      verbs: [create, patch]
{{- end -}}

{{- define "groundcrew.net-probe.rules" -}}{{- end -}}
