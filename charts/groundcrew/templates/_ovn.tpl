{{/* What ovn-lb and lb-watcher share. */}}

{{- define "groundcrew.ovn.args" -}}
{{- $ovn := .root.Values.ovn -}}
{{ include "groundcrew.ovn.connection" . }}
- {{ printf "--ovn-router=%s" $ovn.router | quote }}
- {{ printf "--ovn-switch=%s" $ovn.switch | quote }}
- --kube-ovn-namespace={{ .root.Values.kubeOvn.namespace }}
{{- end -}}

{{- define "groundcrew.ovn.connection" -}}
{{- $ovn := .root.Values.ovn -}}
- --ovn-nb={{ join "," $ovn.northbound }}
{{- if $ovn.tls.existingSecret }}
- --ovn-ca=/etc/groundcrew/ovn-tls/{{ $ovn.tls.caKey }}
- --ovn-certificate=/etc/groundcrew/ovn-tls/{{ $ovn.tls.certificateKey }}
- --ovn-key=/etc/groundcrew/ovn-tls/{{ $ovn.tls.keyKey }}
{{- if $ovn.tls.anyName }}
- --ovn-any-name
{{- end }}
{{- end }}
{{- end -}}

{{/* The same for people, who have the certificates in files of their own. */}}
{{- define "groundcrew.ovn.line" -}}
{{- $ovn := .Values.ovn }} --ovn-nb {{ join "," $ovn.northbound }}
{{- if $ovn.tls.existingSecret }} --ovn-ca FILE --ovn-certificate FILE --ovn-key FILE{{ if $ovn.tls.anyName }} --ovn-any-name{{ end }}{{ end }}
{{- end -}}

{{- define "groundcrew.ovn.secrets" -}}
{{- with .root.Values.ovn.tls.existingSecret -}}
- {name: ovn-tls, secret: {{ . }}}
{{- end -}}
{{- end -}}

{{/* The ports of the northbound database. */}}
{{- define "groundcrew.ovn.egress" -}}
{{- $ports := list -}}
{{- range .root.Values.ovn.northbound -}}
{{- $ports = append $ports (splitList ":" . | last | int) -}}
{{- end -}}
{{- uniq $ports | toYaml -}}
{{- end -}}

{{/* Restarts of kube-ovn-controller explain lost load balancers. */}}
{{- define "groundcrew.ovn.roles" -}}
{{- if .root.Values.kubeOvn.enabled -}}
- namespace: {{ .root.Values.kubeOvn.namespace }}
  suffix: -kube-ovn
  rules:
    - apiGroups: [""]
      resources: [pods]
      verbs: [list, watch]
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      verbs: [list, watch]
{{- end -}}
{{- end -}}
