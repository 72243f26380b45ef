{{/* What the controllers on OpenStack share. */}}

{{- define "groundcrew.openstack.args" -}}
- --cloud-conf=/etc/groundcrew/openstack/{{ .root.Values.openstack.key }}
- --pod-cidr={{ join "," .controller.podCidrs }}
{{- with .controller.routers }}
- --router={{ join "," . }}
{{- end }}
{{- end -}}

{{- define "groundcrew.openstack.secrets" -}}
- {name: openstack, secret: {{ .root.Values.openstack.existingSecret }}}
{{- end -}}

{{- define "groundcrew.openstack.egress" -}}
{{ .root.Values.networkPolicy.openstackPorts | toYaml }}
{{- end -}}
