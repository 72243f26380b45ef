{{- define "groundcrew.cloudsigma-ccm.args" -}}
{{- $it := .controller -}}
- --mode={{ $it.mode }}
{{- with $it.region }}
- --region={{ . }}
{{- end }}
{{- with $it.apiUrl }}
- --api-url={{ . }}
{{- end }}
{{- if $it.username }}
- --username={{ $it.username }}
- --password-file=/etc/groundcrew/cloudsigma/password
{{- else }}
- --user-email={{ $it.userEmail }}
- --oauth-url={{ $it.oauthUrl }}
- --client-id={{ $it.clientId }}
- --client-secret-file=/etc/groundcrew/cloudsigma/client-secret
{{- end }}
{{- if not $it.takeClassless }}
- --leave-classless
{{- end }}
{{- if $it.nodesOnly }}
- --disable-lb-ip-pool
{{- end }}
{{- if $it.fastFailover }}
- --fast-failover
{{- end }}
{{- if $it.csiToken }}
- --enable-csi-token
{{- end }}
{{- end -}}

{{- define "groundcrew.cloudsigma-ccm.secrets" -}}
- {name: cloudsigma, secret: {{ .controller.existingSecret }}}
{{- end -}}

{{- define "groundcrew.cloudsigma-ccm.egress" -}}
- 443
{{- range list .controller.apiUrl .controller.oauthUrl }}
{{- $url := urlParse . }}
{{- with regexFind ":[0-9]+$" $url.host }}
- {{ trimPrefix ":" . }}
{{- else }}
{{- if eq $url.scheme "http" }}
- 80
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "groundcrew.cloudsigma-ccm.roles" -}}
{{- if not .controller.nodesOnly -}}
# A silent agent shows in its Lease.
- namespace: {{ .root.Release.Namespace }}
  suffix: -agents
  rules:
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      verbs: [get, list, watch]
{{- end }}
{{- if .controller.csiToken }}
- namespace: cloudsigma-csi
  suffix: -csi-token
  rules:
    - apiGroups: [""]
      resources: [secrets]
      resourceNames: [cloudsigma-token]
      verbs: [get, patch]
    # Nobody can be allowed to create by name.
    - apiGroups: [""]
      resources: [secrets]
      verbs: [create]
{{- end }}
{{- end -}}

{{- define "groundcrew.cloudsigma-ccm.rules" -}}
{{- if .controller.nodesOnly -}}
{{ include "groundcrew.rules.events" . }}
{{- with include "groundcrew.rules.clusterId" . }}
{{ . }}
{{- end }}
{{- else -}}
{{ include "groundcrew.rules.services" . }}
{{- end }}
# New nodes are initialised; a node whose server is gone is deleted.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch, patch, delete]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
# Which node answers for an address.
- apiGroups: [groundcrew.dev]
  resources: [floatingips]
  verbs: [{{ if not .controller.nodesOnly }}get, create, patch, delete, {{ end }}list, watch]
{{- end -}}
