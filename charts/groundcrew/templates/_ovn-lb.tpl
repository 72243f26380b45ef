{{- define "groundcrew.ovn-lb.args" -}}
{{ include "groundcrew.ovn.args" . }}
- --address-source={{ .controller.addressSource }}
- --return-routes={{ .controller.returnRoutes }}
{{- if .controller.takeClassless }}
- --take-classless
{{- end }}
{{- if .controller.serveEips }}
- --serve-eips
{{- end }}
{{- if .controller.takeOver }}
- --take-over
{{- end }}
{{- end -}}

{{- define "groundcrew.ovn-lb.secrets" -}}
{{ include "groundcrew.ovn.secrets" . }}
{{- end -}}

{{- define "groundcrew.ovn-lb.egress" -}}
{{ include "groundcrew.ovn.egress" . }}
{{- end -}}

{{- define "groundcrew.ovn-lb.roles" -}}
{{ include "groundcrew.ovn.roles" . }}
{{- end -}}

{{- define "groundcrew.ovn-lb.rules" -}}
{{ include "groundcrew.rules.services" . }}
# Addresses of Nodes are not given to Services.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
# An EIp holds the address of a Service.
- apiGroups: [kube-dc.com]
  resources: [eips]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kube-dc.com]
  resources: [eips/status]
  verbs: [patch]
- apiGroups: [groundcrew.dev]
  resources: [addresspools]
  verbs: [list, watch]
- apiGroups: [groundcrew.dev]
  resources: [addresspools/status]
  verbs: [patch]
{{- if .root.Values.kubeOvn.enabled }}
# Addresses of kube-ovn, and where the pods of a namespace live.
- apiGroups: [kubeovn.io]
  resources: [ovn-eips]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [kubeovn.io]
  resources: [subnets]
  verbs: [list, watch]
# Subnets select them by their labels.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [list, watch]
- apiGroups: [kubeovn.io]
  resources: [vpcs]
  # To write return routes into it, a Vpc is read anew and patched.
  verbs: [list, watch{{ if eq .controller.returnRoutes "write" }}, get, patch{{ end }}]
# The network that a project of kube-dc leaves by.
- apiGroups: [kube-dc.com]
  resources: [projects]
  verbs: [list, watch]
{{- end }}
{{- end -}}
